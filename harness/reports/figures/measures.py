"""Small statistics that figures alone need: thresholds, profiles, collapse. Plain arrays in, numbers out."""

import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from harness.reports.values import Floats

__all__ = ["DIVERGENCE", "first_reached", "largest_fall", "median_with_misses", "performance_profile"]

DIVERGENCE = re.compile(r"(loss|gradient norm of the \w+) is (nan|-?inf)\b")
"""The cause of a run that the engine ended because a loss or gradient was not finite."""


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


def performance_profile(strata: Sequence[Floats], thresholds: ArrayLike) -> Floats:
    """Return the share of runs whose score is above each threshold, averaged over tasks (Agarwal et al., equation 2).

    Args:
        strata: for each task, [..., n] scores, one task or more.
        thresholds: [t] scores.

    Returns:
        [..., t] shares, which do not increase with the threshold.
    """
    limits = np.asarray(thresholds, np.float64)
    return np.mean([np.mean(runs[..., :, None] > limits, axis=-2) for runs in strata], axis=0)
