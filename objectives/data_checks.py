"""What the records of ``objectives.data`` refuse: shapes that do not fit, half precision, gradients on constants."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

__all__ = ["LIVE", "check_batch", "check_rollout"]

LIVE = frozenset(
    {
        *("logprobs", "values", "entropy", "projection_gap"),
        *("exact_kl_old", "exact_kl_new_old", "exact_kl_ref", "exact_kl_new_ref"),
    }
)
"""Fields of a Batch that may carry gradients."""


def check_rollout(rollout: Any) -> None:
    """Raise ValueError unless every tensor has one response a row and, where it has columns, T of them."""
    rows, width = rollout.response_mask.shape
    for name, value in _tensors(rollout).items():
        wide = width + 1 if name == "old_values" else width
        expected = (rows,) if value.ndim == 1 else (rows, wide)
        if tuple(value.shape) != expected:
            raise ValueError(
                f"Rollout.{name} has shape {tuple(value.shape)}, expected {expected}: "
                f"one response a row, {width} padded response tokens"
            )


def check_batch(batch: Any) -> None:
    """Raise ValueError unless every tensor is [B, T], none half precision, and only ``LIVE`` ones carry gradients."""
    expected = tuple(batch.loss_mask.shape)
    for name, value in _tensors(batch).items():
        if tuple(value.shape) != expected:
            raise ValueError(f"Batch.{name} has shape {tuple(value.shape)}, expected {expected}")
        _check_numbers(f"Batch.{name}", value, live=name in LIVE)
    extras: Mapping[str, Tensor] = batch.extras
    for name, value in extras.items():
        _check_numbers(f"Batch.extras[{name!r}]", value, live=False)


def _tensors(record: Any) -> dict[str, Tensor]:
    found = {item.name: getattr(record, item.name) for item in fields(record)}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def _check_numbers(name: str, value: Tensor, *, live: bool) -> None:
    """Raise ValueError for half precision, or for a gradient on a constant."""
    if value.dtype in (torch.bfloat16, torch.float16):
        raise ValueError(f"{name} is {value.dtype}, which rounds 1 + 4e-4 to 1: compute log-softmax after .float()")
    if value.requires_grad and not live:
        raise ValueError(f"{name} carries a gradient; only {', '.join(sorted(LIVE))} may: .detach() it")
