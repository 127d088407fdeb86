"""Small-sample statistics of paired runs: t intervals, sign flips, detectable differences, Holm, areas.

Every function takes plain arrays, drops nothing silently and returns NaN where a quantity does not exist (an
interval of one run), never 0.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from harness.reports.values import LEVEL, TIE, Floats, finite

POWER = 0.8
EXACT_LIMIT = 14
"""Sign flips are enumerated up to this many non-zero differences (2**14 = 16,384)."""
FLIP_SAMPLES = 20_000


@dataclass(frozen=True)
class Interval:
    """A mean with its two-sided interval; ``half_width`` is NaN when n < 2, ``mean`` when n = 0."""

    mean: float
    half_width: float
    num: int

    @property
    def df(self) -> int:
        """Degrees of freedom, n - 1."""
        return self.num - 1

    @property
    def low(self) -> float:
        """Lower end, NaN when n < 2."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end, NaN when n < 2."""
        return self.mean + self.half_width


@dataclass(frozen=True)
class PairedDifference:
    """Treatment minus baseline over the pairs where both exist."""

    interval: Interval
    differences: Floats
    num_dropped: int
    """Pairs left out because one side is missing."""

    @property
    def sd(self) -> float:
        """Sample standard deviation of the differences; NaN when n < 2."""
        return float(np.std(self.differences, ddof=1)) if self.interval.num > 1 else math.nan

    @property
    def p(self) -> float:
        """Two-sided p of the paired t test; NaN when n < 2 or all differences are equal."""
        if not self.sd > 0:
            return math.nan
        t = self.interval.mean / self.sd * math.sqrt(self.interval.num)
        return 2.0 * float(special.stdtr(self.interval.df, -abs(t)))


@dataclass(frozen=True)
class SignFlip:
    """Two-sided sign-flip permutation test of a zero mean difference."""

    p: float
    minimum: float
    """The smallest p these data could have given: 2 / 2**n with n non-zero differences (and 1 / draws if sampled)."""
    exact: bool


def mean_interval(values: ArrayLike, level: float = LEVEL) -> Interval:
    """Return the mean with a t interval.

    Args:
        values: [n] float, all finite; n may be 0.
        level: two-sided coverage.

    Raises:
        ValueError: a value is not finite; drop missing runs first, and count them.
    """
    array = finite(values)
    num = array.size
    if num == 0:
        return Interval(math.nan, math.nan, 0)
    if num == 1:
        return Interval(float(array[0]), math.nan, 1)
    half = float(special.stdtrit(num - 1, (1 + level) / 2) * np.std(array, ddof=1) / math.sqrt(num))
    return Interval(float(np.mean(array)), half, num)


def paired_difference(treatment: ArrayLike, baseline: ArrayLike, level: float = LEVEL) -> PairedDifference:
    """Compare two arms pair by pair.

    Args:
        treatment: [n] float, NaN where the run did not finish; entry i has the task, policy and seed of
            ``baseline[i]``.
        baseline: [n] float, likewise.
        level: coverage of the t interval of the mean difference, n - 1 degrees of freedom.

    Example:
        >>> paired_difference([0.5, 0.7, nan], [0.4, 0.4, 0.4]).interval.mean
        0.2
    """
    first, second = np.asarray(treatment, np.float64), np.asarray(baseline, np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"pairs need two 1-d arrays of one length, got shapes {first.shape} and {second.shape}")
    kept = ~(np.isnan(first) | np.isnan(second))
    differences = (first - second)[kept]
    return PairedDifference(mean_interval(differences, level), differences, int(np.sum(~kept)))


def sign_flip(differences: ArrayLike, rng: np.random.Generator | None = None, samples: int = FLIP_SAMPLES) -> SignFlip:
    """Test that the mean difference is zero by flipping signs: p = share of flips with |mean| >= the observed.

    Args:
        differences: [n] float, finite. Zeros are unchanged by a flip, so only the non-zero ones count towards n.
        rng: draws the flips when more than ``EXACT_LIMIT`` differences are non-zero; required then.
        samples: number of draws; p = (1 + hits) / (1 + samples).

    Returns:
        p, its attainable minimum and whether all flips were enumerated; NaN for no differences at all.

    Raises:
        ValueError: sampling is needed and ``rng`` is None.
    """
    array = finite(differences)
    if array.size == 0:
        return SignFlip(math.nan, math.nan, True)
    array = array[array != 0]
    num = array.size
    minimum = min(1.0, 2.0 / 2.0**num)
    threshold = abs(float(np.sum(array))) - TIE * float(np.sum(np.abs(array)))
    if num <= EXACT_LIMIT:
        bits = (np.arange(2**num)[:, None] >> np.arange(num)) & 1
        hits = np.abs((1.0 - 2.0 * bits) @ array) >= threshold
        return SignFlip(float(np.mean(hits)), minimum, True)
    if rng is None:
        raise ValueError(f"{num} differences: more than {EXACT_LIMIT} need a Generator to sample the flips")
    signs = rng.integers(0, 2, size=(samples, num)) * 2.0 - 1.0
    hits = int(np.sum(np.abs(signs @ array) >= threshold))
    return SignFlip((1 + hits) / (1 + samples), max(minimum, 1 / (1 + samples)), False)


def paired_power(difference: float, sd: float, num: int, alpha: float = 1 - LEVEL) -> float:
    """Return the power of a two-sided paired t test of ``num`` pairs whose differences have mean and sd as given."""
    df = num - 1
    critical = special.stdtrit(df, 1 - alpha / 2)
    shift = difference * math.sqrt(num) / sd
    wrong_side = np.nan_to_num(stats.nct.cdf(-critical, df, shift))  # scipy gives NaN where this is below 1e-30
    return float(stats.nct.sf(critical, df, shift) + wrong_side)


def minimum_detectable_difference(sd: float, num: int, power: float = POWER, alpha: float = 1 - LEVEL) -> float:
    """Return the smallest true mean difference that a paired t test finds with the given power.

    Args:
        sd: sample standard deviation of the paired differences, in the score's unit.
        num: number of pairs.
        power: probability of p < ``alpha`` at that difference.
        alpha: two-sided level.

    Returns:
        A difference in the unit of ``sd``; NaN when num < 2 or sd is NaN; 0 when sd is 0.
    """
    if num < 2 or math.isnan(sd):  # noqa: PLR2004
        return math.nan
    return _detectable_effect(num, power, alpha) * sd


@cache
def _detectable_effect(num: int, power: float, alpha: float) -> float:
    """Return the detectable difference in units of the differences' standard deviation."""
    high = 1.0
    while paired_power(high, 1.0, num, alpha) < power:
        high *= 2
    root = optimize.root_scalar(
        lambda size: paired_power(size, 1.0, num, alpha) - power, bracket=(1e-9, high), xtol=1e-10
    )
    return float(root.root)


def holm(p_values: ArrayLike) -> Floats:
    """Adjust p values for testing several arms at once (Holm 1979, step-down Bonferroni).

    Args:
        p_values: [m] float; NaN marks a test that was not made: it stays NaN and does not count.
    """
    p = np.asarray(p_values, np.float64)
    adjusted = np.full(p.shape, math.nan)
    made = np.flatnonzero(~np.isnan(p))
    order = made[np.argsort(p[made], kind="stable")]
    scaled = p[order] * np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return adjusted


def area_under_curve(x: ArrayLike, y: ArrayLike) -> float:
    """Return the trapezoid area under y(x) divided by the span of x: the curve's mean height, in the unit of y.

    Raises:
        ValueError: fewer than two points, a value that is not finite, or x not increasing.
    """
    axis, height = finite(x), finite(y)
    if axis.size < 2 or axis.shape != height.shape or np.any(np.diff(axis) <= 0):  # noqa: PLR2004
        raise ValueError(f"an area needs two or more points with increasing x, got x={axis.tolist()}")
    return float(np.trapezoid(height, axis) / (axis[-1] - axis[0]))


def carry_forward(x: ArrayLike, y: ArrayLike, grid: ArrayLike) -> Floats:
    """Read a step curve on another grid: the last value at or before each point; NaN before the first.

    Raises:
        ValueError: x decreases or lengths differ.
    """
    axis, values = finite(x), np.asarray(y, np.float64)
    if axis.shape != values.shape or np.any(np.diff(axis) < 0):
        raise ValueError(f"carrying forward needs one y per x and x not decreasing, got x={axis.tolist()}")
    index = np.searchsorted(axis, np.asarray(grid, np.float64), side="right") - 1
    return np.where(index >= 0, values[np.maximum(index, 0)], math.nan) if axis.size else np.full(index.shape, math.nan)
