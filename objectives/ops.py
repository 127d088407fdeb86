"""Arithmetic of ratios under a mask, shared by the objectives. Shapes: see ``objectives.base``."""

import math

import torch
from torch import Tensor

__all__ = [
    "MAX_LOG_RATIO",
    "choose",
    "clip_ratio_pessimistic",
    "log_bound",
    "log_ratio",
    "masked",
    "row_mean",
    "row_sum",
    "saturated",
]

# exp(20) is 4.9e8: large enough never to bind in training, small enough that float32 products stay finite.
MAX_LOG_RATIO = 20.0


def log_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """Return log(pi_theta / pi_old) per token, in nats, 0 outside ``mask``.

    Clamped to +-20: beyond that a token's ratio no longer moves and passes no gradient. Entries outside the mask
    may be NaN or infinite; they reach neither value nor gradient.

    Args:
        logprobs: [B, T] float, nats; carries gradients.
        old_logprobs: [B, T] float, nats.
        mask: [B, T] bool.

    Returns:
        [B, T] float.
    """
    difference = masked(logprobs, mask) - masked(old_logprobs, mask)
    return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def saturated(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """Return [B, T] bool, tokens that the bound of ``log_ratio`` leaves without gradient; they count as clipped."""
    return (masked(logprobs, mask) - masked(old_logprobs, mask)).abs() > MAX_LOG_RATIO


def clip_ratio_pessimistic(
    ratio: Tensor, advantages: Tensor, low: float, high: float, dual: float = math.inf
) -> Tensor:
    """Clip ``ratio`` on the side where its advantage would push it further out; equals PPO's minimum.

    A > 0: min(ratio, 1 + high); A < 0: max(ratio, 1 - low); so advantage times the result is
    min(ratio A, clip(ratio, 1 - low, 1 + high) A). The gradient is 0 strictly outside the bound. ``dual`` (dual clip)
    bounds the ratio from above where A < 0 too: min(ratio, dual).
    """
    return torch.where(advantages >= 0, ratio.clamp(max=1 + high), ratio.clamp(1 - low, dual))


def masked(x: Tensor, mask: Tensor) -> Tensor:
    """Return ``x`` with 0 outside ``mask``; what stands there, NaN too, reaches neither value nor gradient."""
    return torch.where(mask, x, 0.0)


def log_bound(offset: float) -> float:
    """Return log(1 + offset), minus infinity at -1: the logarithm of a ratio's bound."""
    return math.log1p(offset) if offset > -1 else -math.inf


def choose(condition: Tensor, yes: float, no: float, like: Tensor) -> Tensor:
    """Return ``yes`` where ``condition`` holds, else ``no``, in the dtype and on the device of ``like``.

    ``torch.where`` of two numbers would round them to float32.
    """
    return torch.where(condition, like.new_tensor(yes), like.new_tensor(no))


def row_sum(x: Tensor, mask: Tensor) -> Tensor:
    """Return the sum of every row of ``x`` [B, T] over ``mask`` as [B, 1]; 0 for an empty row."""
    return masked(x, mask).sum(1, keepdim=True)


def row_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of every row of ``x`` [B, T] over ``mask`` as [B, 1]; 0 for an empty row."""
    return row_sum(x, mask) / mask.sum(1, keepdim=True).clamp(min=1)
