"""The functions that program synthesis draws from, by level, and how one would find each from three pairs."""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["LEVELS", "Program", "settled", "working"]

LEVELS = ("easy", "medium", "hard")


@dataclass(frozen=True)
class Program:
    """One function.

    Attributes:
        level: one of ``LEVELS``.
        text: the shortest usual way to write it, an expression in x.
        check: a template of the step that confirms it at one point; {x} and {y} are the point.
        run: the function.
    """

    level: str
    text: str
    check: str
    run: Callable[[int], int]

    def __call__(self, x: int) -> int:
        """Return f(x)."""
        return self.run(x)


def _easy() -> list[Program]:
    plus = [Program("easy", f"x+{b}", f"{{y}}-{{x}}={b}", lambda x, b=b: x + b) for b in range(1, 21)]
    minus = [Program("easy", f"x-{b}", f"{{y}}-{{x}}=-{b}", lambda x, b=b: x - b) for b in range(1, 21)]
    mirror = [Program("easy", f"{a}-x", f"{{y}}+{{x}}={a}", lambda x, a=a: a - x) for a in range(1, 21)]
    times = [Program("easy", f"{a}*x", f"{a}*{{x}}={{y}}", lambda x, a=a: a * x) for a in range(2, 10)]
    return [*plus, *minus, *mirror, *times]


def _medium() -> list[Program]:
    offsets = [b for b in range(-9, 10) if b]
    line = [
        Program("medium", f"{a}*x{b:+d}", f"{{y}}-{a}*{{x}}={b}", lambda x, a=a, b=b: a * x + b)
        for a in range(2, 10)
        for b in offsets
    ]
    square = [Program("medium", f"x*x{b:+d}", f"{{y}}-{{x}}*{{x}}={b}", lambda x, b=b: x * x + b) for b in offsets]
    return [*line, *square, Program("medium", "x*x", "{x}*{x}={y}", lambda x: x * x)]


def _hard() -> list[Program]:
    floor = [Program("hard", f"x//{a}", f"{{x}}//{a}={{y}}", lambda x, a=a: x // a) for a in range(2, 7)]
    modulo = [Program("hard", f"x%{a}", f"{{x}}%{a}={{y}}", lambda x, a=a: x % a) for a in range(2, 10)]
    bent: list[Program] = []
    for a in range(1, 11):
        bent.append(Program("hard", f"abs(x-{a})", f"abs({{x}}-{a})={{y}}", lambda x, a=a: abs(x - a)))
        bent.append(Program("hard", f"max(x,{a})", f"max({{x}},{a})={{y}}", lambda x, a=a: max(x, a)))
        bent.append(Program("hard", f"min(x,{a})", f"min({{x}},{a})={{y}}", lambda x, a=a: min(x, a)))
    return [*floor, *modulo, *bent]


_MAKERS = {"easy": _easy, "medium": _medium, "hard": _hard}


@functools.cache
def settled(level: str, inputs: range, size: int) -> tuple[tuple[Program, tuple[int, ...]], ...]:
    """Return every program of a level with every set of inputs whose values single it out.

    Args:
        level: one of ``LEVELS``.
        inputs: where the sets are drawn from.
        size: inputs in a set.

    Returns:
        (program, ascending inputs); left out where a constant, the identity or another program of any level has the
        same values there.
    """
    programs, fits = _singled_out(inputs, size)
    sets = list(itertools.combinations(inputs, size))
    rows = [program.level == level for program in programs]
    pairs = np.argwhere(fits & np.array(rows)[:, None]).tolist()
    return tuple((programs[row], sets[column]) for row, column in pairs)


@functools.cache
def _singled_out(inputs: range, size: int) -> tuple[list[Program], np.ndarray]:
    """Return all programs, the identity first, and a [program, set] mask of the sets that single each out."""
    programs = [Program("", "x", "", lambda x: x), *(member for make in _MAKERS.values() for member in make())]
    table = np.array([[program.run(x) for x in inputs] for program in programs])
    values = table[:, list(itertools.combinations(range(len(inputs)), size))]  # [program, set, position]
    span = int(values.max() - values.min()) + 1
    codes = (values - values.min()) @ (span ** np.arange(size))
    fits = np.stack([_occurrences(column) for column in codes.T], axis=1) == 1
    constant = (values == values[:, :, :1]).all(axis=2)
    return programs, fits & ~constant


def _occurrences(codes: np.ndarray) -> np.ndarray:
    """Return, for each entry, how often its value occurs."""
    _, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    return counts[inverse]


def working(program: Program, visible: Sequence[int]) -> str:
    """Return a line of working: the secants dy/dx between neighbours, then the guess checked at the last two points.

    Args:
        program: the function asked for.
        visible: at least two different inputs.

    Returns:
        E.g. ``2/1 4/2 7-2*2=3 11-2*4=3`` for 2*x+3 seen at 1, 2 and 4.
    """
    steps = [(b - a, program(b) - program(a)) for a, b in itertools.pairwise(visible)]
    secants = [f"{dy}/{dx}" for dx, dy in steps]
    checks = [program.check.format(x=x, y=program(x)) for x in visible[-2:]]
    return " ".join([*secants, *checks])
