"""Bingo's reward: length by significance, and a weight that follows the score (2025, arXiv:2506.08125, authors' code).

    x_I = n_I / n_I of the reference's response, x_S likewise for significant tokens,   C(x) = cos(min(x, pi / 2))
    right: R = 1 + right_coef C(x_I)
    wrong: R = min(0, wrong_coef (C(x_I) - 1) + k x_S - significant_coef)
    k0 = significant_coef / (pi / 2) until there is a slope; then, with the slope of the mean reward over the last
    ``slope_rollouts`` in units of the first slope over k0:
        slope > slope_threshold: k = slope;    else k = max(-2 k0, -0.5 times the rollouts in a row that it was not)

While the score climbs, long significant thought in wrong answers is punished less; on a plateau it is punished.
Deviations from the code: a count of 0 in the reference's response makes its ratio 1 (there it gives the full bonus);
"right" is the task's verdict (there a reward of exactly 1); steps are rollouts. No torch.
"""

import json
import math
from dataclasses import dataclass, field

import numpy as np

from harness.config.parts import ShapingConfig

__all__ = ["Bingo", "Counts"]


@dataclass(frozen=True)
class Counts:
    """Tokens of a response by significance."""

    insignificant: int
    significant: int


@dataclass
class Bingo:
    """The reward and what it remembers.

    Attributes:
        config: coefficients.
        references: example id -> counts of the reference policy's response to it.
        scores: mean task reward of every rollout so far.
        weight: k.
        first_slope: the one that sets the unit; None until there is one.
        plateau: rollouts in a row whose slope was not above the threshold.
    """

    config: ShapingConfig
    references: dict[str, Counts] = field(default_factory=dict[str, Counts])
    scores: list[float] = field(default_factory=list[float])
    weight: float = 0.0
    first_slope: float | None = None
    plateau: int = 0

    def __post_init__(self) -> None:
        self.weight = self.weight or self._start

    @property
    def _start(self) -> float:
        return self.config.significant_coef / (math.pi / 2)

    def reward(self, *, right: bool, counts: Counts, reference: Counts) -> float:
        """Return the shaped reward of a response."""
        cosine = math.cos(min(_ratio(counts.insignificant, reference.insignificant), math.pi / 2))
        if right:
            return 1 + self.config.right_coef * cosine
        significant = self.weight * _ratio(counts.significant, reference.significant)
        return min(0.0, self.config.wrong_coef * (cosine - 1) + significant - self.config.significant_coef)

    def observe(self, score: float) -> None:
        """Take note of a rollout's mean task reward and move the weight; NaN (nothing known) changes nothing."""
        if math.isnan(score):
            return
        self.scores.append(score)
        window = self.scores[-self.config.slope_rollouts :]
        if len(self.scores) < self.config.slope_start or len(window) < self.config.slope_rollouts:
            return
        slope = float(np.polyfit(np.arange(len(window)), window, 1)[0])
        if self.first_slope is None:
            self.first_slope = max(1e-6, abs(slope))
        slope *= self._start / self.first_slope
        if slope > self.config.slope_threshold:
            self.plateau, self.weight = 0, slope
        else:
            self.plateau += 1
            self.weight = max(-2 * self._start, -0.5 * self.plateau)

    def state(self) -> str:
        """Return everything but the configuration as JSON, for a checkpoint."""
        references = {name: [c.insignificant, c.significant] for name, c in self.references.items()}
        rest = {"scores": self.scores, "weight": self.weight, "first": self.first_slope, "plateau": self.plateau}
        return json.dumps({"references": references, **rest})

    def restore(self, text: str) -> None:
        """Go on from what ``state`` returned."""
        state = json.loads(text)
        self.references = {name: Counts(*counts) for name, counts in state["references"].items()}
        self.scores, self.weight = state["scores"], state["weight"]
        self.first_slope, self.plateau = state["first"], state["plateau"]


def _ratio(count: int, reference: int) -> float:
    return count / reference if reference else 1.0
