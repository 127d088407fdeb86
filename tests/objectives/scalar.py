"""The formulas once more, in Python floats and loops, written from the papers' equations and not from the code."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from objectives import Finish, Origin
from objectives.reference_engine import Case


@dataclass(frozen=True)
class Row:
    """The sampled tokens of one response with a known reward."""

    index: int
    columns: tuple[int, ...]
    reward: float
    group: int
    logprobs: tuple[float, ...]
    old_logprobs: tuple[float, ...]
    values: tuple[float, ...]
    entropy: tuple[float, ...]
    old_values: tuple[float, ...]
    bootstrap: float
    ref_logprobs: tuple[float, ...]
    teacher_logprobs: tuple[float, ...]
    greedy: float
    correct: float
    at_limit: bool
    replayed: bool

    @property
    def log_ratios(self) -> list[float]:
        return [new - old for new, old in zip(self.logprobs, self.old_logprobs, strict=True)]


def rows_of(case: Case) -> list[Row]:
    """Return the rows that have tokens and a reward, without anything masked."""
    rollout, found = case.rollout, []
    for i in range(len(rollout.rewards)):
        reward = float(rollout.rewards[i])
        columns = tuple(t for t in range(rollout.response_mask.shape[1]) if bool(rollout.response_mask[i, t]))
        if math.isnan(reward) or not columns:
            continue
        old_values: tuple[float, ...] = (0.0,) * len(columns)
        bootstrap = 0.0
        if rollout.old_values is not None:
            old_values = tuple(float(rollout.old_values[i, t]) for t in columns)
            if int(rollout.finish[i]) == Finish.WINDOW:
                bootstrap = float(rollout.old_values[i, columns[-1] + 1])
        pick = {name: tuple(float(value[i, t]) for t in columns) for name, value in case.current.items()}
        frozen = {
            name: tuple(0.0 if value is None else float(value[i, t]) for t in columns)
            for name, value in (("ref", rollout.ref_logprobs), ("teacher", rollout.teacher_logprobs))
        }
        found.append(
            Row(
                index=i,
                columns=columns,
                reward=reward,
                group=int(rollout.group[i]),
                logprobs=pick["logprobs"],
                old_logprobs=tuple(float(rollout.old_logprobs[i, t]) for t in columns),
                values=pick["values"],
                entropy=pick["entropy"],
                old_values=old_values,
                bootstrap=bootstrap,
                ref_logprobs=frozen["ref"],
                teacher_logprobs=frozen["teacher"],
                greedy=0.0 if rollout.greedy_rewards is None else float(rollout.greedy_rewards[i]),
                correct=0.0 if rollout.correct is None else float(rollout.correct[i]),
                at_limit=int(rollout.finish[i]) == Finish.LENGTH,
                replayed=int(rollout.origin[i]) == Origin.REPLAY,
            )
        )
    return found


def empty_responses(case: Case) -> list[tuple[int, float]]:
    """(group, reward) of the responses without tokens."""
    rollout = case.rollout
    rows = [i for i in range(len(rollout.rewards)) if not bool(rollout.response_mask[i].any())]
    return [(int(rollout.group[i]), float(rollout.rewards[i])) for i in rows]


def group_advantages(rows: list[Row], empty: list[tuple[int, float]], std_eps: float) -> list[float]:
    """(R - mean) / (sample std + eps) by group; ``empty`` are (group, reward) of responses without tokens."""
    found = []
    for row in rows:
        peers = [other.reward for other in rows if other.group == row.group]
        peers += [reward for group, reward in empty if group == row.group]
        if len(peers) < 2 or max(peers) == min(peers):
            found.append(0.0)
            continue
        mean = sum(peers) / len(peers)
        std = math.sqrt(sum((r - mean) ** 2 for r in peers) / (len(peers) - 1))
        found.append((row.reward - mean) / (std + std_eps))
    return found


def clip(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def ppo_minimum(ratio: float, advantage: float, low: float, high: float) -> float:
    return min(ratio * advantage, clip(ratio, 1 - low, 1 + high) * advantage)


def grpo(rows: list[Row], advantages: list[float], low: float, high: float) -> float:
    total = 0.0
    for row, advantage in zip(rows, advantages, strict=True):
        terms = [ppo_minimum(math.exp(x), advantage, low, high) for x in row.log_ratios]
        total -= sum(terms) / len(terms)
    return total / len(rows)


def gspo(rows: list[Row], advantages: list[float], low: float, high: float) -> float:
    total = 0.0
    for row, advantage in zip(rows, advantages, strict=True):
        ratio = math.exp(sum(row.log_ratios) / len(row.columns))
        total -= ppo_minimum(ratio, advantage, low, high)
    return total / len(rows)


def gae(row: Row, gamma: float, lam: float) -> list[float]:
    """Sum over l of (gamma lam)^l delta_{t+l}: the definition, not the recursion."""
    values = [*row.old_values, row.bootstrap]
    last = len(row.columns) - 1
    deltas = [(row.reward if t == last else 0.0) + gamma * values[t + 1] - values[t] for t in range(last + 1)]
    return [sum((gamma * lam) ** (s - t) * deltas[s] for s in range(t, last + 1)) for t in range(last + 1)]


def ppo(
    rows: list[Row],
    *,
    low: float,
    high: float,
    value_clip: float,
    gamma: float,
    lam: float,
    entropy: float,
    dual: float | None = None,
) -> float:
    estimates = [gae(row, gamma, lam) for row in rows]
    flat = [a for one in estimates for a in one]
    mean = sum(flat) / len(flat)
    std = math.sqrt(sum((a - mean) ** 2 for a in flat) / (len(flat) - 1) + 1e-8)
    total = 0.0
    for row, estimate in zip(rows, estimates, strict=True):
        for t, raw in enumerate(estimate):
            target = raw + row.old_values[t]
            near = clip(row.values[t], row.old_values[t] - value_clip, row.old_values[t] + value_clip)
            advantage = (raw - mean) / std
            policy = ppo_minimum(math.exp(row.log_ratios[t]), advantage, low, high)
            total -= policy if dual is None or advantage >= 0 else max(policy, dual * advantage)
            total += max((row.values[t] - target) ** 2, (near - target) ** 2) / 2
            total -= entropy * row.entropy[t]
    return total / len(flat)


def slopes(
    loss: Callable[[list[Row]], float], rows: list[Row], field: str, step: float = 1e-6
) -> dict[tuple[int, int], float]:
    """Central differences of ``loss`` in every entry of ``field``, by (row, column)."""
    found = {}
    for i, row in enumerate(rows):
        values = getattr(row, field)
        for t, column in enumerate(row.columns):
            sides = []
            for sign in (1, -1):
                moved = (*values[:t], values[t] + sign * step, *values[t + 1 :])
                sides.append(loss([*rows[:i], replace(row, **{field: moved}), *rows[i + 1 :]]))
            found[row.index, column] = (sides[0] - sides[1]) / (2 * step)
    return found
