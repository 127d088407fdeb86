"""Policy mirror descent of Kimi k1.5: REINFORCE and a squared log-ratio (Kimi Team 2025, arXiv:2501.12599).

    A_i  = R_i - mean_g R
    loss = -A_i log pi_theta(response) + tau / 2 (log pi_theta / pi_old (response))^2
    c_t  = A_i - tau L_i,   L_i = sum_t log(pi_theta / pi_old)

Weights: 1 / (rows * max_response_tokens): sums over tokens up to a constant; each token holds its share of the square.
Differs from RLOO: pulled back to pi_old by a quadratic term in place of a ratio or a clip; that term acts without
any advantage too (``TokenLoss.penalty``).
Reduces to: Dr. GRPO's advantage with REINFORCE's loss at tau 0.
Defaults: the paper publishes no tau; 0.1 is ROLL's.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor

from objectives.advantages import group_advantages, row_targets
from objectives.aggregation import constant
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.checks import require_at_least
from objectives.ops import log_ratio, row_mean, row_sum
from objectives.surrogates import score_function


@dataclass(frozen=True)
class Kimi(Objective):
    """Mirror descent with the squared log-ratio of the response.

    Attributes:
        tau: factor of half the squared log-ratio, at least 0.
    """

    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "several"
    min_group_size: ClassVar[int] = 2

    tau: float = 0.1

    def __post_init__(self) -> None:
        require_at_least(0, tau=self.tau)

    def aggregation(self, step: Step) -> Tensor:
        return constant(step)

    def targets(self, rollout: Rollout) -> Targets:
        return row_targets(rollout, group_advantages(rollout.rewards, rollout.group))

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask = batch.loss_mask
        ratios = log_ratio(batch.logprobs, batch.old_logprobs, mask)
        # The square of the sum, shared out: sum times mean is sum^2 / n at each of n tokens.
        square = row_sum(ratios, mask) * row_mean(ratios, mask)
        return replace(score_function(batch, 1.0), penalty=(self.tau / 2 * square).expand_as(mask))
