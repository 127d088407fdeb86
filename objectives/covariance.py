"""The covariance of log-probability and advantage by token: what Clip-Cov and KL-Cov select by."""

import torch
from torch import Tensor

from objectives.base import Step
from objectives.ops import masked

__all__ = ["token_covariance"]


def token_covariance(step: Step) -> Tensor:
    """Return (log pi_theta - mean)(A - mean) of every token [M, T], means over the step's tokens; 0 outside the mask.

    Raises:
        ValueError: the step has no current log-probabilities.
    """
    if step.logprobs is None or step.advantages is None:
        raise ValueError('the covariance reads Step.logprobs: name "step_logprobs" in requires')
    mask = step.loss_mask
    count = mask.sum().clamp(min=1)
    centred: list[Tensor] = []
    for values in (step.logprobs, step.advantages):
        known = masked(values, mask).double()
        centred.append(masked(known - known.sum() / count, mask))
    return torch.mul(*centred)
