"""Cut responses into segments: ids [N, T] int64, non-decreasing along a row, 0 outside the mask.

Ids depend on the response and on pi_old only, never on the current policy: an objective whose segments moved with
theta would be discontinuous in theta.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from objectives.base import Rollout
from objectives.ops import masked

__all__ = [
    "READS",
    "SETTINGS",
    "Rule",
    "count_segments",
    "cut",
    "cut_at",
    "fixed_count",
    "fixed_length",
    "previous",
    "segment_sums",
]

Rule = Literal["fixed_k", "fixed_length", "delimiter", "entropy", "random", "oracle"]

READS: dict[Rule, str] = {
    "delimiter": "step_ends",
    "entropy": "old_entropy",
    "random": "uniforms",
    "oracle": "task_steps",
}
"""The optional field of ``Rollout`` that a rule reads."""

_OF_RESPONSE = frozenset({"min_segment_tokens", "max_segment_tokens"})
SETTINGS: dict[Rule, frozenset[str]] = {
    "fixed_k": frozenset({"num_segments"}),
    "fixed_length": frozenset({"segment_tokens"}),
    "delimiter": _OF_RESPONSE,
    "entropy": _OF_RESPONSE | {"entropy_threshold"},
    "random": _OF_RESPONSE | {"segment_tokens"},
    "oracle": _OF_RESPONSE,
}
"""The settings of an objective that a rule reads."""


def cut(
    rollout: Rollout,
    rule: Rule,
    *,
    count: int,
    tokens: int,
    threshold: float,
    min_tokens: int = 1,
    max_tokens: int | None = None,
) -> Tensor:
    """Cut the scored tokens of every response by a rule.

    Args:
        rollout: the responses.
        rule: "fixed_k", ``count`` equal parts (not causal); "fixed_length", after every ``tokens`` tokens;
            "delimiter", after each token of ``step_ends``; "entropy", before each token at which pi_old's entropy
            exceeds ``threshold``; "random", before each token with probability 1 / ``tokens``; "oracle", where
            ``task_steps`` changes.
        count: parts of "fixed_k".
        tokens: length of "fixed_length", mean length of "random".
        threshold: nats, of "entropy".
        min_tokens: of the rules that look at the response: no cut before a segment has so many.
        max_tokens: of the same: a cut after so many in any case; None never.

    Returns:
        [N, T] int64 ids, non-decreasing along a row, 0 outside the mask.

    Raises:
        ValueError: the rollout lacks what the rule reads.
    """
    mask = rollout.scored
    if rule == "fixed_k":
        return fixed_count(mask, count)
    if rule == "fixed_length":
        return fixed_length(mask, tokens)
    read: Tensor | None = getattr(rollout, READS[rule])
    if read is None:
        known = ", ".join(get_args(Rule)[:2])
        raise ValueError(
            f"segment_rule {rule!r} reads Rollout.{READS[rule]}, which is None; {known} need nothing of the kind"
        )
    if rule == "delimiter":
        begins = previous(read, mask)
    elif rule == "entropy":
        begins = masked(read, mask) > threshold
    elif rule == "random":
        begins = masked(read, mask) < 1 / tokens
    else:
        begins = read != previous(read, mask)
    return cut_at(begins, mask, min_tokens=min_tokens, max_tokens=max_tokens)


def _positions(mask: Tensor) -> Tensor:
    return (mask.cumsum(1) - 1).clamp(min=0)


def fixed_count(mask: Tensor, count: int) -> Tensor:
    """Cut every row into ``count`` parts of equal length (to one token); a row shorter than that gets one a token.

    Not a stopping time: where a part ends depends on the final length, so a part's ratio alone need not average to 1
    under pi_old (their product still does).
    """
    lengths = mask.sum(1, keepdim=True).clamp(min=1)
    parts = lengths.clamp(max=count)
    return torch.where(mask, _positions(mask) * parts // lengths, 0)


def fixed_length(mask: Tensor, length: int) -> Tensor:
    """Cut every row after each ``length`` tokens; the last segment may be shorter."""
    return torch.where(mask, _positions(mask) // length, 0)


def previous(x: Tensor, mask: Tensor) -> Tensor:
    """Return what ``x`` [N, T] holds at the masked token before each one; 0 (False) before the first of a row."""
    places = torch.where(mask, torch.arange(mask.shape[1], device=mask.device), -1)
    last = torch.nn.functional.pad(places.cummax(1).values[:, :-1], (1, 0), value=-1)
    return torch.where(last >= 0, x.gather(1, last.clamp(min=0)), torch.zeros_like(x))


def cut_at(begins: Tensor, mask: Tensor, *, min_tokens: int = 1, max_tokens: int | None = None) -> Tensor:
    """Start a segment at every masked token of ``begins``, unless the one before is still too short, or is too long.

    Causal: what comes later never moves a cut; so the last segment of a row may be shorter than ``min_tokens``.

    Args:
        begins: [N, T] bool.
        mask: [N, T] bool.
        min_tokens: of every segment but the last.
        max_tokens: None for no bound.
    """
    ids = torch.zeros_like(mask, dtype=torch.int64)
    current, length = ids.new_zeros(len(mask)), ids.new_zeros(len(mask))
    for t in range(mask.shape[1]):
        here = mask[:, t]
        full = length >= max_tokens if max_tokens is not None else torch.zeros_like(here)
        starts = here & (length > 0) & ((begins[:, t] & (length >= min_tokens)) | full)
        current = current + starts
        length = torch.where(starts, 0, length) + here
        ids[:, t] = torch.where(here, current, 0)
    return ids


def count_segments(tokens: Tensor) -> Tensor:
    """Return the number of segments of each row [B, 1], at least 1, from the counts of ``segment_sums``."""
    return (tokens > 0).to(tokens.dtype).sum(1, keepdim=True).clamp(min=1)


def segment_sums(x: Tensor, segment: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return each segment's sum of ``x`` and its number of tokens.

    Args:
        x: [B, T] float; may be NaN outside ``mask``.
        segment: [B, T] int64 in [0, T).
        mask: [B, T] bool.

    Returns:
        sums [B, T] float and counts [B, T] (dtype of ``x``), column k belonging to segment k; 0 where a row has no
        segment k. Use ``sums.gather(1, segment)`` to bring them back to the tokens.
    """
    ids = torch.where(mask, segment, 0)
    zeros = torch.zeros_like(x)
    sums = zeros.scatter_add(1, ids, masked(x, mask))
    counts = zeros.scatter_add(1, ids, mask.to(x.dtype))
    return sums, counts
