"""CPGD: a clipped policy gradient with a drift term (Liu et al. 2025, arXiv:2505.12504, eq. 2).

    A_i   = omega (R_i - mean_g R),   omega = 1, 1 / std_g, or min(clip_filter_max, prompts / informative prompts)
    loss  = -min(l_t A, clip(l_t, log(1 - low), log(1 + high)) A)  +  alpha sg(min(r_t - 1, drift_max)) log pi_theta
    c_t   = A, 0 where clipped;  minus alpha min(r_t - 1, drift_max)

Weights: 1 / (prompts * tokens of the prompt's group).
Differs from GRPO: the logarithm of the ratio is clipped, not the ratio, so the gradient has no ratio in it; the drift
term's gradient is that of KL(pi_old || pi_theta) by k3, capped, and acts without any advantage (``TokenLoss.penalty``).
Its value is only the carrier of that gradient.
Reduces to: REINFORCE with a group baseline on-policy.
The optional per-token bounds of the paper and its multi-epoch correction (section 6.1) are not built.
Defaults: weight "std" is among the paper's two best (table 2); the numbers of clip, alpha and the caps are not in the
sections that could be read: 0.2, 0.1, 5 and 3 are ours; so is std_eps 1e-6.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from objectives.advantages import group_advantages, row_targets
from objectives.aggregation import prompt_mean
from objectives.base import Batch, Rollout, Step, Targets, TokenLoss
from objectives.checks import require_at_least, require_positive
from objectives.families import TokenClip
from objectives.ops import log_bound, log_ratio, masked


@dataclass(frozen=True)
class CPGD(TokenClip):
    """Clipped policy gradient optimisation with policy drift.

    Attributes:
        alpha: factor of the drift term, at least 0.
        drift_max: largest r - 1 in the drift's gradient, at least 0.
        omega: weight of the advantages: "equal", "std" or "clip_filter".
        clip_filter_max: largest weight of "clip_filter", at least 1.
        std_eps: added to the group's standard deviation, reward units.
    """

    min_group_size: ClassVar[int] = 2

    alpha: float = 0.1
    drift_max: float = 5.0
    omega: Literal["equal", "std", "clip_filter"] = "std"
    clip_filter_max: float = 3.0
    std_eps: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, alpha=self.alpha, drift_max=self.drift_max, std_eps=self.std_eps)
        require_positive(clip_filter_max=self.clip_filter_max)
        require_at_least(1, clip_filter_max=self.clip_filter_max)

    def aggregation(self, step: Step) -> Tensor:
        return prompt_mean(step)

    def targets(self, rollout: Rollout) -> Targets:
        scale = "group" if self.omega == "std" else "none"
        advantages = group_advantages(rollout.rewards, rollout.group, scale=scale, std_eps=self.std_eps)
        if self.omega == "clip_filter":
            tally = torch.bincount(rollout.group), torch.bincount(rollout.group[advantages != 0])
            prompts, informative = (int((count > 0).sum()) for count in tally)
            advantages = advantages * min(self.clip_filter_max, prompts / max(1, informative))
        return row_targets(rollout, advantages)

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask = batch.loss_mask
        free = log_ratio(batch.logprobs, batch.old_logprobs, mask)
        low, high = log_bound(-self.clip_low), log_bound(self.clip_high)
        bounded = torch.where(batch.advantages >= 0, free.clamp(max=high), free.clamp(min=low))
        clipped = bounded != free
        logprobs = masked(batch.logprobs, mask)
        # An open log-ratio has the gradient of the log-probability, beyond the bound of ``log_ratio`` too.
        policy = -batch.advantages * torch.where(clipped, bounded, logprobs - masked(batch.old_logprobs, mask))
        drift = torch.expm1(free).clamp(max=self.drift_max).detach()
        return TokenLoss(
            policy=policy, penalty=self.alpha * drift * logprobs, stats={"clipped": clipped & (batch.advantages != 0)}
        )
