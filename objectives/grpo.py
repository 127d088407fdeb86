"""GRPO: PPO's clip with group-relative advantages and no critic (Shao et al. 2024, DeepSeekMath, arXiv:2402.03300).

    A_i  = (R_i - mean_g R) / (std_g R + std_eps)                        section 4.1.2
    r_t  = pi_theta / pi_old of token t
    loss = mean_i mean_t -min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)     eq. 3
    c_t  = r_t A_i, 0 where clipped

Weights: 1 / (rows * tokens of the row).
Differs from PPO: the baseline is the group's mean reward, every token of a response has the same advantage, and each
response weighs the same whatever its length. The paper's penalty on KL to the reference is the trust region
``reference_penalty``. Invalid with one response a prompt (no group) or one update a rollout (every ratio is 1).
Defaults: clip 0.2 as in PPO (the paper gives none); std is the sample deviation; std_eps 1e-6 is ours.
"""

from dataclasses import dataclass

from torch import Tensor

from objectives.aggregation import sequence_mean
from objectives.base import Step
from objectives.families import GroupTokenClip


@dataclass(frozen=True)
class GRPO(GroupTokenClip):
    """Group relative policy optimisation."""

    def aggregation(self, step: Step) -> Tensor:
        return sequence_mean(step)
