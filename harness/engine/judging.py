"""Judge the responses that have ended: what they earned, and what else rewards are shaped from."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness.engine.infra import Tally, tally
from harness.scoring import score_pairs
from objectives import Finish
from tasks.base import Example, Task

__all__ = ["Judged", "judge"]


@dataclass(frozen=True)
class Judged:
    """Responses with their verdicts; [N] each.

    Attributes:
        rewards: float32, the task's; NaN for the verdict "infra", 0 for what the window cut off.
        correct: float32, 1 for the verdict "pass", else 0; NaN for "infra" and for what the window cut off.
        formatted: float32, 0 for the verdict "format", else 1; NaN for "infra" and for what the window cut off.
        lengths: int64, response tokens so far.
        finish: int8, a ``Finish``.
        tally: verdicts and reasons of the responses that have ended.
    """

    rewards: Tensor
    correct: Tensor
    formatted: Tensor
    lengths: Tensor
    finish: Tensor
    tally: Tally = field(default_factory=Counter)

    @property
    def ended(self) -> Tensor:
        """[N] bool, whose whole response is there."""
        return self.finish != Finish.WINDOW

    def rows(self, rows: Tensor) -> "Judged":
        """Return some rows [K] int64; the tally, which is of the judging, stays behind."""
        return Judged(
            self.rewards[rows], self.correct[rows], self.formatted[rows], self.lengths[rows], self.finish[rows]
        )

    def joined(self, other: "Judged") -> "Judged":
        """Return the rows of ``other`` under these; the tallies stay behind."""

        def both(name: str) -> Tensor:
            return torch.cat([getattr(self, name), getattr(other, name)])

        return Judged(both("rewards"), both("correct"), both("formatted"), both("lengths"), both("finish"))


def judge(task: Task, examples: Sequence[Example], texts: Sequence[str], lengths: Tensor, finish: Tensor) -> Judged:
    """Have the task score the responses that have ended.

    Args:
        task: the judge.
        examples: one a response.
        texts: the responses.
        lengths: [N] int64, their tokens.
        finish: [N] int8.
    """
    ended: list[int] = (finish != Finish.WINDOW).nonzero()[:, 0].tolist()
    scores = score_pairs(task, [(examples[row], texts[row]) for row in ended])
    rewards = torch.zeros(len(texts))
    correct, formatted = torch.full_like(rewards, torch.nan), torch.full_like(rewards, torch.nan)
    for row, score in zip(ended, scores, strict=True):
        if score.verdict == "infra":
            rewards[row] = torch.nan
            continue
        rewards[row] = score.value
        correct[row], formatted[row] = float(score.verdict == "pass"), float(score.verdict != "format")
    return Judged(rewards, correct, formatted, lengths, finish, tally(scores))
