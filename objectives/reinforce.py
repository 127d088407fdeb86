"""REINFORCE: the score function times the reward, no ratio and no clip (Williams 1992; no arXiv id).

    A    = R - b,   b = 0 or the mean reward of the rollout
    loss = -A log pi_theta
    c_t  = A

Weights: 1 / (rows * max_response_tokens): the gradient of log pi(response), a sum over tokens, up to a constant.
Differs from RLOO: no comparison within a group, so one response a prompt is enough.
Reduces to: what every objective here is while pi_theta = pi_old.
Off-policy (several updates a rollout) it is biased: nothing corrects for pi_theta having moved.
Defaults: no baseline, the algorithm's plainest form; any b that does not depend on the response leaves it unbiased.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from objectives.advantages import row_targets
from objectives.aggregation import constant
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.surrogates import score_function


@dataclass(frozen=True)
class Reinforce(Objective):
    """Likelihood-ratio gradient of the reward.

    Attributes:
        baseline: "none", or "batch" for the mean of all known rewards of the rollout.
    """

    baseline: Literal["none", "batch"] = "none"

    def aggregation(self, step: Step) -> Tensor:
        return constant(step)

    def targets(self, rollout: Rollout) -> Targets:
        known = rollout.rewards[~rollout.rewards.isnan()].double()
        baseline = known.mean() if self.baseline == "batch" and len(known) else known.new_zeros(())
        return row_targets(rollout, torch.nan_to_num(rollout.rewards.double() - baseline))

    def token_loss(self, batch: Batch) -> TokenLoss:
        return score_function(batch, 1.0)
