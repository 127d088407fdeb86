"""LUSPO: GSPO with each response's loss multiplied by its length (Liu et al. 2026, arXiv:2602.05261).

    s_i  = exp(mean_t log(pi_theta / pi_old))
    loss = -n_i min(s_i A_i, clip(s_i, 1 - low, 1 + high) A_i),   n_i tokens of the response
    c_t  = s_i A_i, 0 where clipped

Weights: 1 / (rows * max_response_tokens) at each of the n_i tokens: the paper's 1 / rows up to a constant, so that a
bound on the gradient's norm means about the same as beside GSPO.
Differs from GSPO: tokens weigh alike whatever the length of their response.
Reduces to: GSPO times n / max_response_tokens where all responses have n tokens.
Defaults: clip 2e-3 and 2.5e-3 from the paper, for responses of thousands of tokens; std_eps 1e-6 is ours.
"""

from dataclasses import dataclass

from torch import Tensor

from objectives.aggregation import constant
from objectives.base import Step
from objectives.families import SequenceClip


@dataclass(frozen=True)
class LUSPO(SequenceClip):
    """Length-unbiased sequence policy optimisation."""

    clip_low: float = 2e-3
    clip_high: float = 2.5e-3

    def aggregation(self, step: Step) -> Tensor:
        return constant(step)
