"""ASPO: the reciprocal ratio on positive tokens (Wang et al. 2025, arXiv:2510.06062).

    A < 0: loss = -max(r_t, 1 - low) A                                        PPO's
    A > 0: loss = -sg(min(1 / r_t, cap)) A log pi_theta,  and 0 where r_t > 1 + high
    c_t  = r_t A, 0 where r_t < 1 - low (A < 0);   min(1 / r_t, cap) A, 0 where r_t > 1 + high (A > 0)

Weights: 1 / tokens of the step.
Differs from GRPO: where a token did well and the policy already prefers it, it is pushed less, not more, and where the
policy has left it behind, more. On-policy the gradient is DAPO's.
Read from summaries and a reimplementation that agree on these weights; the paper's equation was not readable. Sources
disagree on the soft dual clip: here the value of the detached weight is capped.
Defaults: clip 0.2 on either side; the cap is not published, 3 is ours; std_eps 1e-6 is ours.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from objectives.aggregation import token_mean
from objectives.base import Batch, Step, TokenLoss
from objectives.checks import require_at_least
from objectives.families import GroupTokenClip
from objectives.ops import log_ratio, masked
from objectives.surrogates import clipped_surrogate


@dataclass(frozen=True)
class ASPO(GroupTokenClip):
    """Asymmetric importance sampling policy optimisation.

    Attributes:
        cap: largest reciprocal ratio, at least 1.
    """

    cap: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, cap=self.cap)

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask = batch.loss_mask
        usual = clipped_surrogate(batch, self.clip_low, self.clip_high)
        ratio = torch.exp(log_ratio(batch.logprobs, batch.old_logprobs, mask)).detach()
        dropped, reciprocal = ratio > 1 + self.clip_high, 1 / ratio
        weight = torch.where(dropped, 0.0, reciprocal.clamp(max=self.cap))
        positive = batch.advantages > 0
        mirrored = -weight * batch.advantages * masked(batch.logprobs, mask)
        clipped = torch.where(positive, dropped | (reciprocal > self.cap), usual.stats["clipped"])
        return TokenLoss(policy=torch.where(positive, mirrored, usual.policy), stats={"clipped": clipped})
