"""What a program may use, what it did, and which values count as plain data."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, cast

from tasks.base import Verdict

__all__ = ["Failure", "Limits", "Outcome", "line", "not_plain"]

_MAX_DEPTH = 32
_REASON_CHARACTERS = 160
_MAX_INTEGER_BITS = 4096  # an int that prints without the interpreter's limit on digits

_STARVED_FACTOR = 4


@dataclass(frozen=True)
class Limits:
    """What one program may use.

    Attributes:
        seconds: computing time of the program text, and again of all its calls together; generous, since a loaded
            machine must not turn a right program into a wrong one. CPU time under CPython, where text and calls share
            twice as much; wall clock of the interpreter alone under Monty.
        wall_seconds: under CPython, from start to end; what a program that waits is stopped by. One that computes on a
            busy machine has ``starved_seconds``.
        memory_bytes: heap of the interpreter; under CPython address space beyond the interpreter's own.
        recursion: calls on the stack.
        print_bytes: output; under Monty, where it is thrown away, more counts as too much memory.
        values: entries and characters of all returned values together.
    """

    seconds: float = 0.5
    wall_seconds: float = 5.0
    memory_bytes: int = 20_000_000
    recursion: int = 200
    print_bytes: int = 65_536
    values: int = 20_000

    @property
    def starved_seconds(self) -> float:
        """Seconds from start to end for a program that computes and has to share its CPU with others."""
        return _STARVED_FACTOR * self.wall_seconds


@dataclass(frozen=True)
class Failure:
    """Why there is no value.

    Attributes:
        verdict: format (not Python), error (raised, no such function, or not plain data), timeout, memory, unsupported
            (beyond this interpreter), infra (the sandbox itself is broken).
        reason: one line for a reader.
    """

    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Outcome:
    """What a program did.

    Attributes:
        failure: None where every call returned plain data, else the verdict that this failure is.
        values: one value a call, of exact built-in types; empty after a failure.
        reason: one line for a reader.
    """

    failure: Verdict | None
    values: tuple[Any, ...] = ()
    reason: str = ""


def line(text: str) -> str:
    """Return ``text`` as one short line of printable ASCII."""
    return ascii(text[:_REASON_CHARACTERS])[1:-1]


def not_plain(root: object, budget: int) -> str:
    """Return why a value is no plain data of at most ``budget`` entries and characters, "" where it is."""
    stack: list[tuple[object, int]] = [(root, 0)]
    while stack:
        value, depth = stack.pop()
        children: Collection[object] = ()
        if type(value) in (list, tuple, set, frozenset):
            children = cast("Collection[object]", value)
        elif type(value) is dict:
            children = cast("dict[object, object]", value).items()
        elif type(value) in (str, bytes):
            budget -= len(cast("str | bytes", value))
        elif type(value) is int:
            if cast(int, value).bit_length() > _MAX_INTEGER_BITS:
                return f"returned an int of more than {_MAX_INTEGER_BITS} bits"
        elif type(value) not in (bool, float, complex, type(None)):
            return f"returned {line(type(value).__name__)}, expected plain data"
        budget -= len(children)
        if budget < 0:
            return "returned more data than the limit"
        if depth > _MAX_DEPTH:
            return f"returned data nested deeper than {_MAX_DEPTH}"
        stack.extend((child, depth + 1) for child in children)
    return ""
