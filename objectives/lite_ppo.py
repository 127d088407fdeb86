"""Lite PPO: group mean, batch deviation, mean over tokens (Liu et al. 2025, "Tricks or Traps?", arXiv:2508.08221).

    A_i  = (R_i - mean_g R) / (std of all rewards of the rollout + std_eps)
    loss = -min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)
    c_t  = r_t A_i, 0 where clipped

Weights: 1 / tokens of the step.
Differs from GRPO: the deviation is the batch's and tokens weigh alike. From DAPO: no clip-higher, dynamic sampling or
overlong rules. The paper calls it PPO for its loss; there is no critic.
Defaults: clip 0.2 as in PPO; std_eps 1e-6 is ours.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from objectives.advantages import group_advantages, row_targets
from objectives.aggregation import token_mean
from objectives.base import Rollout, Step, Targets
from objectives.checks import require_at_least
from objectives.families import TokenClip


@dataclass(frozen=True)
class LitePPO(TokenClip):
    """PPO's clip on advantages with group mean and batch deviation.

    Attributes:
        std_eps: added to the standard deviation of the rollout's rewards, reward units.
    """

    min_group_size: ClassVar[int] = 2

    std_eps: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, std_eps=self.std_eps)

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def targets(self, rollout: Rollout) -> Targets:
        advantages = group_advantages(rollout.rewards, rollout.group, scale="batch", std_eps=self.std_eps)
        return row_targets(rollout, advantages)
