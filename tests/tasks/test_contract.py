"""The contract, for every task of the package and for tasks that break it."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterable

import pytest

import tasks
from tasks import contract
from tasks.arithmetic import Arithmetic
from tasks.base import Demonstration, Example, Score


def sample(name, **settings):
    return tasks.make(name, **{**tasks.classes()[name].sample, **settings})


@pytest.mark.parametrize("name", tasks.names())
@pytest.mark.parametrize("promise", contract.CHECKS, ids=lambda promise: promise.__name__)
def test_task_keeps_its_promise(name, promise):
    promise(sample(name))


@pytest.fixture(scope="module")
def elsewhere():
    """Return the snapshots of all tasks in two other processes, whose sets have other orders."""
    program = (
        "import json, tasks; from tasks.contract import snapshot\n"
        "made = {name: tasks.make(name, **cls.sample) for name, cls in tasks.classes().items()}\n"
        "print(json.dumps({name: snapshot(task) for name, task in made.items()}))"
    )
    path = os.pathsep.join(filter(None, sys.path))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    return [json.loads(process.communicate()[0]) for process in started]


@pytest.mark.parametrize("name", tasks.names())
def test_examples_are_the_same_in_every_process(name, elsewhere):
    assert [found[name] for found in elsewhere] == [contract.snapshot(sample(name))] * 2


@pytest.mark.parametrize("name", tasks.names())
def test_no_split_of_one_seed_meets_another_split_of_another_seed(name):
    if "seed" not in {field.name for field in dataclasses.fields(tasks.classes()[name])}:
        pytest.skip("one set of examples, whatever the seed")
    first, second = sample(name, seed=0), sample(name, seed=1)
    tested = {first.prompt(e) for e in first.examples("test")}
    trained = {second.prompt(e) for e in second.examples("train")}
    assert not tested & trained


@dataclasses.dataclass(frozen=True)
class WrongGold(Arithmetic):
    def gold(self, example: Example) -> str:
        return "#0"


@dataclasses.dataclass(frozen=True)
class PaysPromptEcho(Arithmetic):
    def score(self, example: Example, response: str) -> Score:
        return Score(1.0, "pass") if response.startswith(self.prompt(example)) else super().score(example, response)


@dataclasses.dataclass(frozen=True)
class PaysEmpty(Arithmetic):
    def score(self, example: Example, response: str) -> Score:
        return super().score(example, response or self.gold(example))


@dataclasses.dataclass(frozen=True)
class InfraIsZero(Arithmetic):
    def score(self, example: Example, response: str) -> Score:
        return Score(0.0, "infra") if response == "x" else super().score(example, response)


@dataclasses.dataclass(frozen=True)
class Leaks(Arithmetic):
    def examples(self, split):
        return [dataclasses.replace(e, split=split, id=split + e.id) for e in super().examples("train")[:80]]


@dataclasses.dataclass(frozen=True)
class TakesAnySplit(Arithmetic):
    def examples(self, split):
        return super().examples(split if split in tasks.SPLITS else "test")


@dataclasses.dataclass(frozen=True)
class Reorders(Arithmetic):
    def score_many(self, pairs: Iterable[tuple[Example, str]]) -> list[Score]:
        return super().score_many(pairs)[::-1]


@dataclasses.dataclass(frozen=True)
class Drops(Arithmetic):
    def score_many(self, pairs: Iterable[tuple[Example, str]]) -> list[Score]:
        return super().score_many((e, r) for e, r in pairs if r)


@dataclasses.dataclass(frozen=True)
class WrongDemonstration(Arithmetic):
    def demonstrations(self, example: Example):
        return (Demonstration(f"{self.gold(example)} or so", "bare"),)


@dataclasses.dataclass(frozen=True)
class NotAscii(Arithmetic):
    def prompt(self, example: Example) -> str:
        return super().prompt(example).replace("-", "\u2212")


@dataclasses.dataclass(frozen=True)
class AddsSeeds(Arithmetic):
    def examples(self, split):
        everything = Arithmetic().examples(split)
        return everything[self.seed : self.seed + 100]


@dataclasses.dataclass(frozen=True)
class ForgetsSettings(Arithmetic):
    def fingerprint(self) -> str:
        return "constant"


@dataclasses.dataclass(frozen=True)
class VotesByText(Arithmetic):
    def answer(self, response: str) -> str | None:
        return response


@pytest.mark.parametrize(
    ("cls", "promise"),
    [
        (VotesByText, contract.check_answers),
        (WrongGold, contract.check_gold),
        (PaysPromptEcho, contract.check_null_policy),
        (PaysEmpty, contract.check_null_policy),
        (InfraIsZero, contract.check_scores),
        (Leaks, contract.check_splits),
        (TakesAnySplit, contract.check_unknown_split),
        (Reorders, contract.check_score_many),
        (Drops, contract.check_score_many),
        (WrongDemonstration, contract.check_demonstrations),
        (NotAscii, contract.check_text),
        (AddsSeeds, contract.check_seeds),
        (ForgetsSettings, contract.check_fingerprint),
    ],
)
def test_battery_catches_a_broken_task(cls, promise):
    with pytest.raises(AssertionError):
        promise(cls())
    with pytest.raises(AssertionError):
        contract.check(cls())
