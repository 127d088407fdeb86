"""Pool what a run counts anew in every iteration: one histogram or grid a name, over all of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["distributions"]

Row = Mapping[str, Any]
_NAMES = ("log_ratio_variance", "ratio_by_position", "clip_by_length", "sampler_probability")


def distributions(metrics: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield rows of distributions.csv without their cell, bins from low to high, those with a count only.

    Args:
        metrics: lines of metrics.jsonl; those from before a name was logged have none of it.
    """
    for name in _NAMES:
        sums: dict[tuple[float | None, ...], int] = {}
        for row in metrics:
            for place, count in _counts(row.get(f"{name}_hist") or {}):
                sums[place] = sums.get(place, 0) + count
        for (x_low, x_high, y_low, y_high), count in sorted(sums.items(), key=lambda item: _order(item[0])):
            yield {
                **{"name": name, "x_low": x_low, "x_high": x_high, "y_low": y_low, "y_high": y_high},
                "count": count,
            }


def _counts(found: Row) -> Iterator[tuple[tuple[float | None, ...], int]]:
    """Yield (x_low, x_high, y_low, y_high) and the count of each bin that has one; y is None of a plain histogram."""
    if "edges" in found:
        edges = found["edges"]
        for low, high, count in zip(edges[:-1], edges[1:], found["counts"], strict=True):
            if count:
                yield (low, high, None, None), count
    elif "x_edges" in found:
        x, y = found["x_edges"], found["y_edges"]
        for i, j, count in found["counts"]:
            yield (x[i], x[i + 1], y[j], y[j + 1]), count


def _order(place: tuple[float | None, ...]) -> tuple[float, ...]:
    return tuple(0.0 if end is None else end for end in place)
