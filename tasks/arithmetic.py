"""Chains of sums and differences, such as ``37+8-21=``; the answer follows a marker, ``#24``.

A careful response works from left to right, ``37+8=45;45-21=24;#24``. Only the answer is judged: the last ``#`` counts,
a plain integer must follow it, and nothing but white space may follow that.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tasks.base import Demonstration, Example, Score, Split
from tasks.drawn import WordedTask, starts_after
from tasks.settings import require
from tasks.splits import Draws, generate

__all__ = ["Arithmetic"]

_MARKER = "#"
# Plain ASCII, no leading zero, no plus, no "-0"; 12 digits are more than any answer has and cheap to convert.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,11}")
_MIN_OPERANDS = 2
_MAX_OPERANDS = 12
_MAX_OPERAND = 999_999_999


def _draw(stream: Draws, operands: Sequence[int], max_operand: int) -> tuple[str, tuple[int, ...]]:
    """Return the prompt and the signed terms of one chain; the first term is positive."""
    count = stream.choice(operands)
    sizes = [stream.between(1, max_operand) for _ in range(count)]
    signs = [1] + [stream.choice((1, -1)) for _ in range(count - 1)]
    terms = tuple(size * sign for size, sign in zip(sizes, signs, strict=True))
    return "".join(f"{term:+d}" for term in terms)[1:] + "=", terms


def _after_marker(response: str) -> str | None:
    """Return what follows the last marker but for white space at the end, None where there is none."""
    _, marker, answer = response.rpartition(_MARKER)
    return answer.rstrip(" \t\r\n") if marker else None


def _no_operand_is_the_answer(terms: Sequence[int]) -> bool:
    """Copying a number of the prompt must never pay."""
    return sum(terms) not in {abs(term) for term in terms}


@dataclass(frozen=True)
class Arithmetic(WordedTask):
    """Sums and differences of 2 to 4 numbers.

    Attributes:
        operands: numbers of operands, each entry equally likely; repeat an entry to weigh it. Each in [2, 12].
        max_operand: operands are drawn from [1, max_operand].
    """

    operands: tuple[int, ...] = (2, 3, 3, 4, 4)
    max_operand: int = 99

    family: ClassVar[str] = "arithmetic"

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        super().__post_init__()
        fits = bool(self.operands) and all(_MIN_OPERANDS <= count <= _MAX_OPERANDS for count in self.operands)
        require(fits, "operands", self.operands, f"ints in [{_MIN_OPERANDS}, {_MAX_OPERANDS}], e.g. [2, 3, 3, 4]")
        fits = 1 < self.max_operand <= _MAX_OPERAND
        require(fits, "max_operand", self.max_operand, f"an int in [2, {_MAX_OPERAND}], e.g. 99")

    def draw_examples(self, split: Split, size: int) -> Sequence[Example]:
        """Return chains, labelled by their number of operands."""
        draw = functools.partial(_draw, operands=self.operands, max_operand=self.max_operand)
        return [
            Example(
                id=key,
                split=split,
                difficulty=f"{len(terms)} operands",
                data={"prompt": prompt, "terms": list(terms), "answer": sum(terms)},
            )
            for key, prompt, terms in generate(self.family, self.seed, split, size, draw, _no_operand_is_the_answer)
        ]

    def in_words(self, example: Example) -> str:
        """Return e.g. ``What is 37+8-21? ...``."""
        chain = example.data["prompt"].removesuffix("=")
        ending = f"You may work first. End with the character {_MARKER} and the integer, and write nothing after it."
        return f"What is {chain}?\n{ending}\n"

    def gold(self, example: Example) -> str:
        """Return e.g. ``#24``."""
        return f"{_MARKER}{example.data['answer']}"

    def demonstrations(self, example: Example) -> Sequence[Demonstration]:
        """Return e.g. ``37+8=45;45-21=24;#24`` and ``#24``."""
        total, *rest = example.data["terms"]
        steps: list[str] = []
        for term in rest:
            steps.append(f"{total}{term:+d}={total + term};")
            total += term
        gold = self.gold(example)
        return (Demonstration("".join(steps) + gold, "careful"), Demonstration(gold, "bare"))

    def step_starts(self, response: str) -> Sequence[int]:
        """Return the beginning, and where each ``;`` has ended a step."""
        return starts_after(";", response)

    def answer(self, response: str) -> str | None:
        """Return the integer after the last marker."""
        answer = _after_marker(response)
        return answer if answer and _INTEGER.fullmatch(answer) else None

    def score(self, example: Example, response: str) -> Score:
        """Return pass, wrong (another integer) or format (no answer, or one that is not a plain integer)."""
        answer = _after_marker(response)
        if answer is None:
            return Score(0.0, "format", f"no answer: expected {_MARKER} and an integer")
        if not _INTEGER.fullmatch(answer):
            return Score(0.0, "format", f"after the last {_MARKER} expected one plain integer, got {answer[:40]!a}")
        if int(answer) != example.data["answer"]:
            return Score(0.0, "wrong", f"expected {example.data['answer']}, got {answer}")
        return Score(1.0, "pass")

    def hashed(self, example: Example) -> str:
        """Return prompt and gold response."""
        return f"{self.prompt(example)}{self.gold(example)}"
