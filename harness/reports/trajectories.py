"""A run's scores along its budget: where it began and ended, the areas under its curve, when it reached a score."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from harness.reports.statistics import area_under_curve
from harness.reports.values import Floats

STARTED, ENDED = 0.0, 1.0
"""Fractions of the budget axis: the warm start and the last state inside the budget."""


Line = Mapping[str, Floats]
"""Columns of one cell's evaluations of a split, by name."""
_COLUMNS = ("fraction", "score", "spent_flops", "generated_tokens", "updates")


def lines(evals: pd.DataFrame, split: str = "validation") -> dict[str, Line]:
    """Return every cell's scores of a split, ordered by the fraction of the budget axis; no entry without a score.

    Returns:
        For each cell its ``fraction``, ``score``, ``spent_flops``, ``generated_tokens`` and ``updates``, [p] each, NaN
        for an amount that is not recorded.
    """
    kept = evals[(evals["split"] == split) & evals["score"].notna()]
    kept = kept.sort_values("fraction", kind="stable").reset_index(drop=True)
    columns = {name: kept[name].to_numpy("float64") for name in _COLUMNS}
    places = kept.groupby("cell", sort=False).indices
    return {str(cell): {name: values[rows] for name, values in columns.items()} for cell, rows in places.items()}


def endings(evals: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return what a comparison reads from each cell's evaluations.

    Returns:
        For each cell: ``start`` and ``final``, the test scores at both ends of the budget; ``last``, the latest
        finite score (of the test split where both have one), at ``last_fraction``; ``auc``, the mean height of the
        validation curve, and ``log_auc``, that over the logarithm of the budget from the first evaluation after the
        start; ``carried_auc`` and ``carried_log_auc``, the same with the curve's last score carried to the end. NaN
        where there is none: a curve that is not whole has no area.
    """
    points: dict[str, list[tuple[float, str, float]]] = {}
    columns = zip(evals["cell"], evals["fraction"], evals["split"], evals["score"], strict=True)
    for cell, fraction, split, score in columns:
        if not math.isnan(score):
            points.setdefault(str(cell), []).append((float(fraction), str(split), float(score)))
    return {cell: _ending(sorted(found)) for cell, found in points.items()}


def first_reached(amounts: ArrayLike, scores: ArrayLike, threshold: float) -> float:
    """Return the amount at the first evaluation whose score is the threshold or more; infinite for a miss.

    Args:
        amounts: [n] float, not decreasing.
        scores: [n] float.
        threshold: a score.

    Example:
        >>> first_reached([0, 10, 20], [0.2, 0.5, 0.4], 0.45)
        10.0
    """
    hits = np.flatnonzero(np.asarray(scores, np.float64) >= threshold)
    return float(np.asarray(amounts, np.float64)[hits[0]]) if hits.size else math.inf


def median_with_misses(values: ArrayLike) -> float:
    """Return the median of amounts of which some may be infinite; infinite where half or more are, NaN for none."""
    ordered = np.sort(np.asarray(values, np.float64))
    if not ordered.size:
        return math.nan
    low, high = ordered[(ordered.size - 1) // 2], ordered[ordered.size // 2]
    return float(high if math.isinf(high) else (low + high) / 2)


def largest_fall(values: ArrayLike, window: int) -> float:
    """Return by how much the moving mean of ``window`` values falls at most below the highest one before it.

    Args:
        values: [n] float; NaN is left out. With fewer than ``window`` values they are one mean, which does not fall.
        window: values a mean.

    Returns:
        0 or more, in the unit of the values; NaN for none.
    """
    array = np.asarray(values, np.float64)
    array = array[~np.isnan(array)]
    if not array.size:
        return math.nan
    means = np.convolve(array, np.full(min(window, array.size), 1 / min(window, array.size)), mode="valid")
    return float(np.max(np.maximum.accumulate(means) - means))


def _ending(found: Sequence[tuple[float, str, float]]) -> dict[str, float]:
    test = {fraction: score for fraction, split, score in found if split == "test"}
    x, y = np.array([(f, score) for f, split, score in found if split == "validation"]).reshape(-1, 2).T
    fraction = found[-1][0]
    carried = (x, y) if x.size and x[-1] == ENDED else (np.append(x, ENDED), np.append(y, y[-1:]))
    return {
        **{"start": test.get(STARTED, math.nan), "final": test.get(ENDED, math.nan)},
        **{"last": test.get(fraction, found[-1][2]), "last_fraction": fraction},
        **_areas(x, y, ""),
        **_areas(*carried, "carried_"),
    }


def _areas(x: Floats, y: Floats, name: str) -> dict[str, float]:
    whole = x.size > 1 and x.size == y.size and x[0] == STARTED and x[-1] == ENDED
    after = whole and x.size > 2  # noqa: PLR2004
    return {
        f"{name}auc": area_under_curve(x, y) if whole else math.nan,
        f"{name}log_auc": area_under_curve(np.log(x[1:]), y[1:]) if after else math.nan,
    }
