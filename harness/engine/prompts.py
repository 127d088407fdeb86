"""Which prompts a rollout is made of: a shuffled stream of examples, some of which are passed over. No torch.

Every run of a seed walks the same stream. What is passed over is neither sampled nor charged:
- a prompt that is too hard for now. The labels are sorted from easy to hard; with the share f of the budget spent
      linear: c(f) = min(1, s + (1 - s) f / T)        root: c(f) = min(1, sqrt(s^2 + (1 - s^2) f / T))
  and open are the easiest c of the examples and all that share a label with one of these (competence-based curriculum,
  Platanios et al. 2019, arXiv:1903.09848; s is ``start_share``, T ``open_at``).
- a prompt that the policy last answered too often, or too seldom, right: every response of a group alike teaches a
  group-relative objective nothing (dynamic sampling, arXiv:2503.14476, pays for such a group before it drops it). It
  is passed over ``revisit`` times and then sampled and measured again. So no prompt is given up, and where all wait the
  walk goes on until the first has waited long enough: a rollout never lacks prompts.
The state is what was measured and how often each prompt was passed over since: a function of seed, position and record.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.config.errors import UserError
from harness.config.parts import PromptsConfig
from harness.engine.streams import prompt_stream
from tasks.base import Example

__all__ = ["PROMPT_METRICS", "Draw", "Prompts", "sorted_labels"]

PROMPT_METRICS = ("competence", "open_prompts_frac", "waiting_prompts_frac")
"""Names of ``Prompts.metrics``."""


@dataclass(frozen=True)
class Draw:
    """Prompts of one walk along the stream.

    Attributes:
        examples: in the order of the stream.
        cursor: position in the stream after them.
        waiting: prompts that were passed over for their pass rate.
    """

    examples: list[Example]
    cursor: int
    waiting: int


class Prompts:
    """The prompts of a run.

    Attributes:
        examples: what the stream is made of: the task's, with the labels asked for.
        rates: example id -> share of right responses in its last group, of those that could be scored.
        passed: example id -> times it was passed over since then.
    """

    def __init__(self, config: PromptsConfig, seed: int, examples: Sequence[Example]) -> None:
        """Take the examples of the split "train".

        Raises:
            UserError: there is none, or a label is unknown, missing, given twice, or the only one of a curriculum.
        """
        self._config, self._seed = config, seed
        self.examples = _chosen(examples, config.difficulties)
        self._easier: dict[str, float] = {}
        if config.order == "easy_to_hard":
            _refuse_strangers("difficulty_order", config.difficulty_order, examples)
            self._easier = _easier_shares(self.examples, config.difficulty_order)
        self.rates: dict[str, float] = {}
        self.passed: dict[str, int] = {}

    def competence(self, fraction: float) -> float | None:
        """Return c after the share ``fraction`` of the budget; None without a curriculum."""
        if not self._easier:
            return None
        start, time = self._config.start_share, fraction / self._config.open_at
        if self._config.pacing == "linear":
            return min(1.0, start + (1 - start) * time)
        return min(1.0, math.sqrt(start**2 + (1 - start**2) * time))

    def open_share(self, fraction: float) -> float | None:
        """Return the share of the examples that are not too hard for now; None without a curriculum."""
        competence = self.competence(fraction)
        if competence is None:
            return None
        return min((share for share in self._easier.values() if share >= competence), default=1.0)

    def draw(self, cursor: int, count: int, fraction: float) -> Draw:
        """Walk along the stream from position ``cursor`` until ``count`` prompts are found.

        Args:
            cursor: position.
            count: prompts; one may come twice where few are open.
            fraction: share of the budget spent.
        """
        competence = self.competence(fraction)
        stream = prompt_stream(self._seed, len(self.examples), cursor)
        found: list[Example] = []
        waiting = 0
        while len(found) < count:
            example = self.examples[next(stream)]
            cursor += 1
            if competence is not None and self._easier[example.difficulty] >= competence:
                continue
            if self._waits(example.id):
                waiting += 1
                self.passed[example.id] = self.passed.get(example.id, 0) + 1
                continue
            found.append(example)
        return Draw(found, cursor, waiting)

    def metrics(self, draws: Sequence[Draw], fraction: float) -> dict[str, float | None]:
        """Return what the log says of the walk of one rollout; None of a part that the run does not have."""
        waiting, found = sum(draw.waiting for draw in draws), sum(len(draw.examples) for draw in draws)
        share = waiting / (waiting + found) if self._config.filters else None
        return dict(zip(PROMPT_METRICS, (self.competence(fraction), self.open_share(fraction), share), strict=True))

    def observe(self, example: str, correct: Sequence[float]) -> None:
        """Take note of a group: 1 right, 0 wrong, NaN unknown; a group of which nothing is known changes nothing."""
        known = [value for value in correct if not math.isnan(value)]
        if known and self._config.filters:
            self.rates[example] = sum(known) / len(known)
            self.passed.pop(example, None)

    def _waits(self, example: str) -> bool:
        rate = self.rates.get(example)
        if rate is None or self._config.min_pass_rate <= rate <= self._config.max_pass_rate:
            return False
        return self.passed.get(example, 0) < self._config.revisit

    def state(self) -> str:
        """Return what was measured and passed over as JSON, for a checkpoint."""
        return json.dumps({"rates": self.rates, "passed": self.passed})

    def restore(self, text: str) -> None:
        """Go on from what ``state`` returned."""
        state = json.loads(text)
        self.rates, self.passed = state["rates"], state["passed"]


def sorted_labels(labels: Iterable[str]) -> list[str]:
    """Return different labels in the order of their names, numbers in them as numbers: "2 steps" before "10 steps"."""

    def key(label: str) -> list[tuple[bool, float, str]]:
        parts = re.split(r"(\d+(?:\.\d+)?)", label)
        return [(False, float(part), "") if i % 2 else (True, 0.0, part) for i, part in enumerate(parts)]

    return sorted(set(labels), key=lambda label: (key(label), label))


def _chosen(examples: Sequence[Example], labels: Sequence[str]) -> Sequence[Example]:
    if not examples:
        raise UserError("the task has no training example: there is no prompt to sample from")
    _refuse_strangers("difficulties", labels, examples)
    return [example for example in examples if example.difficulty in labels] if labels else examples


def _easier_shares(examples: Sequence[Example], order: Sequence[str]) -> dict[str, float]:
    """Return for each label the share of the examples that are easier."""
    counts = Counter(example.difficulty for example in examples)
    labels = [label for label in order if label in counts] or sorted_labels(counts)
    missing = [label for label in sorted_labels(counts) if label not in labels]
    if missing or len(set(labels)) < len(labels):
        fault = f"leaves out {', '.join(map(repr, missing))}" if missing else "names a label twice"
        raise UserError(f"prompts.difficulty_order = {order} {fault}: name each label of the prompts once, easy first")
    if len(labels) == 1:
        raise UserError(
            f"prompts.order = 'easy_to_hard' needs two difficulty labels or more; the prompts have only {labels[0]!r}"
        )
    return {label: sum(counts[easier] for easier in labels[:i]) / len(examples) for i, label in enumerate(labels)}


def _refuse_strangers(setting: str, asked: Sequence[str], examples: Sequence[Example]) -> None:
    known = {example.difficulty for example in examples} if asked else set[str]()
    strangers = [label for label in asked if label not in known]
    if strangers:
        raise UserError(
            f"prompts.{setting} names {', '.join(map(repr, strangers))}, which no training prompt has; the labels are "
            f"{', '.join(map(repr, sorted_labels(known)))}"
        )
