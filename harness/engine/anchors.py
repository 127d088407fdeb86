"""Policies that an exact divergence is taken to: their last hidden states on a rollout, and their head as it was then.

Kept instead of their distributions: D numbers a token, not V. The distributions are made again chunk by chunk.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from objectives.trust_region.measured import EXACT_FIELDS, Anchor

__all__ = ["AnchorStates", "Anchored", "anchored", "exact_fields", "exact_kl", "wanted"]


@dataclass(frozen=True)
class AnchorStates:
    """A policy on a rollout.

    Attributes:
        states: [N, T, D] last hidden states that predict the response tokens; 0 outside the mask.
        head: its language-model head; never trained.
    """

    states: Tensor
    head: nn.Module

    @classmethod
    def of(cls, states: Tensor, head: nn.Module) -> "AnchorStates":
        """Keep ``states`` and a frozen copy of ``head``, which the next step may change."""
        return cls(states, copy.deepcopy(head).requires_grad_(False))


@dataclass(frozen=True)
class Anchored:
    """What one exact divergence of some rows is computed from.

    Attributes:
        states: [B, T, D] of the anchor.
        head: of the anchor.
        reverse: KL(pi_theta || anchor) if true, KL(anchor || pi_theta) if not.
    """

    states: Tensor
    head: nn.Module
    reverse: bool


def exact_fields(requires: frozenset[str]) -> list[str]:
    """Return the exact divergences among the required fields, sorted."""
    return sorted(requires & set(EXACT_FIELDS.values()))


def wanted(requires: frozenset[str], anchor: Anchor) -> bool:
    """Whether an exact divergence to this anchor is required."""
    return any(field in requires for (to, _), field in EXACT_FIELDS.items() if to == anchor)


def anchored(requires: frozenset[str], anchors: Mapping[Anchor, AnchorStates], rows: Tensor) -> dict[str, Anchored]:
    """Return what the required divergences of ``rows`` are computed from, by field."""
    return {
        field: Anchored(anchors[to].states[rows], anchors[to].head, direction == "reverse")
        for (to, direction), field in EXACT_FIELDS.items()
        if field in requires
    }


def exact_kl(logprobs: Tensor, anchor_logprobs: Tensor, *, reverse: bool) -> Tensor:
    """Return KL(anchor || pi_theta), or KL(pi_theta || anchor) if ``reverse``, of distributions [K, V] as [K], nats."""
    first, second = (logprobs, anchor_logprobs) if reverse else (anchor_logprobs, logprobs)
    return torch.where(first > -torch.inf, first.exp() * (first - second), 0.0).sum(-1)
