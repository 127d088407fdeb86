"""Objectives of a response, a group or a step, in Python floats and loops, from spec/objectives.md and methods.md.

Each takes the scene, the rows that a derivative moves, and settings whose defaults are the spec's.
"""

import math

from tests.objectives import scalar_parts as parts
from tests.objectives.scalar import Row, clip, ppo_minimum
from tests.objectives.scalar_parts import Scene, Table, centred, grouped, ppo_terms, spread, table
from tests.objectives.scalar_tokens import score


def luspo(
    scene: Scene, rows: list[Row], *, clip_low: float = 2e-3, clip_high: float = 2.5e-3, std_eps: float = 1e-6
) -> float:
    total = 0.0
    for row, advantage in zip(rows, grouped(scene, std_eps), strict=True):
        ratio = math.exp(sum(row.log_ratios) / len(row.columns))
        total -= len(row.columns) * ppo_minimum(ratio, advantage, clip_low, clip_high)
    return total / (len(rows) * scene.max_tokens)


def gspo_token(
    scene: Scene, rows: list[Row], *, clip_low: float = 3e-4, clip_high: float = 4e-4, std_eps: float = 1e-6
) -> float:
    """s_t = sg(s) pi / sg(pi)."""
    advantages = grouped(scene, std_eps)

    def loss(i: int, t: int) -> float:
        still = scene.rows[i]
        s = math.exp(sum(still.log_ratios) / len(still.columns))
        s_t = s * math.exp(rows[i].logprobs[t]) / math.exp(still.logprobs[t])
        return -ppo_minimum(s_t, advantages[i], clip_low, clip_high)

    return parts.sequence_mean(table(rows, loss))


def gmpo(
    scene: Scene, rows: list[Row], *, log_clip_low: float = 0.4, log_clip_high: float = 0.4, std_eps: float = 1e-6
) -> float:
    total = 0.0
    for row, advantage in zip(rows, grouped(scene, std_eps), strict=True):
        factors = [math.exp(min(x, log_clip_high) if advantage > 0 else max(x, -log_clip_low)) for x in row.log_ratios]
        total -= advantage * math.prod(factors) ** (1 / len(factors))
    return total / len(rows)


def vespo(
    scene: Scene,
    rows: list[Row],
    *,
    k_positive: float = 2.0,
    lam_positive: float = 3.0,
    k_negative: float = 3.0,
    lam_negative: float = 2.0,
    std_eps: float = 1e-6,
) -> float:
    weighted = []
    for row, advantage in zip(scene.rows, grouped(scene, std_eps), strict=True):
        whole = math.prod(math.exp(x) for x in row.log_ratios)
        k, lam = (k_positive, lam_positive) if advantage >= 0 else (k_negative, lam_negative)
        weighted.append(whole**k * math.exp(lam * (1 - whole)) * advantage)
    return parts.token_mean(score(rows, spread(rows, weighted)))


def topr(scene: Scene, rows: list[Row], *, baseline: float = 0.0) -> float:
    """Rewards from 0 to 1 stand for the paper's from -1 to 1."""
    weighted = []
    for row in scene.rows:
        advantage = 2 * row.reward - 1 - baseline
        whole = math.prod(math.exp(x) for x in row.log_ratios)
        weighted.append(advantage if advantage >= 0 else min(whole, 1.0) * advantage)
    return parts.constant(score(rows, spread(rows, weighted)), scene.max_tokens)


def kimi(scene: Scene, rows: list[Row], *, tau: float = 0.1) -> float:
    total = 0.0
    for row, advantage in zip(rows, centred(scene), strict=True):
        total += -advantage * sum(row.logprobs) + tau / 2 * sum(row.log_ratios) ** 2
    return total / (len(rows) * scene.max_tokens)


def fspo(
    scene: Scene, rows: list[Row], *, band_low: float = 0.03, band_high: float = 0.03, std_eps: float = 1e-6
) -> float:
    total = 0.0
    for row, advantage in zip(rows, grouped(scene, std_eps), strict=True):
        whole, root = sum(row.log_ratios), math.sqrt(len(row.columns))
        bounded = clip(whole, -band_low * root, band_high * root)
        total -= min(math.exp(whole) * advantage, math.exp(bounded) * advantage)
    return total / (len(rows) * scene.max_tokens)


def reg_grpo(
    scene: Scene, rows: list[Row], *, std_eps: float = 0.01, detach_stats: bool = False, reduce: str = "sum"
) -> float:
    """std_eps / 2 sum_i (A_i - P_i)^2; its value is not the token loss's, which only carries the gradient."""

    def log_ratio(row: Row) -> float:
        return sum(row.log_ratios) / (len(row.columns) if reduce == "mean" else 1)

    total = 0.0
    for row, advantage in zip(rows, grouped(scene, 0.0), strict=True):
        group = [other for other in (scene.rows if detach_stats else rows) if other.group == row.group]
        if max(other.reward for other in group) == min(other.reward for other in group):
            continue  # a group without a target has nothing to regress on
        ratios = [log_ratio(other) for other in group]
        predicted = (log_ratio(row) - sum(ratios) / len(ratios)) / math.hypot(parts.deviation(ratios), std_eps)
        total += std_eps / 2 * (advantage - predicted) ** 2
    return total / (len(rows) * scene.max_tokens)


# Objectives that select tokens by their covariance over the step


def covariances(scene: Scene, advantages: list[float]) -> Table:
    """(log pi - mean)(A - mean), means over all tokens."""
    logprobs = [x for row in scene.rows for x in row.logprobs]
    flat = [x for row in spread(scene.rows, advantages) for x in row]
    middle, mean = sum(logprobs) / len(logprobs), sum(flat) / len(flat)
    return table(scene.rows, lambda i, t: (scene.rows[i].logprobs[t] - middle) * (advantages[i] - mean))


def places(scene: Scene) -> list[tuple[int, int]]:
    return [(i, t) for i, row in enumerate(scene.rows) for t in range(len(row.columns))]


def clip_cov(
    scene: Scene,
    rows: list[Row],
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    fraction: float = 2e-4,
    cov_low: float = 1.0,
    cov_high: float = 5.0,
    std_eps: float = 1e-6,
) -> float:
    """The uniforms are those of ``reference_engine``: a function of pi_old's log-probability."""
    advantages = grouped(scene, std_eps)
    cov = covariances(scene, advantages)

    def candidate(i: int, t: int) -> bool:
        ratio, a = math.exp(scene.rows[i].log_ratios[t]), advantages[i]
        clipped = (a > 0 and ratio > 1 + clip_high) or (a < 0 and ratio < 1 - clip_low)
        return cov_low < cov[i][t] < cov_high and not clipped

    everywhere = places(scene)
    drawn = sorted(
        (place for place in everywhere if candidate(*place)),
        key=lambda place: scene.rows[place[0]].old_logprobs[place[1]] * 1e4 % 1,
    )[: max(1, int(fraction * len(everywhere)))]
    usual = ppo_terms(rows, spread(rows, advantages), clip_low, clip_high)
    return parts.token_mean(table(rows, lambda i, t: 0.0 if (i, t) in drawn else usual[i][t]))


def kl_cov(
    scene: Scene, rows: list[Row], *, fraction: float = 2e-3, kl_coef: float = 1.0, std_eps: float = 1e-6
) -> float:
    advantages = grouped(scene, std_eps)
    cov = covariances(scene, advantages)
    everywhere = places(scene)
    held = sorted(everywhere, key=lambda place: -cov[place[0]][place[1]])
    held = held[: max(1, int(fraction * len(everywhere)))]

    def loss(i: int, t: int) -> float:
        distance = kl_coef * abs(rows[i].log_ratios[t]) if (i, t) in held else 0.0
        return -math.exp(rows[i].log_ratios[t]) * advantages[i] + distance

    return parts.token_mean(table(rows, loss))
