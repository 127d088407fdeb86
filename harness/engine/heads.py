"""Heads in float32: half precision rounds a logit of 20 to the next 1/8 and a ratio of 1 + 4e-4 to 1."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["Head", "wide", "wide_head"]

Head = Callable[[Tensor], Tensor]
"""From states [.., D] to logits [.., V], float32 or wider."""


def wide(x: Tensor) -> Tensor:
    """Return ``x`` in float32, or as it is if it is float64."""
    return x if x.dtype == torch.float64 else x.float()


def wide_head(head: nn.Module) -> Head:
    """Return ``head`` with its product made in float32 or wider; half-precision weights are converted once, here."""
    if not isinstance(head, nn.Linear) or head.weight.dtype in (torch.float32, torch.float64):
        return lambda states: wide(head(states))
    weight, bias = wide(head.weight), None if head.bias is None else wide(head.bias)
    return lambda states: nn.functional.linear(wide(states), weight, bias)
