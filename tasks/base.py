"""What a task is: examples with splits, a prompt, a gold response and a verdict on any response.

A reward is trusted only as far as its verdict: ``Score.verdict`` says why a response earned what it did, and a score
that could not be computed (``infra``) is NaN, never 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

__all__ = ["SPLITS", "VERDICTS", "Demonstration", "Example", "Score", "Split", "Task", "Verdict", "step_fault"]

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

Verdict = Literal["pass", "wrong", "format", "error", "timeout", "memory", "unsupported", "infra"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Example:
    """One problem of a task.

    Attributes:
        id: unique within the task, stable across runs; random streams are keyed by it.
        split: the split it belongs to.
        difficulty: a label to break results down by, "" where the task has none.
        data: what the task needs to write the prompt and to score; plain JSON values.
    """

    id: str
    split: Split
    difficulty: str = ""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Score:
    """The outcome of one response.

    Attributes:
        value: reward in [0, 1]; NaN if and only if the verdict is "infra".
        verdict: "pass" if and only if the response is right.
        reason: one line for a reader, e.g. "expected 7, got 9".
    """

    value: float
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class Demonstration:
    """A right response to imitate in a warm start.

    Attributes:
        response: text that scores 1.
        style: "careful" (worked steps) or "bare" (the answer alone).
    """

    response: str
    style: Literal["careful", "bare"]


class Task(ABC):
    """A source of problems with verifiable answers. A subclass is a frozen dataclass; its fields are its settings.

    Attributes:
        sample: settings under which the task needs nothing from outside (no data set, no network); the contract is
            checked with them.
        places: settings that say where data lie and not what they are; the fingerprint stands for the data, and these
            are not part of a run's identity.
    """

    sample: ClassVar[Mapping[str, object]] = {}
    places: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def examples(self, split: Split) -> Sequence[Example]:
        """Return the examples of a split, always the same ones in the same order; splits are disjoint.

        Raises:
            ValueError: ``split`` is not one of ``SPLITS``.
        """

    @abstractmethod
    def prompt(self, example: Example) -> str:
        """Return the text that the policy sees; it never holds the answer."""

    @abstractmethod
    def gold(self, example: Example) -> str:
        """Return a response that scores 1."""

    @abstractmethod
    def score(self, example: Example, response: str) -> Score:
        """Judge ``response`` (without prompt and end token). Never raises on what a policy may write."""

    @abstractmethod
    def demonstrations(self, example: Example) -> Sequence[Demonstration]:
        """Return right responses in each style the task has, the careful one first."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of everything that decides prompts and verdicts: settings, examples, version of the rules."""

    def answer(self, response: str) -> str | None:
        """Return the final answer of a response in a form that equal answers share, for majority votes.

        None where the response has no answer; a task whose answers cannot be voted on (programs) keeps this default.
        """
        del response
        return None

    def step_starts(self, response: str) -> Sequence[int] | None:
        """Return where the steps of a response begin, character offsets in rising order; None: the task names none."""
        del response
        return None

    def score_many(self, pairs: Iterable[tuple[Example, str]]) -> list[Score]:
        """Return one score a pair, in the order of the pairs."""
        return [self.score(example, response) for example, response in pairs]


def step_fault(starts: object, response: str) -> str | None:
    """Return what ``Task.step_starts`` should have given for the response, None where it is fine."""
    if starts is None:
        return None
    if not isinstance(starts, Sequence) or not all(type(start) is int for start in starts):
        return "None or a list of ints"
    fine = list(starts) == sorted(set(starts)) and all(0 <= start <= len(response) for start in starts)
    return None if fine else f"rising offsets in [0, {len(response)}]"
