"""pass@k and maj@k of one prompt's responses, and the interval of a mean over prompts.

pass@k is the unbiased estimator of Chen et al. 2021 (arXiv:2107.03374): of n responses, c of them right, the share of
the subsets of k that hold a right one. maj@k is the same mean over all subsets of k, of how a majority vote in the
subset ends. Both need n >= k: with fewer responses neither exists, and neither is guessed.

A vote: responses with equal answers vote together, one without an answer does not vote. The answer with the most votes
wins and is worth the share of its responses that are right (0 or 1, where equal answers get equal verdicts); tied
answers win with equal chance; a subset without any answer is worth 0.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from harness.reports.values import LEVEL, TIE, Floats, finite

__all__ = ["Rate", "majority_at_k", "pass_at_k", "rate", "share_interval"]


@dataclass(frozen=True)
class Rate:
    """A mean over prompts of values in [0, 1], with its two-sided 95% interval.

    Attributes:
        mean: NaN for no prompts.
        low: lower end, NaN where there is no interval.
        high: upper end, likewise.
        num: prompts.
    """

    mean: float
    low: float
    high: float
    num: int


def pass_at_k(num: int, right: int, k: int) -> float:
    """Return the chance that k of ``num`` responses, drawn without replacement, hold at least one of the right ones.

    Args:
        num: responses (n).
        right: how many of them are right (c).
        k: size of the draw.

    Returns:
        1 - C(n - c, k) / C(n, k), as a product that no n overflows.

    Raises:
        ValueError: k is not in [1, n], or c not in [0, n].

    Example:
        >>> pass_at_k(4, 1, 2)
        0.5
    """
    _require_k(num, k)
    if not 0 <= right <= num:
        raise ValueError(f"{right} of {num} responses cannot be right")
    if num - right < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(num - right + 1, num + 1))


def majority_at_k(answers: Sequence[str | None], right: Sequence[bool], k: int) -> float:
    """Return the mean over all subsets of k responses of the worth of the answer that wins the vote.

    Exact, without a list of the subsets: the votes that the answers get in a random subset are independent binomials,
    given that they sum to k.

    Args:
        answers: one a response, None where it has none.
        right: one a response.
        k: voters.

    Raises:
        ValueError: k is not in [1, n], or the lengths differ.

    Example:
        >>> majority_at_k(["7", "7", "9"], [True, True, False], 3)
        1.0
    """
    num = len(answers)
    _require_k(num, k)
    if len(right) != num:
        raise ValueError(f"{num} answers and {len(right)} verdicts: one a response")
    sizes = Counter(answer for answer in answers if answer is not None)
    passes = Counter(answer for answer, passed in zip(answers, right, strict=True) if answer is not None and passed)
    worth: dict[int, float] = defaultdict(float)  # responses an answer has -> worth of all answers with as many
    for answer, passed in passes.items():
        worth[sizes[answer]] += passed / sizes[answer]
    silent = num - sizes.total()
    total = 0.0
    for size, value in worth.items():
        others = list(sizes.values())
        others.remove(size)
        total += value * sum(_win(size, others, silent, votes, k) for votes in range(1, min(size, k) + 1))
    return float(min(1.0, total))


def rate(values: ArrayLike) -> Rate:
    """Return the mean over prompts with an interval in which every prompt is one observation, whatever its samples.

    Wilson's score interval of the effective number of observations, mean (1 - mean) / variance of the mean, as for
    clustered surveys (Franco, Little, Louis and Slud 2019, doi:10.1093/jssam/smy019); the variance is that of the
    prompts' values, and its m - 1 degrees of freedom widen it as a t quantile does (Korn and Graubard 1998). Where
    every value is 0 or 1 (one response a prompt, or prompts that are all right or all wrong) the m prompts are the
    observations. Unlike a t interval it stays in [0, 1] and keeps its width near the ends.

    There is no interval for a single value strictly between 0 and 1, nor where such values are all the same.

    Args:
        values: [m] float in [0, 1], one a prompt; m may be 0.

    Raises:
        ValueError: a value is not finite or not in [0, 1].
    """
    array = finite(values)
    if array.size and not (array.min() >= 0 and array.max() <= 1):
        raise ValueError(f"a rate's values lie in [0, 1], got {array.min():g} to {array.max():g}")
    mean = float(np.mean(array)) if array.size else math.nan
    if array.size == 0 or (np.ptp(array) <= TIE and 0 < mean < 1):
        return Rate(mean, math.nan, math.nan, array.size)
    return Rate(mean, *share_interval(mean, _effective(array)), array.size)


def _effective(values: Floats) -> float:
    """Return how many independent 0/1 observations would say as much about the mean as these values do."""
    num = values.size
    if bool(np.isin(values, (0.0, 1.0)).all()):
        return num
    mean, variance = float(np.mean(values)), float(np.var(values, ddof=1)) / num
    widened = float(special.ndtri((1 + LEVEL) / 2) / special.stdtrit(num - 1, (1 + LEVEL) / 2))
    return mean * (1 - mean) / variance * widened**2


def share_interval(mean: float, num: float) -> tuple[float, float]:
    """Return Wilson's score interval of a share of ``num`` independent observations."""
    z = float(special.ndtri((1 + LEVEL) / 2))
    shrink = 1 + z**2 / num
    centre = (mean + z**2 / (2 * num)) / shrink
    half = z / shrink * math.sqrt(mean * (1 - mean) / num + z**2 / (4 * num**2))
    return (0.0 if mean == 0 else centre - half), (1.0 if mean == 1 else centre + half)


def _require_k(num: int, k: int) -> None:
    if k < 1:
        raise ValueError(f"k = {k} responses cannot be drawn: k is at least 1")
    if k > num:
        raise ValueError(
            f"k = {k} of {num} responses do not exist: sample at least {k} a prompt, or ask for a smaller k"
        )


def _win(size: int, others: Sequence[int], silent: int, votes: int, k: int) -> float:
    """Return the chance that one answer gets just ``votes`` and wins, a tie of t answers counting 1 / t.

    Args:
        size: responses with this answer.
        others: responses with each of the other answers.
        silent: responses without an answer.
        votes: what the answer gets, at least 1.
        k: voters.
    """
    share = k / (size + sum(others) + silent)
    rest = k - votes
    table = np.zeros((rest // votes + 1, rest + 1))  # [answers tied with this one, votes of all others]
    table[0, 0] = 1.0
    for other in others:
        chances, grown = _binomial(other, share), np.zeros_like(table)
        for got in range(min(other, votes, rest) + 1):
            moved = chances[got] * table[:, : rest + 1 - got]
            if got < votes:
                grown[:, got:] += moved
            else:
                grown[1:, got:] += moved[:-1]
        table = grown
    spoiled = np.zeros(rest + 1)  # by the votes of the others: chance of as many silent responses as fill up the subset
    fits = min(silent, rest)
    spoiled[rest - fits :] = _binomial(silent, share)[fits::-1]
    shares = 1.0 / np.arange(1, table.shape[0] + 1)
    whole = _binomial(size + sum(others) + silent, share)[k]
    return float(_binomial(size, share)[votes] * (shares @ table @ spoiled) / whole)


@lru_cache(maxsize=4096)
def _binomial(num: int, share: float) -> Floats:
    """Return the chances of 0 to ``num`` hits in ``num`` draws."""
    from scipy import stats  # takes a second: only where there is a majority to find

    return stats.binom.pmf(np.arange(num + 1), num, share)
