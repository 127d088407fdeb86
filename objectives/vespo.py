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

import torch
from torch import Tensor

from objectives.aggregation import token_mean
from objectives.base import Batch, Step, TokenLoss
from objectives.checks import require_at_least
from objectives.families import GroupRatio
from objectives.ops import MAX_LOG_RATIO, choose, log_ratio, row_mean, row_sum
from objectives.surrogates import score_function

_SMALLEST = math.log(1e-8)


@dataclass(frozen=True)
class VESPO(GroupRatio):
    """Variational sequence-level soft policy optimisation.

    Attributes:
        k_positive: power of the ratio where A >= 0, at least 0.
        lam_positive: rate of the fall where A >= 0, at least 0.
        k_negative: power of the ratio where A < 0, at least 0.
        lam_negative: rate of the fall where A < 0, at least 0.
    """

    k_positive: float = 2.0
    lam_positive: float = 3.0
    k_negative: float = 3.0
    lam_negative: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, k_positive=self.k_positive, lam_positive=self.lam_positive)
        require_at_least(0, k_negative=self.k_negative, lam_negative=self.lam_negative)

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask = batch.loss_mask
        free = row_sum(log_ratio(batch.logprobs, batch.old_logprobs, mask), mask)  # [B, 1]
        log_w = free.clamp(_SMALLEST, MAX_LOG_RATIO)
        positive = row_mean(batch.advantages, mask) >= 0
        power = choose(positive, self.k_positive, self.k_negative, log_w)
        rate = choose(positive, self.lam_positive, self.lam_negative, log_w)
        phi = torch.exp(power * log_w - rate * torch.expm1(log_w))
        return score_function(batch, phi, clipped=(log_w != free) | (phi == 0))
