"""What tasks of drawn problems share: sizes and seed, examples that are drawn once, the fingerprint, two wordings."""

import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from tasks.base import SPLITS, Example, Split, Task
from tasks.settings import require
from tasks.splits import check_split, fingerprint

__all__ = ["DrawnTask", "WordedTask", "starts_after"]

Wording = Literal["terse", "full"]


@functools.lru_cache(maxsize=128)
def _drawn(task: "DrawnTask", split: Split, size: int) -> tuple[Example, ...]:
    return tuple(task.draw_examples(split, size))


@dataclass(frozen=True)
class DrawnTask(Task):
    """A task whose problems are drawn from a space of them, see ``tasks.splits.generate``.

    Attributes:
        train_size: problems in train at most; fewer where the settings allow fewer.
        validation_size: the same for validation.
        test_size: the same for test.
        seed: which problems are drawn; which split owns a problem does not depend on it.
        family: the name that streams and fingerprint begin with.
        version: of the rules (generation, prompt form, verdicts); raise it with every change of them.
        num_hashed: problems a split that enter the fingerprint.
    """

    train_size: int = 20_000
    validation_size: int = 512
    test_size: int = 1024
    seed: int = 0

    family: ClassVar[str]
    version: ClassVar[int] = 1
    num_hashed: ClassVar[int] = 32

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        for split in SPLITS:
            size = getattr(self, f"{split}_size")
            require(size >= 1, f"{split}_size", size, "an int >= 1, e.g. 512")

    @abstractmethod
    def draw_examples(self, split: Split, size: int) -> Sequence[Example]:
        """Return ``size`` examples of a split, fewer where the space is exhausted; a larger size keeps a smaller's."""

    @abstractmethod
    def hashed(self, example: Example) -> str:
        """Return what of an example's prompt and verdict the fingerprint should hold."""

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the examples of a split; drawn at the first call, then kept.

        Raises:
            ValueError: ``split`` is unknown, or no problem falls into it.
        """
        check_split(split)
        return _drawn(self, split, getattr(self, f"{split}_size"))

    def fingerprint(self) -> str:
        """Return a hash of the settings, the rules' version and a sample of every split."""
        examples = [example for split in SPLITS for example in _drawn(self, split, self.num_hashed)]
        return fingerprint(self.family, self.version, dataclasses.asdict(self), [*map(self.hashed, examples)])


@dataclass(frozen=True)
class WordedTask(DrawnTask):
    """A drawn task with a terse form of the problem, which a policy must have been trained on, and a full one.

    Attributes:
        wording: "terse": the problem alone, in few characters, for the tiny policies that are warm-started on it.
            "full": in words, with the rules and how to answer, for a policy that has never seen the form.
    """

    wording: Wording = "terse"

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        super().__post_init__()
        wordings = get_args(Wording)
        require(self.wording in wordings, "wording", self.wording, f"one of {', '.join(wordings)}")

    @abstractmethod
    def in_words(self, example: Example) -> str:
        """Return the problem in words, with the rules and how to answer; one line or more, each with its end."""

    def prompt(self, example: Example) -> str:
        """Return the problem in the wording that is set; the terse one is the example's "prompt"."""
        return example.data["prompt"] if self.wording == "terse" else self.in_words(example)


def starts_after(mark: str, response: str) -> list[int]:
    """Return the beginning, and where each ``mark`` has ended a step."""
    return [0, *(place + 1 for place, character in enumerate(response) if character == mark)]
