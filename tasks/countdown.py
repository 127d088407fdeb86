"""Countdown: reach a target with given numbers, such as ``3 4 7 -> 17:``; the expression follows a marker, ``#3*7-4``.

A careful response works step by step, ``3*7=21;21-4=17;#3*7-4``. Only the expression is judged: the last ``#`` counts
and nothing but white space may follow it. The grammar is ``+ - * /``, parentheses, plain ASCII integers without leading
zeros, and spaces between them: no sign, power, floor division, decimal, name or ``=``; ``#17`` uses a number not given.
Values are exact fractions. Numbers are shown in ascending order: one multiset with one target is one problem.
"""

import functools
import itertools
import operator
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

from tasks.base import Demonstration, Example, Score, Split
from tasks.drawn import WordedTask, starts_after
from tasks.settings import require
from tasks.splits import Draws, generate

__all__ = ["Countdown", "evaluate"]

_MARKER = "#"
_BLANKS = " \t\r\n"
_MAX_LENGTH = 200  # characters of an expression; bounds everything below
_MAX_DEPTH = 20  # open parentheses
# A number has at most 9 digits and no leading zero; ASCII alone.
_TOKEN = re.compile(r"(?<![0-9])(?:0|[1-9][0-9]{0,8})(?![0-9])|[-+*/()]")
_GRAMMAR = f"made of plain integers, + - * / and parentheses, in at most {_MAX_LENGTH} characters"
_MIN_NUMBER = 5
_MAX_NUMBER = 999_999
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2}
_ATOM = 3


def _climb(stack: list[str], floor: int = 0, depth: int = 0) -> Fraction:
    """Take one expression off ``stack``, first token last, as long as its operators bind tighter than ``floor``."""
    token = stack.pop()
    if token.isdigit():
        value = Fraction(int(token))
    elif token == "(" and depth < _MAX_DEPTH:
        value = _climb(stack, 0, depth + 1)
        if stack.pop() != ")":
            raise ValueError("a parenthesis is not closed")
    else:
        raise ValueError(f"{token or 'the end'} where a number should stand, or nested deeper than {_MAX_DEPTH}")
    while _BINDING.get(stack[-1], 0) > floor:
        sign = stack.pop()
        value = _OPERATIONS[sign](value, _climb(stack, _BINDING[sign], depth))
    return value


def evaluate(text: str) -> tuple[Fraction, tuple[int, ...]]:
    """Return the exact value of an expression and its numbers in ascending order; takes microseconds on any text.

    Raises:
        ValueError: ``text`` is not an expression of the grammar.
        ZeroDivisionError: a divisor is 0.
    """
    tokens = _TOKEN.findall(text[:_MAX_LENGTH])
    if "".join(tokens) != text.replace(" ", ""):
        raise ValueError(f"{text[:40]!a} is not {_GRAMMAR}")
    stack = ["", *reversed(tokens)]
    value = _climb(stack)
    if len(stack) > 1:
        raise ValueError(f"{stack[-1]} where an operator or the end should stand")
    return value, tuple(sorted(int(token) for token in tokens if token.isdigit()))


def _read(response: str) -> tuple[Fraction, tuple[int, ...]]:
    """Evaluate what follows the last marker; raises as ``evaluate`` does, ValueError too where there is no marker."""
    _, marker, text = response.rpartition(_MARKER)
    if not marker:
        raise ValueError(f"no answer: expected {_MARKER} and an expression")
    return evaluate(text.rstrip(_BLANKS))


class _Part(NamedTuple):
    """A value on the way to the target, the expression that gives it and how tightly that binds."""

    value: int
    text: str
    binding: int = _ATOM


class _Problem(NamedTuple):
    numbers: list[int]
    target: int
    steps: str
    solution: str


def _combine(stream: Draws, left: _Part, right: _Part) -> tuple[int, str]:
    """Return the value and the operator of a step whose result is a positive integer and no copy of an operand."""
    a, b = left.value, right.value
    options = [(a + b, "+")]
    if a - b > 0 and a - b != b:
        options.append((a - b, "-"))
    if a > 1 and b > 1:
        options.append((a * b, "*"))
        if a % b == 0 and a // b != b:
            options.append((a // b, "/"))
    return stream.choice(options)


def _join(left: _Part, sign: str, right: _Part, value: int) -> _Part:
    """Return the combined part, with the parentheses that the grammar needs and no others."""
    binding = _BINDING[sign]
    first = left.text if left.binding >= binding else f"({left.text})"
    bare = right.binding > binding or (right.binding == binding and sign in "+*")
    return _Part(value, f"{first}{sign}{right.text if bare else f'({right.text})'}", binding)


def _draw(stream: Draws, operands: Sequence[int], max_number: int) -> tuple[str, _Problem]:
    """Combine random numbers two by two until one value, the target, is left."""
    drawn = [stream.between(1, max_number) for _ in range(stream.choice(operands))]
    parts = [_Part(number, str(number)) for number in drawn]
    steps: list[str] = []
    while len(parts) > 1:
        left = parts.pop(stream.below(len(parts)))
        right = parts.pop(stream.below(len(parts)))
        if left.value < right.value:
            left, right = right, left
        value, sign = _combine(stream, left, right)
        steps.append(f"{left.value}{sign}{right.value}={value};")
        parts.append(_join(left, sign, right, value))
    problem = _Problem(sorted(drawn), parts[0].value, "".join(steps), parts[0].text)
    return f"{' '.join(map(str, problem.numbers))} -> {problem.target}:", problem


def _trivial(numbers: Sequence[int], target: int) -> bool:
    """Tell whether a number, or one operation on two of them, is the target."""
    pairs = itertools.permutations(numbers, 2)
    return target in numbers or any(target in (a + b, a - b, a * b) or a == b * target for a, b in pairs)


@dataclass(frozen=True)
class Countdown(WordedTask):
    """Expressions that reach a target.

    Every problem has a solution that uses all numbers and whose steps are positive integers; neither a number nor one
    operation on two of them is the target. Any solution passes, through fractions too.

    Attributes:
        operands: how many numbers are given, each entry equally likely; repeat an entry to weigh it. Each 3 or 4.
        max_number: numbers are drawn from [1, max_number].
        max_target: targets lie in [1, max_target].
        use_all: True: each given number exactly once, the rule of TinyZero (github.com/Jiayi-Pan/TinyZero,
            validate_equation) and the default, since published results use it. False: at most once, as on television.
    """

    operands: tuple[int, ...] = (3, 4)
    max_number: int = 25
    max_target: int = 99
    use_all: bool = True

    family: ClassVar[str] = "countdown"

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        super().__post_init__()
        fits = bool(self.operands) and set(self.operands) <= {3, 4}
        require(fits, "operands", self.operands, "3, 4 or both, e.g. [3, 4]")
        for setting, given in (("max_number", self.max_number), ("max_target", self.max_target)):
            fits = _MIN_NUMBER <= given <= _MAX_NUMBER
            require(fits, setting, given, f"an int in [{_MIN_NUMBER}, {_MAX_NUMBER}], e.g. 25")

    def draw_examples(self, split: Split, size: int) -> Sequence[Example]:
        """Return problems that have a solution and no trivial one, labelled by how many numbers are given."""

        def usable(problem: _Problem) -> bool:
            return problem.target <= self.max_target and not _trivial(problem.numbers, problem.target)

        draw = functools.partial(_draw, operands=self.operands, max_number=self.max_number)
        return [
            Example(key, split, f"{len(problem.numbers)} operands", {"prompt": prompt, **problem._asdict()})
            for key, prompt, problem in generate(self.family, self.seed, split, size, draw, usable)
        ]

    def in_words(self, example: Example) -> str:
        """Return e.g. ``Make 17 from the numbers 3, 4, 7, ...``."""
        *some, last = map(str, example.data["numbers"])
        rule = "exactly once" if self.use_all else "at most once"
        return (
            f"Make {example.data['target']} from the numbers {', '.join(some)} and {last}, each used {rule}, with "
            "+ - * / and parentheses.\n"
            f"You may work first. End with the character {_MARKER} and the expression, without an equals sign and its "
            "value, and write nothing after it.\n"
        )

    def gold(self, example: Example) -> str:
        """Return e.g. ``#3*7-4``."""
        return f"{_MARKER}{example.data['solution']}"

    def demonstrations(self, example: Example) -> Sequence[Demonstration]:
        """Return e.g. ``3*7=21;21-4=17;#3*7-4`` and ``#3*7-4``."""
        gold = self.gold(example)
        return (Demonstration(example.data["steps"] + gold, "careful"), Demonstration(gold, "bare"))

    def step_starts(self, response: str) -> Sequence[int]:
        """Return the beginning, and where each ``;`` has ended a step."""
        return starts_after(";", response)

    def score(self, example: Example, response: str) -> Score:
        """Return pass, wrong (another value, other numbers, a zero divisor) or format (no expression)."""
        try:
            value, used = _read(response)
        except ZeroDivisionError:
            return Score(0.0, "wrong", "divides by zero")
        except ValueError as error:
            return Score(0.0, "format", str(error))
        given = Counter(example.data["numbers"])
        if Counter(used) != given if self.use_all else Counter(used) - given:
            rule = "exactly once" if self.use_all else "at most once"
            return Score(0.0, "wrong", f"expected {sorted(given.elements())}, each {rule}; used {[*used[:8]]}")
        if value != example.data["target"]:
            return Score(0.0, "wrong", f"expected {example.data['target']}, got {value}")
        return Score(1.0, "pass")

    def answer(self, response: str) -> str | None:
        """Return value and numbers of the expression, e.g. ``17 of 3 4 7``; None where there is neither.

        The verdict depends on nothing else, so different solutions vote together.
        """
        try:
            value, used = _read(response)
        except (ValueError, ZeroDivisionError):
            return None
        return f"{value} of {' '.join(map(str, used))}"

    def hashed(self, example: Example) -> str:
        """Return prompt and careful response."""
        return f"{self.prompt(example)}{self.demonstrations(example)[0].response}"
