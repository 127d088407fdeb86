"""MBPP (Austin et al. 2021, arXiv:2108.07732): short Python functions from a sentence and a test.

A response is a program, in a Markdown block or alone. It runs in the sandbox and passes where every published assertion
holds; what the assertions expect never enters the process that runs it.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tasks.base import Example, Score, Split
from tasks.code_task import CodeTask, fenced, read_program
from tasks.sandbox import Result, Suite, defined_names, read_checks
from tasks.settings import require
from tasks.sources import Field, Item, Row

__all__ = ["MBPP"]

_PROMPT, _TEST, _VALIDATION, _TRAIN = range(1, 11), range(11, 511), range(511, 601), range(601, 975)


@dataclass(frozen=True)
class MBPP(CodeTask):
    """Mostly basic Python problems.

    Attributes:
        shown_tests: assertions that the prompt shows, 1 to 3. The paper shows all three; a program that tabulates
            what it was shown passes then, so one is the default.
    """

    shown_tests: int = 1

    name: ClassVar[str] = "mbpp"
    hub: ClassVar[str] = "google-research-datasets/mbpp:full"
    fields: ClassVar[tuple[Field, ...]] = (
        Field("task_id", "int"),
        Field("text", "str"),
        Field("code", "str"),
        Field("test_list", "list of str"),
        Field("test_setup_code", "str", required=False),
        Field("challenge_test_list", "list of str", required=False),
    )
    id_fields: ClassVar[tuple[str, ...]] = ("task_id",)
    shares_prompts: ClassVar[bool] = True  # items 76 and 347 ask for one function with other tests

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        super().__post_init__()
        require(self.shown_tests >= 0, "shown_tests", self.shown_tests, "an int >= 0, e.g. 1")

    def parse(self, row: Row) -> Item:
        """Take an item over; one file that holds all is parted as published: ids 11-510 test, 511-600 validation."""
        values = row.values
        tests = [*values["test_list"], *(values.get("challenge_test_list") or [])]
        data = {
            "text": values["text"].strip(),
            "code": values["code"].replace("\r\n", "\n"),
            "tests": [test.strip() for test in tests],
            "setup": (values.get("test_setup_code") or "").replace("\r\n", "\n"),
        }
        if not tests:
            raise ValueError("test_list is empty, expected assertions")
        _suite_of(data)
        return Item(f"{data['text']}\n{data['tests'][0]}", "", data, split=_published_split(values["task_id"]))

    def prompt(self, example: Example) -> str:
        """Return the sentence, the shown tests, and how to answer."""
        shown = example.data["tests"][: self.shown_tests]
        tests = "\nIt must satisfy:\n" + "\n".join(shown) if shown else ""
        return f"{example.data['text']}{tests}\nAnswer with a Python program in a ```python block.\n"

    def gold(self, example: Example) -> str:
        """Return the published solution as a block."""
        return fenced(example.data["code"])

    def program(self, example: Example, response: str) -> str | Score:
        """Return the program of a response."""
        del example
        return read_program(response)

    def judge(self, programs: Sequence[tuple[Example, str]]) -> Sequence[tuple[Sequence[Result], int]]:
        """Judge programs by their assertions."""
        suites = [(code, _suite_of(example.data)) for example, code in programs]
        results = self.judge_suites(suites)
        return [(found, len(suite.checks)) for found, (_, suite) in zip(results, suites, strict=True)]


@functools.lru_cache(maxsize=4096)
def _suite(code: str, tests: tuple[str, ...], setup: str) -> Suite:
    return Suite(read_checks(tests, defined=defined_names(code)), setup=setup)


def _suite_of(data: Mapping[str, Any]) -> Suite:
    return _suite(data["code"], tuple(data["tests"]), data["setup"])


def _published_split(task_id: int) -> Split | None:
    """Return the split that the paper puts an id in; its prompt's ten examples go to train."""
    if task_id in _TEST:
        return "test"
    if task_id in _VALIDATION:
        return "validation"
    return "train" if task_id in _TRAIN or task_id in _PROMPT else None
