r"""Competition mathematics: MATH-500 and any data of its schema; the answer stands in the last ``\boxed{}``.

A row has ``problem`` and ``answer`` (a text, or an integer as AIME gives it), and may have ``solution``, ``level``
(5 or "Level 5") and ``subject``.
"""

import concurrent.futures
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar

from tasks.answers import canonical, grade, is_understood, last_boxed
from tasks.answers.symbolic import verify
from tasks.base import Demonstration, Example, Score, Verdict
from tasks.sandbox.judge import WORKERS
from tasks.sources import DataTask, Field, Item, Row
from tasks.sources.text import line_starts
from tasks.splits import fingerprint

__all__ = ["Math"]

_INSTRUCTION = "Reason step by step and put the final answer in \\boxed{}"
_LEVEL = re.compile(r"(?:level\s*)?(\d+)", re.IGNORECASE | re.ASCII)


def _difficulty(values: Mapping[str, Any]) -> str:
    """Return e.g. "level 5", the subject where a row has no level, "" where it has neither."""
    level = str(values.get("level") or "").strip()
    number = _LEVEL.fullmatch(level)
    return f"level {number[1]}" if number else level.lower() or str(values.get("subject") or "")


@dataclass(frozen=True)
class Math(DataTask):
    """Mathematics problems with an answer in a box."""

    name: ClassVar[str] = "math"
    hub: ClassVar[str] = "HuggingFaceH4/MATH-500@ff5b20257d8185524591543f8ff5993951537bb8"
    fields: ClassVar[tuple[Field, ...]] = (
        Field("problem", "str"),
        Field("answer", "int or str"),
        Field("solution", "str", required=False),
        Field("level", "int or str", required=False),
        Field("subject", "str", required=False),
        Field("unique_id", "int or str", required=False),
        Field("id", "int or str", required=False),
    )
    id_fields: ClassVar[tuple[str, ...]] = ("unique_id", "id")
    version: ClassVar[int] = 2

    def parse(self, row: Row) -> Item:
        """Take the fields over; a solution whose last box is not the answer is left out."""
        problem, answer = row.values["problem"].strip(), str(row.values["answer"]).strip()
        if not is_understood(answer):
            raise ValueError(f"the answer {answer[:40]!a} cannot be read, so nothing can be judged by it")
        solution = (row.values.get("solution") or "").strip()
        boxed = last_boxed(solution)
        if boxed is None or grade(answer, boxed, problem).verdict != "pass":
            solution = ""
        return Item(problem, _difficulty(row.values), {"problem": problem, "answer": answer, "solution": solution})

    def prompt(self, example: Example) -> str:
        """Return the problem and, below it, how to give the answer."""
        return f"{example.data['problem']}\n\n{_INSTRUCTION}"

    def gold(self, example: Example) -> str:
        """Return the published solution, or the published answer in a box where there is none."""
        return example.data["solution"] or self._box(example)

    def _box(self, example: Example) -> str:
        return f"\\boxed{{{example.data['answer']}}}"

    def demonstrations(self, example: Example) -> Sequence[Demonstration]:
        """Return the published solution where there is one, and the answer alone in a box."""
        bare = Demonstration(self._box(example), "bare")
        solution = example.data["solution"]
        return (Demonstration(solution, "careful"), bare) if solution else (bare,)

    def score(self, example: Example, response: str) -> Score:
        """Compare the content of the last box with the published answer."""
        return self._score(example, response, verify)

    def _score(self, example: Example, response: str, symbolic: Callable[[str, str], Verdict]) -> Score:
        answer = last_boxed(response)
        if answer is None:
            return Score(0.0, "format", "no answer: expected it in \\boxed{}")
        return grade(example.data["answer"], answer, example.data["problem"], symbolic=symbolic)

    def score_many(self, pairs: Iterable[tuple[Example, str]]) -> list[Score]:
        """Return one score a pair, in order; symbolic comparisons are made several at a time."""
        given = list(pairs)
        open_: dict[tuple[str, str], Verdict] = {}

        def later(gold: str, answer: str) -> Verdict:
            return open_.setdefault((gold, answer), "infra")

        scores = [self._score(example, response, later) for example, response in given]
        if not open_:
            return scores
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as threads:
            open_.update(zip(open_, threads.map(lambda pair: verify(*pair), list(open_)), strict=True))
        return [
            self._score(example, response, later) if score.verdict == "infra" else score
            for (example, response), score in zip(given, scores, strict=True)
        ]

    def fingerprint(self) -> str:
        """Return the hash of settings and items, and of the version of math-verify."""
        return fingerprint(self.name, self.version, {"math-verify": version("math-verify")}, [super().fingerprint()])

    def answer(self, response: str) -> str | None:
        """Return the content of the last box in the form that equal answers share."""
        answer = last_boxed(response)
        return None if answer is None else canonical(answer)

    def step_starts(self, response: str) -> Sequence[int]:
        """Return where the lines begin."""
        return line_starts(response)
