"""GSM8K: word problems of grade-school arithmetic; the answer is a number behind ``####``, or in a box.

Any file of the same schema will do: ``question``, and ``answer`` with the worked solution and a last line ``#### N``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tasks.answers import after_marker, canonical, grade, is_numeric, last_boxed
from tasks.base import Demonstration, Example, Score
from tasks.settings import require
from tasks.sources import DataTask, Field, Item, Row
from tasks.sources.text import line_starts

__all__ = ["Gsm8k"]

_MARKER = "####"
_ANNOTATION = re.compile(r"<<[^<>]*>>")  # calculator annotations, e.g. <<48/2=24>>
_MANY_STEPS = 8  # longer solutions are too few for a row of their own
_INSTRUCTIONS = {
    "marker": f"Solve the problem step by step. Write the final number alone on the last line, after {_MARKER}",
    "boxed": "Solve the problem step by step. Write the final number in \\boxed{}",
}


@dataclass(frozen=True)
class Gsm8k(DataTask):
    r"""Grade-school word problems with a number as answer.

    Attributes:
        form: how a response gives its answer: "marker" (``#### 72``, as the data set does) or "boxed"
            (``\boxed{72}``); the last one counts.
    """

    form: str = "marker"

    name: ClassVar[str] = "gsm8k"
    hub: ClassVar[str] = "openai/gsm8k:main@e53f048856ff4f594e959d75785d2c2d37b678ee"
    fields: ClassVar[tuple[Field, ...]] = (
        Field("question", "str"),
        Field("answer", "str"),
        Field("id", "int or str", required=False),
    )
    id_fields: ClassVar[tuple[str, ...]] = ("id",)
    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Refuse an unknown form."""
        super().__post_init__()
        require(self.form in _INSTRUCTIONS, "form", self.form, '"marker" or "boxed"')

    def parse(self, row: Row) -> Item:
        """Part the published answer into worked steps and the number behind the marker."""
        question, published = row.values["question"].strip(), row.values["answer"]
        steps, marker, final = published.rpartition(_MARKER)
        if not marker or not is_numeric(final.strip()):
            raise ValueError(f"the answer has no last line {_MARKER} and a number")
        count = sum(bool(line.strip()) for line in steps.split("\n"))
        label = f"{count} step{'s' * (count != 1)}" if count < _MANY_STEPS else f"{_MANY_STEPS} or more steps"
        return Item(question, label, {"question": question, "solution": published, "answer": final.strip()})

    def prompt(self, example: Example) -> str:
        """Return the question and, below it, how to give the answer."""
        return f"{example.data['question']}\n\n{_INSTRUCTIONS[self.form]}"

    def gold(self, example: Example) -> str:
        """Return the published answer as it is; in the boxed form with a box in place of the marker."""
        solution = example.data["solution"]
        return solution if self.form == "marker" else self._respond(solution, example)

    def demonstrations(self, example: Example) -> Sequence[Demonstration]:
        """Return the published solution without its calculator annotations, and the answer alone."""
        careful = self._respond(_ANNOTATION.sub("", example.data["solution"]), example)
        return (Demonstration(careful, "careful"), Demonstration(self._respond("", example), "bare"))

    def _respond(self, solution: str, example: Example) -> str:
        """Return the steps of ``solution`` and then the answer in the form asked for."""
        steps = solution.rpartition(_MARKER)[0].rstrip()
        answer = example.data["answer"]
        final = f"{_MARKER} {answer}" if self.form == "marker" else f"\\boxed{{{answer}}}"
        return f"{steps}\n{final}" if steps else final

    def _extract(self, response: str) -> str | None:
        return after_marker(response, _MARKER) if self.form == "marker" else last_boxed(response)

    def score(self, example: Example, response: str) -> Score:
        """Compare what follows the last marker, or stands in the last box, with the published number."""
        answer = self._extract(response)
        if answer is None:
            expected = f"{_MARKER} and a number" if self.form == "marker" else "a number in \\boxed{}"
            return Score(0.0, "format", f"no answer: expected {expected}")
        return grade(example.data["answer"], answer, example.data["question"])

    def answer(self, response: str) -> str | None:
        """Return the final number in the form that equal numbers share."""
        answer = self._extract(response)
        return None if answer is None else canonical(answer)

    def step_starts(self, response: str) -> Sequence[int]:
        """Return where the lines begin."""
        return line_starts(response)
