"""OPO: exactly on-policy REINFORCE with a length-weighted group baseline (Hao et al. 2025, arXiv:2505.23585).

    b    = sum_g n R / sum_g n                    n tokens of a response: the optimal baseline if |grad log pi|^2 ~ n
    loss = -(R - b) log pi_theta
    c_t  = R - b

Weights: 1 / (rows * max_response_tokens): the derivation is for grad log pi(response), a sum over tokens; what the
paper's experiments divide by could not be read. With these weights the tokens of a group weigh 0 together.
Differs from RLOO: responses count in the baseline by their length, their own included. Equal lengths: Dr. GRPO's
advantage. From all ratio objectives: no ratio, no clip, no KL, no entropy term, and one update a rollout, which the
paper insists on; a schedule of several is refused.
A group of one has advantage 0 (the authors' code; verl subtracts nothing there).
Defaults: none to choose.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from objectives.advantages import length_weighted_advantages, row_targets
from objectives.aggregation import constant
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.surrogates import score_function


@dataclass(frozen=True)
class OPO(Objective):
    """On-policy optimisation with the optimal reward baseline."""

    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "one"
    min_group_size: ClassVar[int] = 2

    def aggregation(self, step: Step) -> Tensor:
        return constant(step)

    def targets(self, rollout: Rollout) -> Targets:
        lengths = rollout.response_mask.sum(1)
        return row_targets(rollout, length_weighted_advantages(rollout.rewards, rollout.group, lengths))

    def token_loss(self, batch: Batch) -> TokenLoss:
        return score_function(batch, 1.0)
