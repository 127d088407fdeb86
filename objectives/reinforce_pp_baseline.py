"""REINFORCE++ with baseline: the group's mean subtracted, then whitened over the batch (arXiv:2501.03262).

    A_i  = R_i - mean_g R;   A_i <- (A_i - mean) / std over all tokens of the rollout
    loss = -min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)
    c_t  = r_t A_i, 0 where clipped

Weights: 1 / tokens of the step.
Differs from GRPO: divided by the deviation of the whole batch, not of the group, so that hard and easy prompts are not
blown up; mean over tokens. From Lite PPO: the mean is taken off over tokens once more, and the deviation is that of
centred rewards, weighted by tokens. The paper adds a k2 loss on KL(pi_theta || pi_ref): trust region
``reference_penalty`` with estimator "k2".
A batch without any spread has advantages of exactly 0.
Defaults: clip 0.2 as in PPO.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from objectives.advantages import group_advantages, row_targets, whiten
from objectives.aggregation import token_mean
from objectives.base import Rollout, Step, Targets
from objectives.families import TokenClip


@dataclass(frozen=True)
class ReinforcePPBaseline(TokenClip):
    """REINFORCE++ with a group baseline."""

    min_group_size: ClassVar[int] = 2

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def targets(self, rollout: Rollout) -> Targets:
        centred = row_targets(rollout, group_advantages(rollout.rewards, rollout.group))
        return Targets(whiten(centred.advantages, centred.loss_mask), centred.loss_mask)
