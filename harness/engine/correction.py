"""Behaviour correction: weigh the policy loss where the sampler's probabilities are not the trainer's.

The ratio is pi_old / mu: the trainer's view of the policy that made the rollout over the sampler's own. It has nothing
to do with the level of an objective's policy ratio pi_theta / pi_old, and is a constant of the rollout. Where rollouts
lag behind a proximal anchor, pi_old is later than mu, and the product of both ratios is the decoupled objective's
(``lag``).
"""

import torch
from torch import Tensor

from harness.config.parts import CorrectionConfig
from objectives.ops import MAX_LOG_RATIO, log_ratio, row_sum

__all__ = ["correction_weights"]


def correction_weights(
    config: CorrectionConfig, old_logprobs: Tensor, rollout_logprobs: Tensor | None, mask: Tensor
) -> Tensor:
    """Return the factor of every token's policy loss [N, T]; 1 outside ``mask``, and everywhere with level "none".

    "truncate": the ratio within [low, high] (TIS: low 0, high 2). "mask": the ratio where it lies within the bounds, 0
    where it does not (IcePop). Level "sequence" takes the product over a response for all its tokens; its logarithm is
    bounded to +-20.

    Args:
        config: level, mode and bounds.
        old_logprobs: [N, T] float, log pi_old.
        rollout_logprobs: [N, T] float, log mu as the sampler reported it; may be None with level "none".
        mask: [N, T] bool.
    """
    ones = torch.ones_like(old_logprobs)
    if config.level == "none":
        return ones
    assert rollout_logprobs is not None
    ratios = log_ratio(old_logprobs, rollout_logprobs, mask)
    if config.level == "sequence":
        ratios = row_sum(ratios, mask).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).expand_as(ratios)
    weight = ratios.exp()
    if config.mode == "truncate":
        weight = weight.clamp(config.low, config.high)
    else:
        weight = torch.where((weight >= config.low) & (weight <= config.high), weight, 0.0)
    return torch.where(mask, weight, ones)
