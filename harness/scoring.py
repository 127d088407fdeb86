"""Score responses with a task, sum up the scores of a split, and make the rows that a reader sees. Imports no torch.

A prompt counts once, whatever its number of responses. What could not be scored (``infra``) is left out of every mean,
counted, and shown beside it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.config.errors import UserError
from harness.reports.pass_at_k import Rate, majority_at_k, pass_at_k, rate
from tasks.base import VERDICTS, Example, Score, Split, Task

__all__ = ["FOREIGN", "Group", "examples_of", "sample_row", "score_pairs", "summarise", "vote_answers"]


FOREIGN = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What a task from outside may raise where it should not."""


@dataclass(frozen=True)
class Group:
    """The scored responses to one prompt.

    Attributes:
        difficulty: of the example.
        scores: one a response.
        answers: one a response, to vote with; None where the task's answers cannot be voted on.
    """

    difficulty: str
    scores: Sequence[Score]
    answers: Sequence[str | None] | None = None

    @property
    def known(self) -> list[Score]:
        """The scores that could be computed."""
        return [score for score in self.scores if not math.isnan(score.value)]

    def passed(self, k: int) -> float | None:
        """Return pass@k; None with fewer than k known scores."""
        known = self.known
        right = sum(score.verdict == "pass" for score in known)
        return pass_at_k(len(known), right, k) if len(known) >= k else None

    def voted(self, k: int) -> float | None:
        """Return maj@k; None with fewer than k known scores, or without answers."""
        if self.answers is None or len(self.known) < k:
            return None
        both = [(a, s) for a, s in zip(self.answers, self.scores, strict=True) if not math.isnan(s.value)]
        return majority_at_k([answer for answer, _ in both], [score.verdict == "pass" for _, score in both], k)


def examples_of(task: Task, split: Split) -> Sequence[Example]:
    """Return the examples of a split; UserError where the task cannot make them, or there are none."""
    name = type(task).__name__
    try:
        examples = task.examples(split)
    except ValueError as error:
        raise UserError(str(error)) from error
    except FOREIGN as error:
        raise UserError(f"{name}.examples({split!r}) failed ({type(error).__name__}: {error})") from error
    if not isinstance(examples, Sequence) or not all(isinstance(example, Example) for example in examples[:1]):
        raise UserError(f"{name}.examples({split!r}) gave a {type(examples).__name__}, expected a list of Example")
    if not examples:
        raise UserError(f"split {split!r} of {name} has no examples: choose another one")
    return examples


def score_pairs(task: Task, pairs: Sequence[tuple[Example, str]]) -> list[Score]:
    """Return one score a pair, in order.

    Raises:
        UserError: the task refuses to score, gives more scores or fewer, so that none could be matched, or one that
            does not mean what it says.
    """
    try:
        scores = task.score_many(pairs)
    except ValueError as error:
        raise UserError(f"{type(task).__name__} cannot score: {error}") from error
    except FOREIGN as error:
        raise UserError(f"{type(task).__name__} cannot score ({type(error).__name__}: {error})") from error
    if len(scores) != len(pairs):
        raise UserError(
            f"{type(task).__name__}.score_many gave {len(scores)} scores for {len(pairs)} responses: it must give one "
            "a response, in their order"
        )
    for (example, _), score in zip(pairs, scores, strict=True):
        if fault := _fault(score):
            raise UserError(f"{type(task).__name__} scored example {example.id!r} with {fault}")
    return scores


def _fault(score: Score) -> str:
    """Return what is wrong with a score, "" where nothing is: a silent zero must not come from outside either."""
    if not isinstance(score, Score) or score.verdict not in VERDICTS:
        return f"{score!r:.100}, expected a Score with a verdict of {', '.join(VERDICTS)}"
    if math.isnan(score.value) != (score.verdict == "infra"):
        return f"{score!r:.100}, expected the value NaN for the verdict infra and for no other"
    if not math.isnan(score.value) and not 0 <= score.value <= 1:
        return f"{score!r:.100}, expected a value in [0, 1]"
    return ""


def vote_answers(task: Task, responses: Sequence[str]) -> list[str | None] | None:
    """Return the answer of each response; None where the task's answers cannot be voted on."""
    if type(task).answer is Task.answer:
        return None
    return [task.answer(response) for response in responses]


def summarise(groups: Sequence[Group], ks: Sequence[int] = (1,)) -> dict[str, Any]:
    """Return what an evaluation says as plain values; None where unknown.

    Args:
        groups: one a prompt.
        ks: pass@k is given for 1 and each of these, maj@k for each above 1.

    Returns:
        "score" (mean reward), "num_prompts", "num_responses", "infra", "verdicts", "by_difficulty" (mean reward),
        "pass_at_<k>" with "_low", "_high" (its interval, see ``harness.reports.pass_at_k.rate``) and "_prompts" (those
        with k scored responses; the others are left out), "maj_at_<k>" with "_low" and "_high",
        "pass_at_1_floor" (what it were with infra counted as wrong) and "pass_by_difficulty" (pass@1).
    """
    scores = [score for group in groups for score in group.scores]
    verdicts = Counter(score.verdict for score in scores)
    rewards = [float(np.mean([score.value for score in group.known])) for group in groups if group.known]
    summary: dict[str, Any] = {
        "score": float(np.mean(rewards)) if rewards else None,
        "num_prompts": len(groups),
        "num_responses": len(scores),
        "infra": verdicts.get("infra", 0),
        "verdicts": dict(sorted(verdicts.items())),
        "by_difficulty": _rewards_by_difficulty(groups),
    }
    for k in sorted({1, *ks}):
        found = _rate(groups, lambda group, k=k: group.passed(k))
        summary |= {**_columns(f"pass_at_{k}", found), f"pass_at_{k}_prompts": found.num}
        if k > 1:
            summary |= _columns(f"maj_at_{k}", _rate(groups, lambda group, k=k: group.voted(k)))
    floors = [sum(score.verdict == "pass" for score in g.scores) / len(g.scores) for g in groups if g.scores]
    summary["pass_at_1_floor"] = float(np.mean(floors)) if floors else None
    summary["pass_by_difficulty"] = {
        label: _labelled([group for group in groups if group.difficulty == label])
        for label in sorted({group.difficulty for group in groups})
    }
    return summary


def sample_row(example: Example, prompt: int, sample: int, text: str, response: str, score: Score) -> dict[str, Any]:
    """Return one scored response as a row of plain JSON values, as ``evengrad samples`` reads it.

    Args:
        example: what was asked.
        prompt: position of the prompt in the evaluation.
        sample: position of the response among the prompt's.
        text: the prompt.
        response: what the policy wrote.
        score: None stands for a value that is NaN.
    """
    return {
        "split": example.split,
        "id": example.id,
        "prompt_index": prompt,
        "sample_index": sample,
        "difficulty": example.difficulty,
        "prompt": text,
        "response": response,
        "verdict": score.verdict,
        "reason": score.reason,
        "value": None if math.isnan(score.value) else score.value,
    }


def _rewards_by_difficulty(groups: Sequence[Group]) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        if group.known:
            values[group.difficulty].append(float(np.mean([score.value for score in group.known])))
    return {label: float(np.mean(rewards)) for label, rewards in sorted(values.items()) if rewards}


def _labelled(groups: Sequence[Group]) -> dict[str, Any]:
    found = _rate(groups, lambda group: group.passed(1))
    return {**_columns("pass_at_1", found), "num_prompts": len(groups), "num_scored_prompts": found.num}


def _rate(groups: Sequence[Group], value: Callable[[Group], float | None]) -> Rate:
    found = [value(group) for group in groups]
    return rate([number for number in found if number is not None])


def _columns(name: str, found: Rate) -> dict[str, float | None]:
    numbers = {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}
    return {key: None if math.isnan(number) else number for key, number in numbers.items()}
