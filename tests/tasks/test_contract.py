"""The contract, for every task of the package and for tasks that break it."""

import dataclasses
import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from typing import Literal

import pytest

import tasks
from tasks import contract
from tasks.arithmetic import Arithmetic
from tasks.base import Demonstration, Example, Score, step_fault


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
class AddsSeedsDown(Arithmetic):
    def examples(self, split):
        everything = Arithmetic().examples(split)
        return everything[100 - 3 * self.seed :][:100]


@dataclasses.dataclass(frozen=True)
class SwapsBySeed(Arithmetic):
    def examples(self, split):
        everything = Arithmetic().examples(split)
        return [everything[place ^ self.seed] for place in range(100)]


@dataclasses.dataclass(frozen=True)
class ForgetsSettings(Arithmetic):
    def fingerprint(self) -> str:
        return "constant"


@dataclasses.dataclass(frozen=True)
class VotesByText(Arithmetic):
    def answer(self, response: str) -> str | None:
        return response


class Judges(Arithmetic):
    """Gives ``special`` for the responses that ``meets`` names."""

    special: Score
    meets = staticmethod(lambda response: response == "x")

    def score(self, example: Example, response: str) -> Score:
        return self.special if self.meets(response) else super().score(example, response)


def judging(special, meets=Judges.meets):
    body = {"special": special, "meets": staticmethod(meets)}
    return dataclasses.dataclass(frozen=True)(type("Judging", (Judges,), body))


ConsolationPrize = judging(Score(0.1, "wrong"))
PunishesText = judging(Score(-1.0, "wrong"))
WrongIsNan = judging(Score(float("nan"), "wrong"))
UnknownVerdict = judging(Score(0.0, "maybe"))
TwoLines = judging(Score(0.0, "wrong", "one\ntwo"))
PaysDigits = judging(Score(0.5, "wrong"), lambda response: "99999" in response)


@dataclasses.dataclass(frozen=True)
class PassesAsWrong(Arithmetic):
    def score(self, example: Example, response: str) -> Score:
        return dataclasses.replace(super().score(example, response), verdict="wrong")


@dataclasses.dataclass(frozen=True)
class PassesTrue(Arithmetic):
    def score(self, example: Example, response: str) -> Score:
        score = super().score(example, response)
        return Score(True, "pass") if score.verdict == "pass" else score


@dataclasses.dataclass(frozen=True)
class OneFitsAll(Arithmetic):
    def gold(self, example: Example) -> str:
        return "#7777"

    def score(self, example: Example, response: str) -> Score:
        return Score(1.0, "pass") if response == "#7777" else super().score(example, response)


@dataclasses.dataclass(frozen=True)
class BareFirst(Arithmetic):
    def demonstrations(self, example: Example):
        return super().demonstrations(example)[::-1]


@dataclasses.dataclass(frozen=True)
class ShowsNothing(Arithmetic):
    def demonstrations(self, example: Example):
        return ()


@dataclasses.dataclass(frozen=True)
class EmptySplit(Arithmetic):
    def examples(self, split):
        return [] if split == "validation" else super().examples(split)


@dataclasses.dataclass(frozen=True)
class ForeignSplit(Arithmetic):
    def examples(self, split):
        return [dataclasses.replace(e, split="train") for e in super().examples(split)[:80]]


@dataclasses.dataclass(frozen=True)
class SameIds(Arithmetic):
    def examples(self, split):
        return [dataclasses.replace(e, id="same") for e in super().examples(split)[:80]]


@dataclasses.dataclass(frozen=True)
class SamePrompts(Arithmetic):
    def prompt(self, example: Example) -> str:
        return "1+1="


@dataclasses.dataclass(frozen=True)
class ScoresNothing(Arithmetic):
    def score_many(self, pairs: Iterable[tuple[Example, str]]) -> list[Score]:
        return super().score_many(pairs) or [Score(0.0, "format")]


@dataclasses.dataclass(frozen=True)
class VotesForNothing(Arithmetic):
    def answer(self, response: str) -> str | None:
        return super().answer(response) or "nothing"


@dataclasses.dataclass(frozen=True)
class VotesByStyle(Arithmetic):
    def answer(self, response: str) -> str | None:
        found = super().answer(response)
        return found and f"{found} {';' in response}"


@dataclasses.dataclass(frozen=True)
class IgnoresSeed(Arithmetic):
    def examples(self, split):
        return Arithmetic(operands=self.operands).examples(split)


@dataclasses.dataclass(frozen=True)
class ChangesItsFingerprint(Arithmetic):
    def fingerprint(self) -> str:
        return str(next(COUNTER))


COUNTER = itertools.count()


def naming(starts):
    """Return a task whose steps are ``starts(response)``."""

    def step_starts(self, response):
        return starts(response)

    return dataclasses.dataclass(frozen=True)(type("Naming", (Arithmetic,), {"step_starts": step_starts}))


def holding(**facts):
    """Return a task whose examples have other facts; a callable makes one of the example."""

    def examples(self, split):
        made = Arithmetic.examples(self, split)
        return [dataclasses.replace(e, **{k: f(e) if callable(f) else f for k, f in facts.items()}) for e in made]

    return dataclasses.dataclass(frozen=True)(type("Holding", (Arithmetic,), {"examples": examples}))


@dataclasses.dataclass(frozen=True)
class Shuffles(Arithmetic):
    def examples(self, split):
        return random.sample(super().examples(split), 100)


@dataclasses.dataclass(frozen=True)
class Generates(Arithmetic):
    def examples(self, split):
        return (example for example in super().examples(split))


@dataclasses.dataclass(frozen=True)
class NumberForFingerprint(Arithmetic):
    def fingerprint(self):
        return int(super().fingerprint(), 16)


@dataclasses.dataclass
class Melts(tasks.Task):
    """Arithmetic in a dataclass that is not frozen."""

    train_size: int = 300
    validation_size: int = 100
    test_size: int = 100

    def examples(self, split):
        return frozen(self).examples(split)

    def prompt(self, example):
        return frozen(self).prompt(example)

    def gold(self, example):
        return frozen(self).gold(example)

    def score(self, example, response):
        return frozen(self).score(example, response)

    def demonstrations(self, example):
        return frozen(self).demonstrations(example)

    def fingerprint(self):
        return frozen(self).fingerprint()


def frozen(task):
    return Arithmetic(train_size=task.train_size, validation_size=task.validation_size, test_size=task.test_size)


@dataclasses.dataclass(frozen=True)
class ForgetsForm(Arithmetic):
    form: Literal["a", "b"] = "a"

    def __post_init__(self):
        if self.form not in ("a", "b"):
            raise ValueError("form is a or b")

    def fingerprint(self):
        return str((self.operands, self.max_operand, self.train_size, self.validation_size, self.test_size, self.seed))


def forgetting(kind, default):
    """Return a task with one more setting, which its fingerprint does not know."""
    body = {
        "__annotations__": {"more": kind},
        "more": default,
        "fingerprint": lambda self: frozen(self).fingerprint() + str(self.seed + self.max_operand),
    }
    return dataclasses.dataclass(frozen=True)(type("Forgetting", (Arithmetic,), body))


@pytest.mark.parametrize(
    ("cls", "promise"),
    [
        (naming(lambda response: [len(response) + 1]), contract.check_step_starts),
        (naming(lambda response: [0, len(response) + 1]), contract.check_step_starts),
        (naming(lambda response: [0, 0]), contract.check_step_starts),
        (naming(lambda response: [0.0]), contract.check_step_starts),
        (naming(lambda response: [False]), contract.check_step_starts),
        (naming(lambda response: 0), contract.check_step_starts),
        (naming(lambda response: "0"), contract.check_step_starts),
        (naming(lambda response: []), contract.check_step_starts),
        (naming(lambda response: [len(response)]), contract.check_step_starts),
        (naming(lambda response: [-1, 0]), contract.check_step_starts),
        (naming(lambda response: [0, *range(1, next(COUNTER) % 2 + 1)][: len(response)]), contract.check_step_starts),
        (holding(id=lambda e: int(e.id.rpartition("-")[2], 16)), contract.check_examples),
        (holding(difficulty=None), contract.check_examples),
        (holding(difficulty=2), contract.check_examples),
        (holding(data=lambda e: {**e.data, "terms": tuple(e.data["terms"])}), contract.check_examples),
        (holding(data=lambda e: {**e.data, 1: 2}), contract.check_examples),
        (holding(data=lambda e: {**e.data, "x": float("nan")}), contract.check_examples),
        (holding(data=lambda e: {**e.data, "x": float("inf")}), contract.check_examples),
        (holding(data=lambda e: {**e.data, "x": {1}}), contract.check_examples),
        (Shuffles, contract.check_examples),
        (Generates, contract.check_examples),
        (Melts, contract.check_fingerprint),
        (NumberForFingerprint, contract.check_fingerprint),
        (forgetting(float, 0.0), contract.check_fingerprint),
        (forgetting(float, 1.5), contract.check_fingerprint),
        (forgetting(str, "a"), contract.check_fingerprint),
        (forgetting(Literal["a", "b"], "a"), contract.check_fingerprint),
        (ForgetsForm, contract.check_fingerprint),
        (forgetting(bool, True), contract.check_fingerprint),
        (forgetting(int, 1), contract.check_fingerprint),
        (judging(Score(False, "wrong")), contract.check_scores),
        (judging(Score(0, "wrong")), contract.check_scores),
        (PassesTrue, contract.check_scores),
        (VotesByText, contract.check_answers),
        (VotesForNothing, contract.check_answers),
        (VotesByStyle, contract.check_answers),
        (ConsolationPrize, contract.check_null_policy),
        (OneFitsAll, contract.check_null_policy),
        (PunishesText, contract.check_scores),
        (WrongIsNan, contract.check_scores),
        (UnknownVerdict, contract.check_scores),
        (TwoLines, contract.check_scores),
        (PaysDigits, contract.check_scores),
        (PassesAsWrong, contract.check_scores),
        (BareFirst, contract.check_demonstrations),
        (ShowsNothing, contract.check_demonstrations),
        (ForeignSplit, contract.check_splits),
        (SameIds, contract.check_splits),
        (SamePrompts, contract.check_splits),
        (ScoresNothing, contract.check_score_many),
        (IgnoresSeed, contract.check_seeds),
        (ChangesItsFingerprint, contract.check_fingerprint),
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
        (AddsSeedsDown, contract.check_seeds),
        (SwapsBySeed, contract.check_seeds),
        (ForgetsSettings, contract.check_fingerprint),
    ],
)
def test_battery_catches_a_broken_task(cls, promise):
    task = cls(train_size=300, validation_size=100, test_size=100)
    with pytest.raises(AssertionError):
        promise(task)
    with pytest.raises(AssertionError):
        contract.check(task)


def test_battery_catches_an_empty_split():
    with pytest.raises(AssertionError, match="a split is empty"):
        contract.check_splits(EmptySplit(train_size=300, validation_size=100, test_size=100))


def test_a_generator_of_examples_is_named():
    task = Generates(train_size=300, validation_size=100, test_size=100)
    with pytest.raises(AssertionError, match="examples must return a list or a tuple: 'train', 'generator'"):
        contract.check_gold(task)


def test_seeds_of_a_small_space_may_share_their_problems():
    """With one digit there are few problems: two seeds draw mostly the same ones, each in its own order."""
    task = Arithmetic(operands=(2,), max_operand=9, train_size=40, validation_size=8, test_size=16)
    other = dataclasses.replace(task, seed=1)
    prompts = [{one.prompt(example) for example in one.examples("test")} for one in (task, other)]
    assert len(prompts[0] & prompts[1]) > 5
    contract.check_seeds(task)


@pytest.mark.parametrize("starts", [None, [], [0], [0, 3], (1, 2), range(4)])
def test_good_steps_have_no_fault(starts):
    assert step_fault(starts, "abc") is None


@pytest.mark.parametrize("setting", ["place", "form", "share"])
def test_settings_that_name_a_place_or_have_no_other_value_may_stay_out(setting):
    @dataclasses.dataclass(frozen=True)
    class Stays(Arithmetic):
        place: str = "here"
        form: str = "only"
        share: float = 0.5
        places = frozenset({"place"})

        def __post_init__(self):
            if self.form != "only" or self.share != 0.5:
                raise ValueError("no such value")

        def fingerprint(self):
            return frozen(self).fingerprint() + str((self.operands, self.seed, self.max_operand, self.wording))

    assert getattr(Stays(), setting)
    contract.check_fingerprint(Stays(train_size=300, validation_size=100, test_size=100))


@dataclasses.dataclass(frozen=True)
class HasNoTest(Arithmetic):
    def examples(self, split):
        return [] if split == "test" else super().examples(split)


def test_an_empty_split_is_named_and_breaks_no_other_check():
    contract.check_null_policy(HasNoTest())
    with pytest.raises(AssertionError, match="a split is empty"):
        contract.check_splits(HasNoTest())
