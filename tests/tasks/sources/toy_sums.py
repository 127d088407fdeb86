"""A task over data for the tests: sums of two numbers, answered by the number alone."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tasks.base import Demonstration, Example, Score
from tasks.sources import DataTask, Field, Item, Row


@dataclass(frozen=True)
class Sums(DataTask):
    polite: bool = False

    name: ClassVar[str] = "toy-sums"
    fields: ClassVar[tuple[Field, ...]] = (
        Field("problem", "str"),
        Field("answer", "int"),
        Field("id", "int or str", required=False),
    )
    id_fields: ClassVar[tuple[str, ...]] = ("id",)

    def parse(self, row: Row) -> Item:
        if "+" not in row.values["problem"]:
            raise ValueError("the problem is no sum")
        return Item(row.values["problem"], "", {"problem": row.values["problem"], "answer": row.values["answer"]})

    def prompt(self, example: Example) -> str:
        return example.data["problem"] + (" = ? Please." if self.polite else " = ?")

    def gold(self, example: Example) -> str:
        return str(example.data["answer"])

    def demonstrations(self, example: Example) -> Sequence[Demonstration]:
        return (Demonstration(self.gold(example), "bare"),)

    def score(self, example: Example, response: str) -> Score:
        if example.data["problem"] == "0+0":
            return Score(float("nan"), "infra", "the adder is out of order")
        total = sum(map(int, example.data["problem"].split("+")))
        return Score(1.0, "pass") if response == str(total) else Score(0.0, "wrong", f"expected {total}")


def sums(numbers, **more):
    """Rows of n+1 = answer."""
    return [{"problem": f"{n}+1", "answer": n + 1, **more} for n in numbers]


def write(path: Path, rows) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def problems(task, split):
    return [example.data["problem"] for example in task.examples(split)]
