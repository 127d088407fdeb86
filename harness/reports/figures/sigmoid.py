"""Fit a score against the logarithm of compute with a sigmoid, or say why not (Khatri et al. 2025, arXiv:2510.13786).

    score(C) = start + (A - start) / (1 + (C_mid / C)^B)

A is the asymptote, B the steepness and C_mid the compute at which half of the gain is there.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from harness.reports.values import LEVEL, Floats

__all__ = ["Fit", "Refused", "curve", "fit_runs", "fit_sigmoid"]

KNEE = 0.1
"""The lower knee: where this share of the gain is reached."""
POINTS = 5
"""Evaluations beyond the lower knee that a fit needs."""
STEEPNESS = (0.3, 10.0)
AT_BOUND = 0.01
"""Nearer than this share of the lower bound the steepness is at a bound."""
EXPLAINED = 0.5
RESAMPLES = 100


class Refused(ValueError):  # noqa: N818 - reads as an answer
    """The points do not determine a sigmoid; the message says why."""


@dataclass(frozen=True)
class Fit:
    """A fit of one arm, with the 95% percentile interval of its asymptote over resampled seeds.

    Attributes:
        start: score without training, given.
        asymptote: A.
        steepness: B.
        middle: C_mid, in the unit of the compute.
        low: lower end of A, NaN with fewer than two seeds.
        high: upper end of A, likewise.
        refused: share of the resamples that could not be fitted.
    """

    start: float
    asymptote: float
    steepness: float
    middle: float
    low: float = math.nan
    high: float = math.nan
    refused: float = 0.0


def curve(fit: Fit, compute: ArrayLike) -> Floats:
    """Return the fitted score at each compute above 0."""
    return _sigmoid(np.log(np.asarray(compute, np.float64)), fit.start, fit.asymptote, fit.steepness, fit.middle)


def fit_sigmoid(compute: ArrayLike, scores: ArrayLike, start: float) -> Fit:
    """Fit by least squares.

    Args:
        compute: [n] float, above 0, increasing.
        scores: [n] float in [0, 1].
        start: score at no compute.

    Raises:
        Refused: no score is above the start, fewer than ``POINTS`` points are beyond the lower knee, the asymptote or
            the steepness is at a bound, half of the gain lies outside the points, or the fit explains too little.
    """
    x, y = np.log(np.asarray(compute, np.float64)), np.asarray(scores, np.float64)
    if not y.size or float(np.max(y)) <= start:
        raise Refused("no evaluation is above the start")
    if y.size < POINTS:
        raise Refused(f"{y.size} evaluations after the start, {POINTS} are needed")
    half = x[np.argmax(y >= start + (float(np.max(y)) - start) / 2)]
    bounds = ((start, STEEPNESS[0], x[0] - 3), (1.0, STEEPNESS[1], x[-1] + 3))
    guess = (min(float(np.max(y)), 1 - 1e-6), 1.5, float(half))

    def errors(found: Floats) -> Floats:
        return _sigmoid(x, start, found[0], found[1], math.exp(found[2])) - y

    best = optimize.least_squares(errors, guess, bounds=bounds, x_scale=(0.1, 1.0, 1.0))
    asymptote, steepness, middle = (float(value) for value in best.x)
    gained = (_sigmoid(x, start, asymptote, steepness, math.exp(middle)) - start) / (asymptote - start)
    beyond = int(np.sum(gained > KNEE))
    if beyond < POINTS:
        raise Refused(f"{beyond} evaluations beyond the lower knee, {POINTS} are needed")
    if min(steepness - STEEPNESS[0], STEEPNESS[1] - steepness) < AT_BOUND * STEEPNESS[0]:
        raise Refused(f"the steepness is not determined (it is at {steepness:.2g})")
    if middle < x[0]:
        raise Refused("half of the gain was there before the first evaluation after the start")
    spread = float(np.sum((y - y.mean()) ** 2))
    if spread <= 0 or 1 - float(np.sum(best.fun**2)) / spread < EXPLAINED:
        raise Refused(f"it explains less than {EXPLAINED:.0%} of the variance of the scores")
    if asymptote > 1 - 1e-3:
        raise Refused("the asymptote is not determined (it is at 1)")
    if middle > x[-1]:
        raise Refused("half of the gain lies beyond the last evaluation")
    return Fit(start, asymptote, steepness, math.exp(middle))


def fit_runs(compute: Floats, scores: Floats, starts: Floats, rng: np.random.Generator) -> Fit:
    """Fit the mean over seeds, and the asymptote's interval by resampling seeds.

    Args:
        compute: [n] float, mean compute of each evaluation after the start.
        scores: [seeds, n] float.
        starts: [seeds] float.
        rng: the only source of randomness.

    Raises:
        Refused: as ``fit_sigmoid``.
    """
    fit = fit_sigmoid(compute, scores.mean(0), float(starts.mean()))
    if len(scores) < 2:  # noqa: PLR2004
        return fit
    found = []
    for rows in rng.integers(0, len(scores), size=(RESAMPLES, len(scores))):
        try:
            found.append(fit_sigmoid(compute, scores[rows].mean(0), float(starts[rows].mean())).asymptote)
        except Refused:
            continue
    ends = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if found else (math.nan, math.nan)
    values = (fit.start, fit.asymptote, fit.steepness, fit.middle)
    return Fit(*values, float(ends[0]), float(ends[1]), 1 - len(found) / RESAMPLES)


def _sigmoid(log_compute: Floats, start: float, asymptote: float, steepness: float, middle: float) -> Floats:
    return start + (asymptote - start) / (1 + np.exp(np.clip(steepness * (math.log(middle) - log_compute), -700, 700)))
