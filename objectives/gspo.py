"""GSPO: one length-normalised, clipped ratio a response (Zheng et al. 2025, arXiv:2507.18071).

    s_i  = exp(mean_t log(pi_theta / pi_old))                       eq. 7
    loss = mean_i -min(s_i A_i, clip(s_i, 1 - low, 1 + high) A_i)       eq. 5

Differs from GRPO: the ratio is averaged over the response before the clip, so a response is kept or clipped as a
whole. Same advantages. Invalid with one response a prompt or one update a rollout.
Defaults: clip 3e-4 and 4e-4 from section 5.1, for responses of thousands of tokens: the mean log-ratio of n tokens
scatters as 1/sqrt(n), so short responses need wider bounds.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from objectives.aggregation import sequence_mean
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.checks import require_at_least, require_between
from objectives.ops import broadcast_rows, clip_ratio_pessimistic, group_advantages, log_ratio, row_mean, saturated


@dataclass(frozen=True)
class GSPO(Objective):
    """Group sequence policy optimisation.

    Attributes:
        clip_low: the response's ratio is clipped to >= 1 - clip_low where its advantage is negative; in [0, 1].
        clip_high: the response's ratio is clipped to <= 1 + clip_high where its advantage is positive; at least 0.
        std_eps: added to the group's standard deviation, reward units.
    """

    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "several"
    min_group_size: ClassVar[int] = 2

    clip_low: float = 3e-4
    clip_high: float = 4e-4
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
        mask = batch.loss_mask
        pair = batch.logprobs, batch.old_logprobs, mask
        ratio = torch.exp(row_mean(log_ratio(*pair), mask))  # [B, 1]
        advantages = row_mean(batch.advantages, mask)
        clipped = clip_ratio_pessimistic(ratio, advantages, self.clip_low, self.clip_high)
        stats = {"clipped": (clipped != ratio) | saturated(*pair)}
        return TokenLoss(policy=(-clipped * advantages).expand_as(mask), stats=stats)
