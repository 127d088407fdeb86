"""Policies that an exact divergence is taken to: their last hidden states on a rollout, and their head as it was then.

Kept instead of their distributions: D numbers a token, not V. The distributions are made again chunk by chunk.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from harness.engine.sharding import whole_copy
from objectives.trust_region.measured import EXACT_FIELDS, Anchor

__all__ = ["PROJECTION", "AnchorStates", "Anchored", "anchored", "exact_kl", "wanted"]


Project = Callable[[Tensor, Tensor], Tensor]

PROJECTION = "projection_gap"
"""The divergence between the policy and its projection; it is computed from the old policy."""


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
        """Keep ``states`` and a frozen copy of ``head``, which the next step may change if it is trained."""
        return cls(states, whole_copy(head))

    def extended(self, rows: int, width: int) -> "AnchorStates":
        """Return this with ``rows`` more rows, of which nothing is known, and ``width`` tokens a row."""
        more = width - self.states.shape[1]
        return replace(self, states=nn.functional.pad(self.states, (0, 0, 0, more, 0, rows)))


@dataclass(frozen=True)
class Anchored:
    """What one exact divergence of some rows is computed from.

    Attributes:
        states: [B, T, D] of the anchor.
        head: of the anchor.
        reverse: KL(pi_theta || anchor) if true, KL(anchor || pi_theta) if not.
        project: of a trust region, from log pi_theta and log anchor [K, V] to a projection; the divergence is then
            KL(pi_theta || sg(projection)).
        replaces: whether log-probabilities are the projection's.
    """

    states: Tensor
    head: nn.Module
    reverse: bool
    project: Project | None = None
    replaces: bool = False

    def of(self, states: Tensor) -> "Anchored":
        """Return the same with other ``states``, those of a chunk of tokens [K, D]."""
        return replace(self, states=states)


def wanted(requires: frozenset[str], anchor: Anchor) -> bool:
    """Whether an exact divergence to this anchor is required."""
    fields = {field for (to, _), field in EXACT_FIELDS.items() if to == anchor}
    return bool(requires & (fields | {PROJECTION} if anchor == "old" else fields))


def anchored(
    requires: frozenset[str],
    anchors: Mapping[Anchor, AnchorStates],
    rows: Tensor,
    project: Project,
    *,
    replaces: bool,
) -> dict[str, Anchored]:
    """Return what the required divergences of ``rows`` are computed from, by field."""
    found = {
        field: Anchored(anchors[to].states[rows], anchors[to].head, direction == "reverse")
        for (to, direction), field in EXACT_FIELDS.items()
        if field in requires
    }
    if PROJECTION in requires:
        states, head = anchors["old"].states[rows], anchors["old"].head
        found[PROJECTION] = Anchored(states, head, reverse=True, project=project, replaces=replaces)
    return found


def exact_kl(logprobs: Tensor, anchor_logprobs: Tensor, *, reverse: bool) -> Tensor:
    """Return KL(anchor || pi_theta), or KL(pi_theta || anchor) if ``reverse``, of distributions [K, V] as [K], nats."""
    first, second = (logprobs, anchor_logprobs) if reverse else (anchor_logprobs, logprobs)
    return torch.where(first > -torch.inf, first.exp() * (first - second), 0.0).sum(-1)
