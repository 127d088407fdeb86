"""GSPO: one length-normalised, clipped ratio a response (Zheng et al. 2025, arXiv:2507.18071).

    s_i  = exp(mean_t log(pi_theta / pi_old))                       eq. 7
    loss = mean_i -min(s_i A_i, clip(s_i, 1 - low, 1 + high) A_i)       eq. 5
    c_t  = s_i A_i, 0 where clipped

Weights: 1 / (rows * tokens of the row).
Differs from GRPO: the ratio is averaged over the response before the clip, so a response is kept or clipped as a
whole. Same advantages. Invalid with one response a prompt or one update a rollout.
Defaults: clip 3e-4 and 4e-4 from section 5.1, for responses of thousands of tokens: the mean log-ratio of n tokens
scatters as 1/sqrt(n), so short responses need wider bounds.
"""

from dataclasses import dataclass

from torch import Tensor

from objectives.aggregation import sequence_mean
from objectives.base import Step
from objectives.families import SequenceClip


@dataclass(frozen=True)
class GSPO(SequenceClip):
    """Group sequence policy optimisation."""

    def aggregation(self, step: Step) -> Tensor:
        return sequence_mean(step)
