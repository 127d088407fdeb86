"""GRPO: PPO's clip with group-relative advantages and no critic (Shao et al. 2024, DeepSeekMath, arXiv:2402.03300).

    A_i  = (R_i - mean_g R) / (std_g R + std_eps)                        section 4.1.2
    r_t  = pi_theta / pi_old of token t
    loss = mean_i mean_t -min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)     eq. 3

Differs from PPO: the baseline is the group's mean reward, every token of a response has the same advantage, and each
response weighs the same whatever its length. The paper's penalty on KL to the reference is the trust region
``reference_penalty``. Invalid with one response a prompt (no group) or one update a rollout (every ratio is 1).
Defaults: clip 0.2 as in PPO (the paper gives none); std is the sample deviation; std_eps 1e-6 is ours.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from objectives.aggregation import sequence_mean
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.checks import require_at_least, require_between
from objectives.ops import broadcast_rows, clip_ratio_pessimistic, group_advantages, log_ratio, saturated


@dataclass(frozen=True)
class GRPO(Objective):
    """Group relative policy optimisation.

    Attributes:
        clip_low: ratio is clipped to >= 1 - clip_low where the advantage is negative; in [0, 1].
        clip_high: ratio is clipped to <= 1 + clip_high where the advantage is positive; at least 0.
        std_eps: added to the group's standard deviation, reward units.
    """

    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "several"
    min_group_size: ClassVar[int] = 2

    clip_low: float = 0.2
    clip_high: float = 0.2
    std_eps: float = 1e-6

    def __post_init__(self) -> None:
        require_between(0, 1, clip_low=self.clip_low)
        require_at_least(0, clip_high=self.clip_high, std_eps=self.std_eps)

    def aggregation(self, step: Step) -> Tensor:
        return sequence_mean(step)

    def targets(self, rollout: Rollout) -> Targets:
        advantages = group_advantages(rollout.rewards, rollout.group, scale_by_std=True, std_eps=self.std_eps)
        return Targets(broadcast_rows(advantages, rollout.scored), rollout.scored)

    def token_loss(self, batch: Batch) -> TokenLoss:
        pair = batch.logprobs, batch.old_logprobs, batch.loss_mask
        ratio = torch.exp(log_ratio(*pair))
        clipped = clip_ratio_pessimistic(ratio, batch.advantages, self.clip_low, self.clip_high)
        return TokenLoss(policy=-clipped * batch.advantages, stats={"clipped": (clipped != ratio) | saturated(*pair)})
