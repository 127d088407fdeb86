"""Sigmoid fits of a score to compute, and when there is none.

score(C) = R0 + (A - R0) / (1 + (C_mid / C)^B), after Khatri et al. 2025 (ScaleRL, arXiv:2510.13786): R0 is the score
before training, A the asymptote, B the steepness and C_mid the compute at half of the rise. Least squares by
Levenberg and Marquardt's method from the best point of a grid, for all resamples of the seeds at once.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from harness.reports.values import LEVEL, Floats

MIN_POINTS = 5
"""Beyond the lower knee."""
KNEE = math.log(2 + math.sqrt(3))
"""B ln(C_mid / C) where the curve in ln C bends up most: 21% of the rise."""
STEEPNESS = (0.2, 20.0)
CEILING = 1.0
SAMPLES = 300
MIN_SEEDS = 3
MAX_LOST = 0.05
"""Share of resamples without a fit above which there is no interval."""


@dataclass(frozen=True)
class SigmoidFit:
    """Parameters as (value, low, high), low and high a 95% percentile interval over resampled seeds or NaN."""

    asymptote: tuple[float, float, float]
    steepness: tuple[float, float, float]
    midpoint: tuple[float, float, float]
    """Compute, in the unit of the input."""
    num_points: int
    """Evaluations beyond the lower knee."""
    error: float
    """Root mean square of the residuals of the mean curve."""
    refusal: str
    """Why there is no fit, or ""; the parameters are NaN then."""


def fit_sigmoid(compute: ArrayLike, scores: ArrayLike, rng: np.random.Generator, samples: int = SAMPLES) -> SigmoidFit:
    """Fit the mean curve of an arm's seeds.

    Args:
        compute: [p] float, increasing, the first 0 (the start, whose mean score is R0).
        scores: [s, p] float, one row a seed.
        rng: draws the resamples of seeds.
        samples: number of resamples.

    Returns:
        The fit. It is refused (``refusal`` says why) where the mean curve does not end above its start; has fewer
        than ``MIN_POINTS`` evaluations after the start, or beyond the fit's lower knee; has its midpoint outside the
        evaluated compute, so that the asymptote is guessed; or has its best steepness at an end of ``STEEPNESS``.
        There is no interval with fewer than ``MIN_SEEDS`` seeds, nor where the resamples often have no fit.
    """
    x, table = np.asarray(compute, np.float64), np.asarray(scores, np.float64)
    mean = table.mean(axis=0)
    if x.size - 1 < MIN_POINTS:
        return _refused(f"{x.size - 1} evaluations after the start, {MIN_POINTS} needed beyond the lower knee", 0)
    if mean[-1] <= mean[0]:
        return _refused("the score does not rise", 0)
    a, b, log_mid, squares = (float(value[0]) for value in _search(x[1:], mean[None, :]))
    beyond = int(np.sum(np.log(x[1:]) > log_mid - KNEE / b))
    reason = _reason(x[1:], a, b, log_mid, mean[0], beyond)
    if reason:
        return _refused(reason, beyond)
    drawn = rng.integers(0, len(table), size=(samples, len(table)))
    asymptotes, steep, middle, _ = _search(x[1:], table[drawn].mean(axis=1))
    usable = _inside(x[1:], steep, middle)
    fits = np.stack([asymptotes, steep, np.exp(middle)], axis=1)
    ends = np.full((2, 3), math.nan)
    if len(table) >= MIN_SEEDS and 1 - usable.mean() <= MAX_LOST:
        ends = np.quantile(fits[usable], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    values = (a, b, math.exp(log_mid))
    found = [(value, float(low), float(high)) for value, low, high in zip(values, *ends, strict=True)]
    return SigmoidFit(found[0], found[1], found[2], beyond, math.sqrt(squares / (x.size - 1)), "")


def sigmoid(compute: ArrayLike, start: float, asymptote: float, steepness: float, midpoint: float) -> Floats:
    """Return the score at each compute; ``start`` where it is 0."""
    x = np.asarray(compute, np.float64)
    logs = np.log(np.where(x > 0, x, 1.0)) - math.log(midpoint)
    return np.where(x > 0, start + (asymptote - start) * _rise(logs * steepness), start)


def _reason(x: Floats, a: float, b: float, log_mid: float, start: float, beyond: int) -> str:
    if a <= start:
        return "the score does not rise"
    if not STEEPNESS[0] * _NEAR < b < STEEPNESS[1] / _NEAR:
        return f"no steepness between {STEEPNESS[0]:g} and {STEEPNESS[1]:g} fits best: the curve is no sigmoid"
    if not math.log(x[0]) <= log_mid <= math.log(x[-1]):
        return "the midpoint is outside the evaluated compute: the asymptote would be a guess"
    return "" if beyond >= MIN_POINTS else f"{beyond} evaluations beyond the lower knee, {MIN_POINTS} needed"


_NEAR = 1.001


def _inside(x: Floats, b: Floats, log_mid: Floats) -> np.ndarray:
    steep = (b > STEEPNESS[0] * _NEAR) & (b < STEEPNESS[1] / _NEAR)
    return steep & (log_mid >= math.log(x[0])) & (log_mid <= math.log(x[-1]))


def _refused(reason: str, beyond: int) -> SigmoidFit:
    nothing = (math.nan, math.nan, math.nan)
    return SigmoidFit(nothing, nothing, nothing, beyond, math.nan, reason)


def _rise(z: Floats) -> Floats:
    return 0.5 * (1.0 + np.tanh(z / 2))  # 1 / (1 + e^-z) without overflow


def _search(x: Floats, curves: Floats) -> Floats:
    """Return A, B, ln C_mid and the squared error, [4, c], of each of [c, 1 + p] curves, whose first column is R0."""
    logs, gains, room = np.log(x), curves[:, 1:] - curves[:, :1], CEILING - curves[:, 0]
    found = _coarse(logs, gains, room)
    damping = np.full(len(gains), _DAMPING)
    squares = np.sum(_residuals(logs, gains, found) ** 2, axis=1)
    for _ in range(_STEPS):
        tried = found + _step(logs, gains, room, found, damping)
        tried[:, 0] = np.clip(tried[:, 0], 0.0, room)
        tried[:, 1] = np.clip(tried[:, 1], *_LOG_STEEPNESS)
        after = np.sum(_residuals(logs, gains, tried) ** 2, axis=1)
        better = after < squares * (1 - _GAIN)
        found, squares = np.where(better[:, None], tried, found), np.where(better, after, squares)
        damping = np.where(better, damping / _FASTER, damping * _SLOWER)
        if np.all(better | (damping > _MOST)) and not better.any():
            break
    return np.stack([curves[:, 0] + found[:, 0], np.exp(found[:, 1]), found[:, 2], squares])


_LOG_STEEPNESS = (math.log(STEEPNESS[0]), math.log(STEEPNESS[1]))
_GRID = (16, 24)
_STEPS, _DAMPING, _FASTER, _SLOWER, _MOST, _GAIN = 60, 1e-3, 5.0, 4.0, 1.0, 1e-12


def _coarse(logs: Floats, gains: Floats, room: Floats) -> Floats:
    """Return the best (rise, ln B, ln C_mid) of a grid over the last two, [c, 3]; the best rise is in closed form."""
    margin = (logs[-1] - logs[0]) / 2
    steep = np.linspace(_LOG_STEEPNESS[0], _LOG_STEEPNESS[1], _GRID[0])
    middle = np.linspace(logs[0] - margin, logs[-1] + margin, _GRID[1])
    steep, middle = (part.ravel() for part in np.meshgrid(steep, middle, indexing="ij"))
    shapes = _rise(np.exp(steep)[:, None] * (logs - middle[:, None]))
    along, norm = gains @ shapes.T, np.maximum(np.sum(shapes**2, axis=1), np.finfo(np.float64).tiny)
    height = np.clip(along / norm, 0.0, room[:, None])
    best = np.argmin(height**2 * norm - 2 * height * along, axis=1)
    return np.stack([height[np.arange(len(gains)), best], steep[best], middle[best]], axis=1)


def _residuals(logs: Floats, gains: Floats, found: Floats) -> Floats:
    return found[:, :1] * _rise(np.exp(found[:, 1:2]) * (logs - found[:, 2:])) - gains


def _step(logs: Floats, gains: Floats, room: Floats, found: Floats, damping: Floats) -> Floats:
    """Return the damped Gauss-Newton step of every curve; a rise at its ceiling stays there if it would go beyond."""
    height, steep = found[:, :1], np.exp(found[:, 1:2])
    z = steep * (logs - found[:, 2:])
    rise = _rise(z)
    slope = height * rise * (1 - rise)
    jacobian = np.stack([rise, slope * z, -slope * steep], axis=2)  # [c, p, 3]
    gradient = np.einsum("cpk,cp->ck", jacobian, height * rise - gains)
    held = (found[:, 0] >= room) & (gradient[:, 0] < 0)
    jacobian[held, :, 0], gradient[held, 0] = 0.0, 0.0
    normal = np.einsum("cpk,cpl->ckl", jacobian, jacobian)
    scale = np.maximum(np.einsum("ckk->ck", normal), np.finfo(np.float64).eps)
    normal += np.eye(3) * (scale * damping[:, None])[:, None, :]
    normal[held, 0, 0] = 1.0
    return -np.linalg.solve(normal, gradient[..., None])[..., 0]
