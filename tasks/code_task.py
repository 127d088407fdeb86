"""What tasks share whose responses are programs: reading the program out of a response, judging it, partial credit."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast, get_args

from tasks.base import Demonstration, Example, Score
from tasks.sandbox import Limits, Result, Suite, Tier, judge_many
from tasks.settings import require
from tasks.sources import DataTask

__all__ = ["CodeTask", "fenced", "read_program"]

_FENCE, _INDENT = "```", 3  # as in CommonMark
_PYTHON = frozenset({"", "python", "python3", "py"})
_MAX_RESPONSE = 100_000  # characters; longer ones are refused unread


def fenced(code: str) -> str:
    """Return ``code`` as a Markdown block."""
    return f"```python\n{code.rstrip()}\n```"


def read_program(response: str) -> str | Score:
    """Return the program of a response: its last Markdown block of Python, or all of it where it has no block.

    Returns:
        The source, or the verdict "format" on a response that is empty, too long, or whose last block is not closed or
        not Python.
    """
    if len(response) > _MAX_RESPONSE:
        return Score(0.0, "format", f"{len(response)} characters, at most {_MAX_RESPONSE}")
    text = response.replace("\r\n", "\n")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return Score(0.0, "format", "half a surrogate pair")
    if _FENCE not in text:
        return text if text.strip() else Score(0.0, "format", "no program")
    block = _last_block(text.split("\n"))
    if block is None:
        return Score(0.0, "format", "a block that is not closed")
    language, code = block
    if language.lower() not in _PYTHON:
        return Score(0.0, "format", f"a block of {ascii(language[:20])[1:-1]}, expected Python")
    return code if code.strip() else Score(0.0, "format", "no program")


def _last_block(lines: Sequence[str]) -> tuple[str, str] | None:
    """Return language and text of the last block; None where there is none or the last one is not closed."""
    block: tuple[str, str] | None = None
    begun: int | None = None
    for number, text in enumerate(lines):
        mark = text.lstrip(" ")
        if not mark.startswith(_FENCE) or len(text) - len(mark) > _INDENT:
            continue
        if begun is None:
            begun = number
        elif not mark[len(_FENCE) :].strip():
            words = lines[begun].lstrip(" ")[len(_FENCE) :].split()
            block, begun = (words[0] if words else "", "\n".join(lines[begun + 1 : number]) + "\n"), None
    return block if begun is None else None


@dataclass(frozen=True)
class CodeTask(DataTask):
    """A task over published programming problems.

    Attributes:
        timeout_seconds: of computing for a program with all its tests, or for one run where it reads standard input;
            and from its start to its end where it waits. One that computes on a busy machine has four times as long.
        memory_bytes: heap of a program.
        tier: "cpython", the sandbox whose verdicts are Python's, or "monty" for machines without its locks.
        partial_credit: a response that passes some tests earns their share, below 1; else only all of them pay.
    """

    timeout_seconds: float = 10.0
    memory_bytes: int = 256_000_000
    tier: str = "cpython"
    partial_credit: bool = False

    sample: ClassVar[Mapping[str, object]] = {"source": "sample", "timeout_seconds": 0.5}

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        super().__post_init__()
        require(self.timeout_seconds > 0, "timeout_seconds", self.timeout_seconds, "seconds > 0, e.g. 10.0")
        require(self.tier in get_args(Tier), "tier", self.tier, f"one of {', '.join(get_args(Tier))}")
        least = 16_000_000
        require(self.memory_bytes >= least, "memory_bytes", self.memory_bytes, f"bytes >= {least}, e.g. 256000000")

    @property
    def limits(self) -> Limits:
        """Return what a program may use."""
        return Limits(
            seconds=self.timeout_seconds / 2,  # of text and calls each
            wall_seconds=self.timeout_seconds,
            memory_bytes=self.memory_bytes,
            recursion=1000,
            print_bytes=1_000_000,
            values=200_000,
        )

    @abstractmethod
    def program(self, example: Example, response: str) -> str | Score:
        """Return the source that is judged, or the verdict on a response that holds none."""

    @abstractmethod
    def judge(self, programs: Sequence[tuple[Example, str]]) -> Sequence[tuple[Sequence[Result], int]]:
        """Return the results of each program and how many tests it has; where results are fewer, it failed there."""

    def judge_suites(self, programs: Sequence[tuple[str, Suite]]) -> list[list[Result]]:
        """Judge programs by suites of checks, in the task's tier and within its limits."""
        return judge_many(programs, self.limits, tier=cast(Tier, self.tier), whole=self.partial_credit)

    def demonstrations(self, example: Example) -> Sequence[Demonstration]:
        """Return the published solution."""
        return (Demonstration(self.gold(example), "bare"),)

    def score(self, example: Example, response: str) -> Score:
        """Return pass where every test is passed, else what the first other one showed."""
        return self.score_many([(example, response)])[0]

    def score_many(self, pairs: Iterable[tuple[Example, str]]) -> list[Score]:
        """Return one score a pair, in order; equal programs for one example are run once."""
        read = [(example, self.program(example, response)) for example, response in pairs]
        chosen = {(example.id, found): (example, found) for example, found in read if isinstance(found, str)}
        judged = dict(zip(chosen, self.judge(list(chosen.values())), strict=True)) if chosen else {}
        return [self._score(*judged[example.id, found]) if isinstance(found, str) else found for example, found in read]

    def _score(self, results: Sequence[Result], total: int) -> Score:
        passed = sum(result.verdict == "pass" for result in results)
        failed = next((result for result in results if result.verdict != "pass"), None)
        if failed is None and passed == total:
            return Score(1.0, "pass")
        if failed is None:
            return Score(0.0, "error", f"{passed} of {total} tests were judged")
        if failed.verdict == "infra":
            return Score(float("nan"), "infra", failed.reason)
        share = passed / total if self.partial_credit else 0.0
        return Score(share, failed.verdict, f"{failed.reason} ({passed} of {total} tests)" if share else failed.reason)
