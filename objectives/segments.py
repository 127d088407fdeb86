"""Cut responses into segments: ids [N, T] int64, non-decreasing along a row, 0 outside the mask.

Ids depend on the response and on pi_old only, never on the current policy: an objective whose segments moved with
theta would be discontinuous in theta.
"""

import torch
from torch import Tensor

from objectives.ops import masked

__all__ = ["fixed_count", "fixed_length", "segment_sums"]


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
