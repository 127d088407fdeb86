"""From input/output pairs to a small Python program: ``1:5 2:7 4:11 f=`` asks for e.g. ``2*x+3``.

A response is an expression in x on one line, or a function ``def f(x): ...``; comment lines may come first, and a
careful response uses one to work out the program (secants, then a check of the guess). The program runs in a sandbox on
the visible and on hidden inputs and passes where every value is the right int, so any equivalent program passes.
"""

import concurrent.futures
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tasks.base import Demonstration, Example, Score, Split
from tasks.drawn import WordedTask
from tasks.program_families import LEVELS, Program, settled, working
from tasks.sandbox import Limits, Outcome, run_program
from tasks.sandbox.judge import WORKERS
from tasks.settings import require
from tasks.splits import Draws, generate

__all__ = ["Synthesis"]

_VISIBLE = range(15)  # where visible inputs are drawn from
_HIDDEN = range(31)
_NUM_VISIBLE = 3
_MAX_RESPONSE = 400  # characters; longer ones are refused unread
_ALLOWED = re.compile(r"[\n\x20-\x7e]*")
_FUNCTION = re.compile(r"def +f *\(")


@dataclass(frozen=True)
class _Problem:
    program: Program
    visible: tuple[int, ...]

    @property
    def prompt(self) -> str:
        return " ".join(f"{x}:{self.program(x)}" for x in self.visible) + " f="

    def hidden(self, size: int) -> tuple[int, ...]:
        """Return the hidden inputs; they hang on the prompt alone."""
        unseen = [x for x in _HIDDEN if x not in self.visible]
        return Draws(Synthesis.family, "hidden", self.prompt).subset(unseen, size)


def _draw(stream: Draws, levels: Sequence[str]) -> tuple[str, _Problem]:
    problem = _Problem(*stream.choice(settled(stream.choice(levels), _VISIBLE, _NUM_VISIBLE)))
    return problem.prompt, problem


def _example(key: str, split: Split, problem: _Problem, num_hidden: int) -> Example:
    inputs = (*problem.visible, *problem.hidden(num_hidden))
    return Example(
        id=key,
        split=split,
        difficulty=problem.program.level,
        data={
            "prompt": problem.prompt,
            "program": problem.program.text,
            "working": working(problem.program, problem.visible),
            "inputs": list(inputs),
            "outputs": [problem.program(x) for x in inputs],
        },
    )


def _read(response: str) -> str | Score:
    """Return the source that defines f, or the verdict on a response that cannot be one."""
    if len(response) > _MAX_RESPONSE:
        return Score(0.0, "format", f"{len(response)} characters, at most {_MAX_RESPONSE}")
    if not _ALLOWED.fullmatch(response):
        return Score(0.0, "format", "characters other than printable ASCII and newline")
    lines = response.rstrip().split("\n")
    while lines and lines[0].startswith("#"):
        lines.pop(0)
    text = "\n".join(lines)
    if not text.strip():
        return Score(0.0, "format", "no program")
    if _FUNCTION.match(text):
        return text + "\n"
    # One line without a semicolon: then all of it is what `return` takes, and nothing can follow it.
    if len(lines) > 1 or ";" in text:
        return Score(0.0, "format", "expected one expression on one line, or def f(x)")
    return f"def f(x):\n return {text.strip()}\n"


@dataclass(frozen=True)
class Synthesis(WordedTask):
    """Small integer functions from three examples.

    Attributes:
        levels: difficulties to draw from, each equally likely; any of "easy", "medium", "hard".
        num_hidden: inputs besides the three visible ones on which a program must be right.
        timeout_seconds: running time of a program; wall clock of the interpreter alone.
        memory_bytes: heap of a program.
        train_size: as for every drawn task; no more than 8192 unless asked for.
    """

    levels: tuple[str, ...] = LEVELS
    num_hidden: int = 6
    timeout_seconds: float = 0.5
    memory_bytes: int = 20_000_000
    train_size: int = 8192

    family: ClassVar[str] = "synthesis"

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        super().__post_init__()
        fits = bool(self.levels) and all(level in LEVELS for level in self.levels)
        require(fits, "levels", self.levels, f"some of {', '.join(LEVELS)}, e.g. ['easy', 'medium']")
        most = len(_HIDDEN) - _NUM_VISIBLE
        require(1 <= self.num_hidden <= most, "num_hidden", self.num_hidden, f"an int in [1, {most}], e.g. 6")
        require(self.timeout_seconds > 0, "timeout_seconds", self.timeout_seconds, "seconds > 0, e.g. 0.5")
        least = 1_000_000
        require(self.memory_bytes >= least, "memory_bytes", self.memory_bytes, f"bytes >= {least}, e.g. 20000000")

    def draw_examples(self, split: Split, size: int) -> Sequence[Example]:
        """Return functions with the inputs they are tried on, labelled by level."""
        draw = functools.partial(_draw, levels=self.levels)
        return [
            _example(key, split, problem, self.num_hidden)
            for key, _, problem in generate(self.family, self.seed, split, size, draw)
        ]

    def in_words(self, example: Example) -> str:
        """Return e.g. ``Write a Python function f with f(1) = 5, ...``."""
        shown = list(zip(example.data["inputs"], example.data["outputs"], strict=True))[:_NUM_VISIBLE]
        values = ", ".join(f"f({x}) = {y}" for x, y in shown)
        return (
            f"Write a Python function f of one int with {values}. It is tried on more inputs than these.\n"
            "Answer with nothing but one expression in x on one line, as in 2*x+3, or the text of def f(x). Lines that "
            "begin with # may come first.\n"
        )

    def gold(self, example: Example) -> str:
        """Return e.g. ``2*x+3``."""
        return example.data["program"]

    def demonstrations(self, example: Example) -> Sequence[Demonstration]:
        """Return the program after a line of working, and the program alone."""
        gold = self.gold(example)
        return (Demonstration(f"#{example.data['working']}\n{gold}", "careful"), Demonstration(gold, "bare"))

    def score(self, example: Example, response: str) -> Score:
        """Return pass, wrong (a value differs), format (no program) or what stopped the program."""
        return self.score_many([(example, response)])[0]

    def score_many(self, pairs: Iterable[tuple[Example, str]]) -> list[Score]:
        """Return one score a pair, in order; a program is run once for equal inputs, several at a time."""
        read = [(example, _read(response)) for example, response in pairs]
        runs = {(source, tuple(e.data["inputs"])): None for e, source in read if isinstance(source, str)}
        outcomes = dict(zip(runs, self._run(list(runs)), strict=True))
        return [
            source if isinstance(source, Score) else _compare(e.data, outcomes[source, tuple(e.data["inputs"])])
            for e, source in read
        ]

    def _run(self, runs: Sequence[tuple[str, tuple[int, ...]]]) -> list[Outcome]:
        limits = Limits(seconds=self.timeout_seconds, memory_bytes=self.memory_bytes)

        def run(program: tuple[str, tuple[int, ...]]) -> Outcome:
            source, inputs = program
            return run_program(source, [(x,) for x in inputs], limits)

        if len(runs) <= 1:
            return list(map(run, runs))
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as threads:
            return list(threads.map(run, runs))

    def hashed(self, example: Example) -> str:
        """Return prompt, inputs and outputs."""
        return f"{self.prompt(example)}{example.data['inputs']}{example.data['outputs']}"


def _compare(data: Mapping[str, Any], outcome: Outcome) -> Score:
    if outcome.failure is not None:
        return Score(float("nan") if outcome.failure == "infra" else 0.0, outcome.failure, outcome.reason)
    for position, (x, expected, got) in enumerate(zip(data["inputs"], data["outputs"], outcome.values, strict=True)):
        if type(got) is not int or got != expected:
            kind = "visible" if position < _NUM_VISIBLE else "hidden"
            shown = str(got)[:20] if type(got) is int else type(got).__name__
            return Score(0.0, "wrong", f"{kind} f({x}) is {expected}, got {shown}")
    return Score(1.0, "pass")
