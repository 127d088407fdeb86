"""Dr. GRPO: GRPO without its two normalisers (Liu et al. 2025, arXiv:2503.20783).

    A_i  = R_i - mean_g R
    loss = -min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)
    c_t  = r_t A_i, 0 where clipped

Weights: 1 / (rows * max_response_tokens), a constant.
Differs from GRPO: no division by the group's deviation (which favours very easy and very hard prompts) and none by the
response's length (which makes wrong answers long).
Defaults: clip 0.2 as in PPO (the paper gives none).
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from objectives.advantages import group_advantages, row_targets
from objectives.aggregation import constant
from objectives.base import Rollout, Step, Targets
from objectives.families import TokenClip


@dataclass(frozen=True)
class DrGRPO(TokenClip):
    """GRPO done right."""

    min_group_size: ClassVar[int] = 2

    def aggregation(self, step: Step) -> Tensor:
        return constant(step)

    def targets(self, rollout: Rollout) -> Targets:
        return row_targets(rollout, group_advantages(rollout.rewards, rollout.group))
