"""Baselines, weights and single terms, in Python floats and loops (spec/objectives.md, sections 1.1, 1.2 and 2)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from objectives.reference_engine import Case
from tests.objectives.scalar import Row, clip, empty_responses, group_advantages, ppo_minimum, rows_of

Table = list[list[float]]
"""A number for every token of every row."""


@dataclass(frozen=True)
class Scene:
    """What a formula needs beside the rows that a derivative moves.

    Attributes:
        rows: the same rows, never moved: what weights, masks and selections are computed from.
        empty: (group, reward) of responses without tokens; they count among the rewards.
        max_tokens: the length limit.
    """

    rows: list[Row]
    empty: list[tuple[int, float]]
    max_tokens: int

    def peers(self, row: Row) -> list[float]:
        """All known rewards of the row's group."""
        inside = [other.reward for other in self.rows if other.group == row.group]
        return inside + [reward for group, reward in self.empty if group == row.group]

    @property
    def rewards(self) -> list[float]:
        return [row.reward for row in self.rows] + [reward for _, reward in self.empty]


def scene_of(case: Case) -> Scene:
    assert case.rollout.max_response_tokens is not None
    return Scene(rows_of(case), empty_responses(case), case.rollout.max_response_tokens)


def table(rows: list[Row], term: Callable[[int, int], float]) -> Table:
    """``term(i, t)`` for token t of row i."""
    return [[term(i, t) for t in range(len(row.columns))] for i, row in enumerate(rows)]


# Weights: what stands before the sum over tokens


def sequence_mean(losses: Table) -> float:
    return sum(sum(row) / len(row) for row in losses) / len(losses)


def token_mean(losses: Table) -> float:
    return sum(map(sum, losses)) / sum(map(len, losses))


def constant(losses: Table, max_tokens: int) -> float:
    return sum(map(sum, losses)) / (len(losses) * max_tokens)


def prompt_mean(losses: Table, rows: list[Row]) -> float:
    means = []
    for group in sorted({row.group for row in rows}):
        flat = [x for row, one in zip(rows, losses, strict=True) if row.group == group for x in one]
        means.append(sum(flat) / len(flat))
    return sum(means) / len(means)


# Advantages, one a row


def deviation(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((x - mean) ** 2 for x in values) / (len(values) - 1))


def grouped(scene: Scene, std_eps: float) -> list[float]:
    return group_advantages(scene.rows, scene.empty, std_eps)


def centred(scene: Scene) -> list[float]:
    return [row.reward - sum(scene.peers(row)) / len(scene.peers(row)) for row in scene.rows]


def batch_scaled(scene: Scene, std_eps: float) -> list[float]:
    return [x / (deviation(scene.rewards) + std_eps) for x in centred(scene)]


def leave_one_out(scene: Scene) -> list[float]:
    found = []
    for row in scene.rows:
        others = scene.peers(row)
        others.remove(row.reward)
        found.append(row.reward - sum(others) / len(others))
    return found


def length_weighted(scene: Scene) -> list[float]:
    found = []
    for row in scene.rows:
        group = [other for other in scene.rows if other.group == row.group]
        tokens = sum(len(other.columns) for other in group)
        found.append(row.reward - sum(len(other.columns) * other.reward for other in group) / tokens)
    return found


def punished(scene: Scene, share: float, std_eps: float) -> list[float]:
    """DAPO's advantages: rewards lowered by length (eq. 13), then GRPO's."""
    buffer = share * scene.max_tokens

    def lowered(row: Row) -> float:
        over = len(row.columns) - (scene.max_tokens - buffer)
        return row.reward - clip(over / buffer, 0, 1) if buffer else row.reward

    found = []
    for row in scene.rows:
        group = [lowered(other) for other in scene.rows if other.group == row.group]
        group += [reward for number, reward in scene.empty if number == row.group]
        spread = max(group) - min(group)
        mean = sum(group) / len(group)
        found.append((lowered(row) - mean) / (deviation(group) + std_eps) if spread else 0.0)
    return found


# Advantages, one a token


def whitened(rows: Table) -> Table:
    flat = [x for row in rows for x in row]
    mean = sum(flat) / len(flat)
    std = math.sqrt(sum((x - mean) ** 2 for x in flat) / (len(flat) - 1) + 1e-8)
    return [[(x - mean) / std for x in row] for row in rows]


def discounted_returns(scene: Scene, kl_coef: float, gamma: float) -> Table:
    """Sum over s >= t of gamma^(s - t) (R at the end - kl_coef log(pi_old / pi_ref)_s); s - t counts sampled tokens."""
    found = []
    for row in scene.rows:
        kl = [old - ref for old, ref in zip(row.old_logprobs, row.ref_logprobs, strict=True)]
        rewards = [-kl_coef * x for x in kl]
        rewards[-1] += row.reward
        count = len(rewards)
        found.append([sum(gamma ** (s - t) * rewards[s] for s in range(t, count)) for t in range(count)])
    return found


# Losses of a token


def ppo_terms(rows: list[Row], advantages: Table, low: float, high: float) -> Table:
    """-min(r A, clip(r) A) of every token."""
    return table(rows, lambda i, t: -ppo_minimum(math.exp(rows[i].log_ratios[t]), advantages[i][t], low, high))


def spread(rows: list[Row], advantages: list[float]) -> Table:
    """A row's advantage at each of its tokens."""
    return table(rows, lambda i, t: advantages[i])
