"""Quasi-random points of a search space, a pure function of the space and a key: no trial depends on a score."""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from harness.config.sweep import Range

__all__ = ["EDGE", "at_edge", "points"]

EDGE = 0.1
"""Outer share of an interval, at either end, in which an optimum says that the search was too narrow."""
_FEWEST_WITH_ENDS = 3


def points(space: Mapping[str, Range], num: int, *key: str | int) -> list[dict[str, Any]]:
    """Return ``num`` points, {setting: value}, of a scrambled Sobol sequence (Owen 1998; scipy.stats.qmc).

    Args:
        space: setting -> where it is searched; one without settings gives empty points.
        num: points; the first ones of a longer list are the same. Settings of ``also`` stand beside those they follow.
        key: names the draw: other keys give other points.
    """
    if not space:
        return [{} for _ in range(num)]
    from scipy.stats import qmc  # takes a second: only where something is searched

    seed = int.from_bytes(hashlib.blake2b(json.dumps(key).encode(), digest_size=8).digest())
    sampler = qmc.Sobol(len(space), scramble=True, rng=seed)
    drawn = sampler.random_base2(max(0, math.ceil(math.log2(num))))[:num]
    names = sorted(space)
    found: list[dict[str, Any]] = []
    for row in drawn:
        values = {name: _value(space[name], float(u)) for name, u in zip(names, row, strict=True)}
        found.append({key: values[name] for name in names for key in (name, *space[name].also)})
    return found


def _value(searched: Range, u: float) -> Any:
    """Return the value at ``u`` in [0, 1) of a range."""
    if searched.values is not None:
        return searched.values[int(u * len(searched.values))]
    low, high = _ends(searched)
    if searched.integer:  # every whole number has an equal share of the scale
        first, last = math.ceil(low), math.floor(high)
        edges = (first - 0.5, last + 0.5) if searched.scale == "linear" else (first, last + 1)
        return min(last, max(first, _between(*edges, searched.scale, u, rounded=True)))
    return float(f"{_between(low, high, searched.scale, u):.3g}")


def _between(low: float, high: float, scale: str, u: float, rounded: bool = False) -> Any:
    if scale == "log":
        value = math.exp(math.log(low) + u * (math.log(high) - math.log(low)))
        return math.floor(value) if rounded else value
    value = low + u * (high - low)
    return round(value) if rounded else value


def _ends(searched: Range) -> tuple[float, float]:
    assert searched.low is not None
    assert searched.high is not None
    return searched.low, searched.high


def at_edge(searched: Range, value: Any) -> str:
    """Return "low" or "high" if ``value`` lies in the outer ``EDGE`` of its range, else "".

    Of listed values, three numbers or more alone have ends.
    """
    if searched.values is not None:
        numbers = [v for v in searched.values if isinstance(v, int | float) and not isinstance(v, bool)]
        if len(numbers) < max(len(searched.values), _FEWEST_WITH_ENDS):
            return ""
        return "low" if value == min(numbers) else "high" if value == max(numbers) else ""
    low, high = _ends(searched)
    if searched.scale == "log":
        place = (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
    else:
        place = (value - low) / (high - low)
    return "low" if place <= EDGE else "high" if place >= 1 - EDGE else ""
