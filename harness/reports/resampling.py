"""Aggregates over tasks and seeds: interquartile mean, probability of improvement, stratified bootstrap.

After Agarwal et al. 2021 (arXiv:2108.13264); all randomness comes from the Generator that is passed in.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from harness.reports.values import LEVEL, Floats, finite

BOOTSTRAP_SAMPLES = 1_000
IQM_TAIL = 0.25


def interquartile_mean(values: ArrayLike) -> float:
    """Return the mean of the middle half: floor(n / 4) values are cut at each end; NaN for none."""
    array = np.sort(finite(values))
    cut = int(IQM_TAIL * array.size)
    return float(np.mean(array[cut : array.size - cut])) if array.size else math.nan


def probability_of_improvement(treatment: Sequence[ArrayLike], baseline: Sequence[ArrayLike]) -> float:
    """Return P(treatment > baseline) + P(equal) / 2 for runs drawn at random, averaged over tasks.

    Args:
        treatment: for each task, [n] scores.
        baseline: for each task, [m] scores; tasks in the same order.
    """
    shares = []
    for first, second in zip(treatment, baseline, strict=True):
        gap = finite(first)[:, None] - finite(second)[None, :]
        shares.append(float(np.mean((gap > 0) + 0.5 * (gap == 0))))
    return float(np.mean(shares)) if shares else math.nan


def stratified_bootstrap(
    strata: Sequence[ArrayLike],
    statistic: Callable[[list[Floats]], float],
    rng: np.random.Generator,
    samples: int = BOOTSTRAP_SAMPLES,
    level: float = LEVEL,
) -> tuple[float, float]:
    """Return a percentile interval from resampling runs with replacement inside each stratum.

    Args:
        strata: arrays of scores, one a stratum (task, or task and arm).
        statistic: maps resampled strata (same order) to a number.
        rng: the only source of randomness.
        samples: number of resamples.
        level: two-sided coverage.

    Returns:
        (low, high); NaN when there is no stratum or one has fewer than two runs.
    """
    arrays = [finite(values) for values in strata]
    if not arrays or min(array.size for array in arrays) < 2:  # noqa: PLR2004
        return math.nan, math.nan
    draws = [array[rng.integers(0, array.size, size=(samples, array.size))] for array in arrays]
    values = [statistic([draw[row] for draw in draws]) for row in range(samples)]
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
