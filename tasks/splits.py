"""Generated problems with disjoint splits: every draw is keyed by a hash, and a problem's text decides its split.

Neighbouring seeds share nothing, because seeds are hashed and never added. A problem belongs to one split whatever the
seed and the sizes are, so that a policy trained with one seed may be tested with another.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tasks.base import SPLITS, Split

__all__ = ["Draws", "check_split", "content_id", "fingerprint", "generate", "split_of"]

T = TypeVar("T")

_SHARES: dict[Split, float] = {"train": 0.6, "validation": 0.2, "test": 0.2}
_MAX_STALE_DRAWS = 3000  # consecutive draws without a new problem after which the space counts as exhausted


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=64).digest()


class Draws:
    """A stream of integers that is a pure function of its key, on every platform and Python version."""

    def __init__(self, *key: str | int) -> None:
        self._key = key
        self._block = 0
        self._bits = int.from_bytes(_digest(*key, 0))
        self._left = 8

    def below(self, bound: int) -> int:
        """Return an integer in [0, bound), uniform up to a bias of bound / 2**64."""
        if self._left == 0:
            self._block += 1
            self._bits = int.from_bytes(_digest(*self._key, self._block))
            self._left = 8
        value = self._bits & 0xFFFF_FFFF_FFFF_FFFF
        self._bits >>= 64
        self._left -= 1
        return value % bound

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return low + self.below(high - low + 1)

    def choice(self, options: Sequence[T]) -> T:
        """Return one of ``options``, each position equally likely."""
        return options[self.below(len(options))]

    def subset(self, options: Sequence[int], size: int) -> tuple[int, ...]:
        """Return ``size`` different entries of ``options`` in ascending order.

        Raises:
            ValueError: fewer than ``size`` options.
        """
        if size > len(options):
            raise ValueError(f"{size} entries asked of {len(options)}; ask for fewer or widen the range")
        pool = list(options)
        return tuple(sorted(pool.pop(self.below(len(pool))) for _ in range(size)))


def check_split(split: str) -> None:
    """Refuse an unknown split.

    Raises:
        ValueError: ``split`` is not one of ``SPLITS``.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}, expected one of {', '.join(SPLITS)}")


def content_id(task: str, content: str) -> str:
    """Return 16 hexadecimal digits that identify a problem by its text."""
    return _digest("content", task, content).hex()[:16]


def split_of(task: str, content: str) -> Split:
    """Return the split that owns the problem with this text, whatever seed drew it."""
    point = int.from_bytes(_digest("split", task, content)[:8]) / 2**64
    for split, share in _SHARES.items():
        if point < share:
            return split
        point -= share
    return SPLITS[-1]


def generate(
    task: str,
    seed: int,
    split: Split,
    size: int,
    draw: Callable[[Draws], tuple[str, T]],
    usable: Callable[[T], bool] = lambda _: True,
) -> list[tuple[str, T]]:
    """Draw the problems of a split, without duplicates.

    Args:
        task: the task's name.
        seed: any int; hashed.
        split: the split to fill.
        size: how many problems to return at most.
        draw: makes (text, problem) from a keyed stream; equal texts are equal problems.
        usable: says no to problems that should not occur.

    Returns:
        (text, problem) pairs in a pseudo-random order that does not depend on when each was drawn; fewer than ``size``
        where the space of problems is exhausted.

    Raises:
        ValueError: ``split`` is unknown, or no problem at all belongs to it.
    """
    check_split(split)
    found: dict[str, T] = {}
    refused: set[str] = set()
    index = stale = 0
    while len(found) < size and stale < _MAX_STALE_DRAWS:
        content, problem = draw(Draws(task, seed, split, index))
        index += 1
        stale += 1
        if content in found or content in refused or split_of(task, content) != split:
            continue
        if not usable(problem):
            refused.add(content)
            continue
        found[content] = problem
        stale = 0
    if not found:
        raise ValueError(f"no problem of {task} falls into {split}: the settings leave too few; widen their ranges")
    return sorted(found.items(), key=lambda item: content_id(task, item[0]))


def fingerprint(task: str, version: int, settings: Mapping[str, Any], texts: Sequence[str]) -> str:
    """Return a hash of what decides prompts and verdicts.

    Args:
        task: the task's name.
        version: of the rules (generation, prompt form, verdicts); raise it with every change of them.
        settings: plain JSON values.
        texts: prompts and answers that would change with the generator.

    Returns:
        16 hexadecimal digits.
    """
    return _digest("fingerprint", task, version, dict(settings), list(texts)).hex()[:16]
