"""What all reasoning-gym tasks share: items of a generator become examples, responses are read and compared."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tasks import reasoning_gym_package as package
from tasks.base import SPLITS, Demonstration, Example, Score, Split, Task
from tasks.reasoning_gym_answers import MARKER
from tasks.reasoning_gym_generators import Generator
from tasks.settings import require
from tasks.splits import check_split, fingerprint, generate

__all__ = ["GymTask"]

TASKS: dict[str, type[Task]] = {}  # none by itself; those of reasoning_gym.py derive from it
_SAMPLE = 16  # problems a split that enter the fingerprint


@functools.lru_cache(maxsize=128)
def _examples(task: "GymTask", split: Split, size: int) -> tuple[Example, ...]:
    generator = task.generator
    draw = functools.partial(generator.draw, settings=tuple((name, getattr(task, name)) for name in generator.ranges))
    return tuple(
        Example(
            id=key,
            split=split,
            difficulty=generator.label(item),
            data={"question": generator.shown(item), "answer": generator.kind.canonical(generator.gold(item))},
        )
        for key, _, item in generate(f"rg_{generator.dataset}", task.seed, split, size, draw, generator.usable)
    )


@dataclass(frozen=True)
class GymTask(Task):
    """A task over one generator; a subclass adds the generator and its settings, under the generator's names.

    Attributes:
        train_size: problems in train at most; fewer where the settings allow fewer.
        validation_size: the same for validation.
        test_size: the same for test.
        seed: which problems are drawn; which split owns a problem does not depend on it.
    """

    train_size: int = 2000
    validation_size: int = 256
    test_size: int = 512
    seed: int = 0

    generator: ClassVar[Generator]
    version: ClassVar[int] = 1
    sample: ClassVar[Mapping[str, object]] = {"train_size": 64, "validation_size": 64, "test_size": 64}

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        for setting in ("train_size", "validation_size", "test_size"):
            require(getattr(self, setting) >= 1, setting, getattr(self, setting), "an int >= 1, e.g. 512")
        for setting, (least, largest) in self.generator.ranges.items():
            fits = least <= getattr(self, setting) <= largest
            require(fits, setting, getattr(self, setting), f"an int in [{least}, {largest}], e.g. {least}")

    def examples(self, split: Split) -> Sequence[Example]:
        """Return the examples of a split; drawn at the first call, then kept.

        Raises:
            ValueError: ``split`` is unknown, or the package reasoning-gym is missing.
        """
        check_split(split)
        return _examples(self, split, getattr(self, f"{split}_size"))

    def prompt(self, example: Example) -> str:
        """Return the question, and a line that says how to answer."""
        ending = f"End with a line that holds {MARKER} and the answer: {self.generator.kind.form}."
        return f"{example.data['question']}\n{ending}\n"

    def gold(self, example: Example) -> str:
        """Return e.g. ``#### 42``."""
        return f"{MARKER} {example.data['answer']}"

    def demonstrations(self, example: Example) -> Sequence[Demonstration]:
        """Return the bare answer; the generators write no steps."""
        return (Demonstration(self.gold(example), "bare"),)

    def score(self, example: Example, response: str) -> Score:
        """Return pass, wrong (another answer of the kind) or format (no marker, or no answer of the kind after it)."""
        answer, right = self.answer(response), example.data["answer"]
        if answer is None:
            return Score(0.0, "format", f"after the last {MARKER} expected nothing but {self.generator.kind.form}")
        if answer != right:
            return Score(0.0, "wrong", f"expected {right[:80]}, got {answer[:80]}")
        return Score(1.0, "pass")

    def answer(self, response: str) -> str | None:
        """Return the canonical answer (factors sorted, decimals without trailing zeros), None where there is none."""
        return self.generator.kind.read(response)

    def fingerprint(self) -> str:
        """Return a hash of settings, the rules' and the package's version and a sample of every split.

        Raises:
            ValueError: the package reasoning-gym is missing.
        """
        examples = [example for split in SPLITS for example in _examples(self, split, _SAMPLE)]
        texts = [f"{self.prompt(example)}{self.gold(example)}" for example in examples]
        name = f"rg_{self.generator.dataset}"
        return fingerprint(name, self.version, dataclasses.asdict(self), [package.version(), *texts])
