"""How often a 95% interval holds what it is an interval of, by simulation: what tables say of their bootstraps.

``MEASURED`` is what the functions here return; ``tests/harness/reports/test_reports_coverage.py`` measures it again.
"""

import math

import numpy as np
from scipy import special

from harness.reports.resampling import BOOTSTRAP_SAMPLES, IQM_TAIL
from harness.reports.values import LEVEL, Floats

SIMULATIONS = 10_000
SIZES = (3, 5, 10)
"""Seeds a task and arm."""
TASKS = 2
EVEN, UNEVEN = 0.5, 0.9
"""True probabilities of improvement."""
MEASURED: dict[str, dict[int, float]] = {
    "mean": {3: 0.753, 5: 0.8433, 10: 0.901},
    "iqm": {3: 0.8478, 5: 0.9149, 10: 0.9373},
    "even": {3: 0.9425, 5: 0.942, 10: 0.9451},
    "uneven": {3: 0.6781, 5: 0.8821, 10: 0.9235},
}
"""Share of 10,000 simulated studies of normal scores whose 95% percentile interval holds the truth, by seeds."""


def coverage_note() -> str:
    """Return the sentence that stands under every table with a percentile interval."""
    names = {"mean": "a mean", "iqm": f"an IQM over {TASKS} tasks"}
    names |= {"even": f"a P(better) of {EVEN} over {TASKS} tasks", "uneven": f"one of {UNEVEN}"}
    texts = [
        f"{name} {', '.join(f'{MEASURED[key][num]:.0%} at n = {num}' for num in SIZES)}" for key, name in names.items()
    ]
    return (
        f"[ ] from a percentile bootstrap is too narrow for few seeds. Of {SIMULATIONS:,} simulated studies with n "
        f"normal scores a task and arm the 95% interval held the truth for {'; '.join(texts)}."
    )


def percentile_coverage(what: str, num: int, simulations: int = SIMULATIONS) -> float:
    """Measure the coverage of the 95% percentile bootstrap with ``num`` normal runs in each stratum.

    Args:
        what: "mean" of one stratum; "iqm" of ``TASKS`` pooled; "even" and "uneven": the probability of improvement
            over ``TASKS`` tasks where it is ``EVEN`` and ``UNEVEN``.
        num: runs a stratum.
        simulations: number of simulated studies; the seed is fixed.

    Returns:
        The share of intervals that hold the true value.
    """
    rng, hits = np.random.default_rng(num), 0
    counts = _counts(rng, num)
    truth = {"mean": 0.0, "iqm": 0.0, "even": EVEN, "uneven": UNEVEN}[what]
    for begin in range(0, simulations, _BLOCK):
        size = min(_BLOCK, simulations - begin)
        if what == "mean":
            values = _means(rng, counts, size, num)
        elif what == "iqm":
            values = _middle_means(rng, counts, size, num)
        else:
            values = _improvements(rng, counts, size, num, math.sqrt(2) * float(special.ndtri(truth)))
        low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
        hits += int(np.sum((low <= truth) & (truth <= high)))
    return hits / simulations


_BLOCK = 250


def _counts(rng: np.random.Generator, num: int) -> Floats:
    """Return the resamples of one stratum, [2 * TASKS, BOOTSTRAP_SAMPLES, num]: the same in every simulation."""
    return rng.multinomial(num, np.full(num, 1 / num), size=(2 * TASKS, BOOTSTRAP_SAMPLES)).astype(np.float64)


def _means(rng: np.random.Generator, counts: Floats, size: int, num: int) -> Floats:
    return rng.normal(size=(size, num)) @ counts[0].T / num


def _middle_means(rng: np.random.Generator, counts: Floats, size: int, num: int) -> Floats:
    """Weigh the sorted runs by how often each is drawn, less what the cut takes off either end."""
    pooled = np.concatenate(list(counts[:TASKS]), axis=1)  # [b, TASKS * num]
    scores = rng.normal(size=(size, TASKS * num))
    order = np.argsort(scores, axis=1)
    total, cut = TASKS * num, int(IQM_TAIL * TASKS * num)
    reached = np.cumsum(pooled[:, order].transpose(1, 0, 2), axis=2)  # [size, b, TASKS * num]
    inside = np.clip(reached, cut, total - cut)
    weights = np.diff(inside, axis=2, prepend=float(cut))
    return np.einsum("sbn,sn->sb", weights, np.sort(scores, axis=1)) / (total - 2 * cut)


def _improvements(rng: np.random.Generator, counts: Floats, size: int, num: int, gain: float) -> Floats:
    shares = []
    for task in range(TASKS):
        first, second = rng.normal(size=(2, size, num))
        better = (first[:, :, None] + gain > second[:, None, :]).astype(np.float64)
        drawn = counts[2 * task] @ better  # [size, b, num]
        shares.append(np.einsum("sbn,bn->sb", drawn, counts[2 * task + 1]) / num**2)
    return np.mean(shares, axis=0)
