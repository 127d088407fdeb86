"""What all reasoning-gym tasks share: items of a generator become examples, responses are read and compared."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tasks import reasoning_gym_package as package
from tasks.base import Demonstration, Example, Score, Split, Task
from tasks.drawn import DrawnTask
from tasks.reasoning_gym_answers import MARKER
from tasks.reasoning_gym_generators import Generator
from tasks.settings import require
from tasks.splits import generate

__all__ = ["GymTask"]

TASKS: dict[str, type[Task]] = {}  # none by itself; those of reasoning_gym.py derive from it


@dataclass(frozen=True)
class GymTask(DrawnTask):
    """A task over one generator; a subclass adds the generator and its settings, under the generator's names.

    Attributes:
        train_size: as for every drawn task, as the other sizes; smaller, since the package's generators are slow.
        validation_size: likewise.
        test_size: likewise.
        generator: draws the items.
    """

    train_size: int = 2000
    validation_size: int = 256
    test_size: int = 512

    generator: ClassVar[Generator]
    num_hashed: ClassVar[int] = 16
    sample: ClassVar[Mapping[str, object]] = {"train_size": 64, "validation_size": 64, "test_size": 64}

    def __init_subclass__(cls) -> None:
        """Name the family by the generator."""
        super().__init_subclass__()
        cls.family = f"rg_{cls.generator.dataset}"

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        super().__post_init__()
        for setting, (least, largest) in self.generator.ranges.items():
            fits = least <= getattr(self, setting) <= largest
            require(fits, setting, getattr(self, setting), f"an int in [{least}, {largest}], e.g. {least}")

    def draw_examples(self, split: Split, size: int) -> Sequence[Example]:
        """Return items of the generator that a second computation confirms.

        Raises:
            ValueError: the package reasoning-gym is missing.
        """
        generator = self.generator
        draw = functools.partial(
            generator.draw, settings=tuple((name, getattr(self, name)) for name in generator.ranges)
        )
        return [
            Example(
                id=key,
                split=split,
                difficulty=generator.label(item),
                data={"question": generator.shown(item), "answer": generator.kind.canonical(generator.gold(item))},
            )
            for key, _, item in generate(self.family, self.seed, split, size, draw, generator.usable)
        ]

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

    def hashed(self, example: Example) -> str:
        """Return prompt and gold response, and the package's version."""
        return f"{package.version()} {self.prompt(example)}{self.gold(example)}"
