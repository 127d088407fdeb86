"""VESPO: a smooth, detached weight of the whole response's ratio (2026, arXiv:2602.10693).

    W    = exp(sum_t log(pi_theta / pi_old)),   phi = W^k exp(lam (1 - W))
    loss = -sg(phi) A_i log pi_theta
    c_t  = phi(W) A_i;   phi(1) = 1, largest at W = k / lam

Weights: 1 / tokens of the step.
Differs from CISPO: the weight is the response's and falls off smoothly on both sides. From GSPO: the ratio is the
raw product, not normalised by length.
log W is kept within log 1e-8 and 20 before the exponential; "clipped" marks responses at these ends, or whose
weight is 0 to the last digit.
Defaults: (k, lam) = (2, 3) for A >= 0 and (3, 2) for A < 0, as released by the authors; std_eps 1e-6 is ours.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from objectives.advantages import group_advantages, row_targets
from objectives.aggregation import token_mean
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.checks import require_at_least
from objectives.ops import MAX_LOG_RATIO, choose, log_ratio, row_mean, row_sum
from objectives.surrogates import score_function

_SMALLEST = math.log(1e-8)


@dataclass(frozen=True)
class VESPO(Objective):
    """Variational sequence-level soft policy optimisation.

    Attributes:
        k_positive: power of the ratio where A >= 0, at least 0.
        lam_positive: rate of the fall where A >= 0, at least 0.
        k_negative: power of the ratio where A < 0, at least 0.
        lam_negative: rate of the fall where A < 0, at least 0.
        std_eps: added to the group's standard deviation, reward units.
    """

    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "several"
    min_group_size: ClassVar[int] = 2

    k_positive: float = 2.0
    lam_positive: float = 3.0
    k_negative: float = 3.0
    lam_negative: float = 2.0
    std_eps: float = 1e-6

    def __post_init__(self) -> None:
        require_at_least(0, k_positive=self.k_positive, lam_positive=self.lam_positive, std_eps=self.std_eps)
        require_at_least(0, k_negative=self.k_negative, lam_negative=self.lam_negative)

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def targets(self, rollout: Rollout) -> Targets:
        advantages = group_advantages(rollout.rewards, rollout.group, scale="group", std_eps=self.std_eps)
        return row_targets(rollout, advantages)

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask = batch.loss_mask
        free = row_sum(log_ratio(batch.logprobs, batch.old_logprobs, mask), mask)  # [B, 1]
        log_w = free.clamp(_SMALLEST, MAX_LOG_RATIO)
        positive = row_mean(batch.advantages, mask) >= 0
        power = choose(positive, self.k_positive, self.k_negative, log_w)
        rate = choose(positive, self.lam_positive, self.lam_negative, log_w)
        phi = torch.exp(power * log_w - rate * torch.expm1(log_w))
        return score_function(batch, phi, clipped=(log_w != free) | (phi == 0))
