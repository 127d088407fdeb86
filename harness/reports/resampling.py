"""Resampling: interquartile mean, probability of improvement, performance profiles, and intervals by bootstrap.

After Agarwal et al. 2021 (arXiv:2108.13264) and, for the studentised interval, Efron and Tibshirani 1993 (An
Introduction to the Bootstrap, section 12.5). Statistics of strata take runs on the last axis and keep the axes before
it, so that all resamples are one call. All randomness comes from the Generator that is passed in.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from harness.reports.values import LEVEL, TIE, Floats, finite

BOOTSTRAP_SAMPLES = 1_000
IQM_TAIL = 0.25
STUDENTISED_FROM = 4
"""Runs. Of three, one resample in nine is one run three times over, which has no spread to divide by."""
ENUMERATED_UP_TO = 7
"""Runs whose resamples are all enumerated (1,716 of seven), each with its chance; of more, they are drawn."""
STUDENTISED_SAMPLES = 5_000


def interquartile_mean(values: ArrayLike) -> float:
    """Return the mean of the middle half: floor(n / 4) values are cut at each end; NaN for none."""
    array = finite(values)
    return float(middle_mean(array)) if array.size else math.nan


def middle_mean(values: Floats) -> Floats:
    """Return the interquartile mean over the last axis, [..., n] -> [...], n at least 1."""
    ordered, num = np.sort(values, axis=-1), values.shape[-1]
    cut = int(IQM_TAIL * num)
    return np.mean(ordered[..., cut : num - cut], axis=-1)


def probability_of_improvement(treatment: Sequence[ArrayLike], baseline: Sequence[ArrayLike]) -> float:
    """Return P(treatment > baseline) + P(equal) / 2 for runs drawn at random, averaged over tasks.

    Args:
        treatment: for each task, [n] scores.
        baseline: for each task, [m] scores; tasks in the same order.
    """
    first, second = [finite(values) for values in treatment], [finite(values) for values in baseline]
    return float(improvement(first, second)) if first else math.nan


def improvement(treatment: Sequence[Floats], baseline: Sequence[Floats]) -> Floats:
    """Return the probability of improvement over the last axis, for each task [..., n] against [..., m]."""
    shares = []
    for first, second in zip(treatment, baseline, strict=True):
        gap = first[..., :, None] - second[..., None, :]
        shares.append(np.mean((gap > 0) + 0.5 * (gap == 0), axis=(-2, -1)))
    return np.mean(shares, axis=0)


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


def stratified_bootstrap(
    strata: Sequence[ArrayLike],
    statistic: Callable[[list[Floats]], Floats],
    rng: np.random.Generator,
    samples: int = BOOTSTRAP_SAMPLES,
    level: float = LEVEL,
) -> tuple[Floats, Floats]:
    """Return a percentile interval from resampling runs with replacement inside each stratum.

    With few runs it is too narrow; how much is measured in ``harness.reports.coverage``.

    Args:
        strata: arrays of scores, one a stratum (task, or task and arm).
        statistic: maps resampled strata (same order, [samples, n] each) to one number a resample, [samples], or to
            several, [samples, ...].
        rng: the only source of randomness.
        samples: number of resamples.
        level: two-sided coverage that is aimed at.

    Returns:
        (low, high), arrays of the shape of one value of the statistic; NaN when there is no stratum or one has fewer
        than two runs.
    """
    arrays = [finite(values) for values in strata]
    if not arrays or min(array.size for array in arrays) < 2:  # noqa: PLR2004
        return np.array(math.nan), np.array(math.nan)
    draws = [array[rng.integers(0, array.size, size=(samples, array.size))] for array in arrays]
    low, high = np.quantile(statistic(draws), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def studentised_interval(values: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Return the bootstrap-t interval of the mean, equal-tailed.

    Beside a t interval it follows the skew of the values: of 10,000 exponential samples of 5 and of 10 it held the mean
    of 93% and 94%, the t interval of 88% and 90% (of normal samples 94% and 95%, and 95%). All resamples of up to
    ``ENUMERATED_UP_TO`` runs are enumerated; of more, ``STUDENTISED_SAMPLES`` are drawn, by a Generator of a fixed
    seed: the interval is a function of the values.

    Args:
        values: [n] float, finite.
        level: two-sided coverage.

    Returns:
        (low, high); NaN for fewer than ``STUDENTISED_FROM`` values, for equal ones, and where so many are equal that
        resamples without a spread reach into a tail.

    Example:
        >>> studentised_interval([0.1, 0.2, 0.3, 0.4, 0.5])
        (0.0732..., 0.5267...)
    """
    array = finite(values)
    if array.size < STUDENTISED_FROM:
        return math.nan, math.nan
    low, high = studentised_intervals(array[None, :], level)
    return float(low[0]), float(high[0])


def studentised_intervals(samples: Floats, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Return ``studentised_interval`` of every row of [s, n] samples, as two arrays [s]; n at least 4."""
    num = samples.shape[1]
    counts, chances = _resamples(num)
    mean, sd = samples.mean(1, keepdims=True), samples.std(1, ddof=1, keepdims=True)
    spread = sd > TIE * np.abs(samples).max(1, keepdims=True)
    scaled = np.where(spread, (samples - mean) / np.where(spread, sd, 1.0), 0.0)
    shift = scaled @ counts.T / num
    variance = (scaled**2 @ counts.T / num - shift**2) / (num - 1)
    alike = variance < TIE
    t = shift / np.sqrt(np.where(alike, 1.0, variance))
    t[alike & (shift != 0)] = np.copysign(math.inf, shift[alike & (shift != 0)])
    order = np.argsort(t, axis=1)
    t, reached = np.take_along_axis(t, order, axis=1), np.cumsum(chances[order], axis=1)
    ends = []
    for tail in ((1 + level) / 2, (1 - level) / 2):
        place = np.sum(reached < tail - TIE, axis=1, keepdims=True)
        ends.append(np.take_along_axis(t, np.minimum(place, len(chances) - 1), axis=1)[:, 0])
    low, high = (mean[:, 0] - end * sd[:, 0] / math.sqrt(num) for end in ends)
    known = spread[:, 0] & np.isfinite(low) & np.isfinite(high)
    return np.where(known, low, math.nan), np.where(known, high, math.nan)


@cache
def _resamples(num: int) -> tuple[Floats, Floats]:
    """Return how often each resample holds each of ``num`` runs, [r, num], and the resamples' chances [r]."""
    if num > ENUMERATED_UP_TO:
        drawn = np.random.default_rng(0).integers(0, num, size=(STUDENTISED_SAMPLES, num))
        counts = np.sum(drawn[:, :, None] == np.arange(num), axis=1).astype(np.float64)
        return counts, np.full(len(counts), 1 / len(counts))
    bars = np.array(list(combinations(range(2 * num - 1), num - 1)))  # stars and bars
    walls = np.hstack([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), 2 * num - 1)])
    counts = np.diff(walls, axis=1) - 1
    ways = np.array([math.factorial(num) / math.prod(map(math.factorial, row)) for row in counts.tolist()])
    return counts.astype(np.float64), ways / num**num
