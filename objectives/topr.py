"""TOPR: tapered off-policy REINFORCE (Le Roux et al. 2025, arXiv:2503.14286).

    A    = 2 R - 1 - baseline:   the paper's rewards are -1 and 1, a task of this harness pays 0 to 1
    loss = -w A log pi_theta,   w = 1 where A >= 0, sg(min(W, 1)) where A < 0,   W = pi_theta / pi_old of the response
    c_t  = w A

Weights: 1 / (rows * max_response_tokens): a sum over tokens up to a constant.
Differs from REINFORCE: a wrong response loses its weight as it becomes improbable, so off-policy data cannot push it
down for ever; right ones are imitated without any ratio. From CISPO: the ratio is the whole response's. Two known
libraries implement it by token; this is the paper's.
The logarithm of W is bounded to +-20.
Defaults: baseline 0, which in the paper's scale puts right and wrong answers at 1 and -1 (the paper studies others).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from objectives.advantages import row_targets
from objectives.aggregation import constant
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.checks import require_between
from objectives.ops import MAX_LOG_RATIO, log_ratio, row_mean, row_sum
from objectives.surrogates import score_function


@dataclass(frozen=True)
class TOPR(Objective):
    """REINFORCE whose negative examples are tapered by their truncated importance ratio.

    Attributes:
        baseline: subtracted from rewards on the scale from -1 to 1; in [-1, 1].
    """

    baseline: float = 0.0

    def __post_init__(self) -> None:
        require_between(-1, 1, baseline=self.baseline)

    def aggregation(self, step: Step) -> Tensor:
        return constant(step)

    def targets(self, rollout: Rollout) -> Targets:
        return row_targets(rollout, torch.nan_to_num(2 * rollout.rewards.double() - 1 - self.baseline))

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask = batch.loss_mask
        log_w = row_sum(log_ratio(batch.logprobs, batch.old_logprobs, mask), mask)
        taper = log_w.clamp(-MAX_LOG_RATIO, 0).exp()
        negative = row_mean(batch.advantages, mask) < 0
        return score_function(batch, torch.where(negative, taper, 1.0), clipped=negative & (log_w > 0))
