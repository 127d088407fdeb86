"""Programming problems of your own, from any file with a prompt and tests.

``tests`` is a list of assertions on what the program defines, or a list of {"input", "output"} objects for a program
that reads standard input and prints; ``checker`` says how its output is compared. ``solution`` must pass, so that a
problem with faulty tests is found when it is loaded.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tasks.base import Example, Score
from tasks.code_task import CodeTask, fenced, read_program
from tasks.sandbox import (
    CHECKERS,
    Case,
    Result,
    Suite,
    defined_names,
    judge_cases_many,
    parsed,
    read_checks,
)
from tasks.sources import Field, Item, Row

__all__ = ["Programs"]


@dataclass(frozen=True)
class Programs(CodeTask):
    """Problems with assertions, or with inputs and outputs; an item chooses."""

    name: ClassVar[str] = "programs"
    fields: ClassVar[tuple[Field, ...]] = (
        Field("prompt", "str"),
        Field("tests", "list"),
        Field("solution", "str"),
        Field("setup", "str", required=False),
        Field("support", "str", required=False),
        Field("checker", "str", required=False),
        Field("difficulty", "int or str", required=False),
        Field("id", "int or str", required=False),
    )
    id_fields: ClassVar[tuple[str, ...]] = ("id",)

    def parse(self, row: Row) -> Item:
        """Take an item over.

        ``setup`` runs after the program, where the program runs; ``support`` defines helpers of the assertions, where
        they are judged. ``checker`` is one of "lines" (the default), "exact", "tokens" and "numbers", or the source of
        a function ``check(input, expected, output)``.
        """
        values = row.values
        tests, checker = values["tests"], values.get("checker") or "lines"
        if not tests:
            raise ValueError("tests is empty, expected assertions or {input, output} objects")
        asserted = all(isinstance(test, str) for test in tests)
        if not asserted and not all(_is_case(test) for test in tests):
            raise ValueError('tests must be assertions, or objects {"input": text, "output": text}')
        if checker not in CHECKERS and "check" not in defined_names(checker):
            raise ValueError(
                f"checker is {checker[:40]!a}, expected {', '.join(CHECKERS)}, or source that defines check"
            )
        data = {
            "prompt": values["prompt"],
            "solution": values["solution"],
            "asserted": asserted,
            "tests": tests,
            "setup": values.get("setup") or "",
            "support": values.get("support") or "",
            "checker": checker,
        }
        for field in ("setup", "support"):
            try:
                parsed(data[field])
            except ValueError as error:
                raise ValueError(f"{field} {error}") from None
        if asserted:
            _suite(*_key(data))
        return Item(data["prompt"], str(values.get("difficulty") or ""), data)

    def prompt(self, example: Example) -> str:
        """Return the problem and how to answer."""
        return f"{example.data['prompt'].rstrip()}\nAnswer with a Python program in a ```python block.\n"

    def gold(self, example: Example) -> str:
        """Return the published solution as a block."""
        return fenced(example.data["solution"])

    def program(self, example: Example, response: str) -> str | Score:
        """Return the program of a response."""
        del example
        return read_program(response)

    def judge(self, programs: Sequence[tuple[Example, str]]) -> Sequence[tuple[Sequence[Result], int]]:
        """Judge programs by their assertions or their outputs."""
        asserted = [index for index, (example, _) in enumerate(programs) if example.data["asserted"]]
        printing = [index for index, (example, _) in enumerate(programs) if not example.data["asserted"]]
        suites = [(programs[index][1], _suite(*_key(programs[index][0].data))) for index in asserted]
        runs = [(programs[i][1], _cases(programs[i][0].data), programs[i][0].data["checker"]) for i in printing]
        results = dict(zip(asserted, self.judge_suites(suites), strict=True))
        found = judge_cases_many(runs, self.limits, whole=self.partial_credit)
        results.update(zip(printing, found, strict=True))
        return [(results[index], len(example.data["tests"])) for index, (example, _) in enumerate(programs)]


def _is_case(test: Any) -> bool:
    return isinstance(test, dict) and all(isinstance(test.get(name), str) for name in ("input", "output"))


def _key(data: Any) -> tuple[tuple[str, ...], str, str, str]:
    return tuple(data["tests"]), data["solution"], data["setup"], data["support"]


@functools.lru_cache(maxsize=4096)
def _suite(tests: tuple[str, ...], solution: str, setup: str, support: str) -> Suite:
    helpers = defined_names(support)
    checks = read_checks(tests, known=helpers, defined=defined_names(solution) - helpers)
    return Suite(checks, setup=setup, support=support)


def _cases(data: Any) -> list[Case]:
    return [Case(test["input"], test["output"]) for test in data["tests"]]
