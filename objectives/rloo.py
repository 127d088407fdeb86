"""RLOO: REINFORCE with the mean reward of the other responses as baseline (Ahmadian et al. 2024, arXiv:2402.14740).

    A_i  = R_i - mean_{j != i} R_j = G / (G - 1) (R_i - mean_g R)
    loss = -A_i log pi_theta
    c_t  = A_i

Weights: 1 / (rows * max_response_tokens): the response is one action, its log-probability a sum over tokens.
Differs from REINFORCE: the baseline is the group's, and independent of the response it is subtracted from. From
Dr. GRPO: no ratio, no clip, and the factor G / (G - 1).
Differs from libraries of that name: TRL's RLOOTrainer clips the raw ratio of the whole response as PPO does; that is
``gspo_subsequence`` with preset "rloo". The paper's KL to the reference in the reward is left to a trust region.
Defaults: none to choose.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from objectives.advantages import leave_one_out_advantages, row_targets
from objectives.aggregation import constant
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.surrogates import score_function


@dataclass(frozen=True)
class RLOO(Objective):
    """REINFORCE leave-one-out."""

    min_group_size: ClassVar[int] = 2

    def aggregation(self, step: Step) -> Tensor:
        return constant(step)

    def targets(self, rollout: Rollout) -> Targets:
        return row_targets(rollout, leave_one_out_advantages(rollout.rewards, rollout.group))

    def token_loss(self, batch: Batch) -> TokenLoss:
        return score_function(batch, 1.0)
