"""Generated problems with disjoint splits: every draw is keyed by a hash, and a problem's text decides its split.

Neighbouring seeds share nothing, because seeds are hashed and never added. A problem belongs to one split whatever the
seed and the sizes are, so that a policy trained with one seed may be tested with another.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tasks.base import SPLITS, Split

__all__ = ["Draws", "check_split", "content_key", "fingerprint", "generate"]

T = TypeVar("T")

_SHARES: dict[Split, float] = {"train": 0.6, "validation": 0.2, "test": 0.2}
_MAX_STALE_DRAWS = 3000  # consecutive draws without a new problem after which the space counts as exhausted


def _digest(*parts: str | int) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=64).digest()


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


def content_key(task: str, content: str) -> tuple[str, Split]:
    """Return 16 hexadecimal digits that identify a problem by its text, and the split that owns it."""
    digest = _digest("content", task, content)
    point = int.from_bytes(digest[8:16]) / 2**64
    for split, share in _SHARES.items():
        if point < share:
            return digest[:8].hex(), split
        point -= share
    return digest[:8].hex(), SPLITS[-1]


def generate(
    task: str,
    seed: int,
    split: Split,
    size: int,
    draw: Callable[[Draws], tuple[str, T]],
    usable: Callable[[T], bool] = lambda _: True,
) -> list[tuple[str, str, T]]:
    """Draw the problems of a split, without duplicates.

    Args:
        task: the task's name.
        seed: any int; hashed.
        split: the split to fill.
        size: how many problems to return at most.
        draw: makes (text, problem) from a keyed stream; equal texts are equal problems.
        usable: says no to problems that should not occur.

    Returns:
        (id, text, problem) in the order of their ids, which is random and does not depend on when each was drawn;
        fewer than ``size`` where the space of problems is exhausted. A larger ``size`` keeps all of a smaller one.

    Raises:
        ValueError: ``split`` is unknown, or no problem at all belongs to it.
    """
    check_split(split)
    found: dict[str, tuple[str, str, T]] = {}
    refused: set[str] = set()
    index = stale = 0
    while len(found) < size and stale < _MAX_STALE_DRAWS:
        content, problem = draw(Draws(task, seed, split, index))
        key, owner = content_key(task, content)
        index += 1
        stale += 1
        if owner != split or key in found or key in refused:
            continue
        if usable(problem):
            found[key] = (f"{split}-{key}", content, problem)
            stale = 0
        else:
            refused.add(key)
    if not found:
        raise ValueError(f"no problem of {task} falls into {split}: the settings leave too few; widen their ranges")
    return sorted(found.values(), key=lambda entry: entry[0])


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
    plain = json.dumps([dict(settings), list(texts)], sort_keys=True)
    return _digest("fingerprint", task, version, plain).hex()[:16]
