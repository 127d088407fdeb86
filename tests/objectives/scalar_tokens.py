"""Objectives whose ratio is a token's, in Python floats and loops, from spec/objectives.md and spec/methods.md.

Each takes the scene, the rows that a derivative moves, and settings whose defaults are the spec's.
"""

import math

from tests.objectives import scalar_parts as parts
from tests.objectives.scalar import Row, clip, ppo_minimum
from tests.objectives.scalar_parts import Scene, Table, grouped, ppo_terms, spread, table


def score(rows: list[Row], weighted: Table) -> Table:
    """-w A log pi of every token."""
    return table(rows, lambda i, t: -weighted[i][t] * rows[i].logprobs[t])


def reinforce(scene: Scene, rows: list[Row], *, baseline: str = "none") -> float:
    known = scene.rewards
    mean = sum(known) / len(known) if baseline == "batch" else 0.0
    return parts.constant(score(rows, spread(rows, [row.reward - mean for row in rows])), scene.max_tokens)


def rloo(scene: Scene, rows: list[Row]) -> float:
    return parts.constant(score(rows, spread(rows, parts.leave_one_out(scene))), scene.max_tokens)


def remax(scene: Scene, rows: list[Row]) -> float:
    return parts.constant(score(rows, spread(rows, [row.reward - row.greedy for row in rows])), scene.max_tokens)


def opo(scene: Scene, rows: list[Row]) -> float:
    return parts.constant(score(rows, spread(rows, parts.length_weighted(scene))), scene.max_tokens)


def reinforce_pp(
    scene: Scene,
    rows: list[Row],
    *,
    kl_coef: float = 0.01,
    gamma: float = 1.0,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> float:
    advantages = parts.whitened(parts.discounted_returns(scene, kl_coef, gamma))
    return parts.token_mean(ppo_terms(rows, advantages, clip_low, clip_high))


def reinforce_pp_baseline(scene: Scene, rows: list[Row], *, clip_low: float = 0.2, clip_high: float = 0.2) -> float:
    advantages = parts.whitened(spread(rows, parts.centred(scene)))
    return parts.token_mean(ppo_terms(rows, advantages, clip_low, clip_high))


def dr_grpo(scene: Scene, rows: list[Row], *, clip_low: float = 0.2, clip_high: float = 0.2) -> float:
    losses = ppo_terms(rows, spread(rows, parts.centred(scene)), clip_low, clip_high)
    return parts.constant(losses, scene.max_tokens)


def lite_ppo(
    scene: Scene, rows: list[Row], *, clip_low: float = 0.2, clip_high: float = 0.2, std_eps: float = 1e-6
) -> float:
    return parts.token_mean(ppo_terms(rows, spread(rows, parts.batch_scaled(scene, std_eps)), clip_low, clip_high))


def dapo(
    scene: Scene,
    rows: list[Row],
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    overlong_buffer: float = 0.2,
    overlong_filter: bool = False,
    weights: str = "prompt_mean",
    std_eps: float = 1e-6,
) -> float:
    losses = ppo_terms(rows, spread(rows, parts.punished(scene, overlong_buffer, std_eps)), clip_low, clip_high)
    kept = [i for i, row in enumerate(rows) if not (overlong_filter and row.at_limit)]
    losses = [losses[i] for i in kept]
    if weights == "token_mean":
        return parts.token_mean(losses)
    return parts.prompt_mean(losses, [rows[i] for i in kept])


def repo(
    scene: Scene,
    rows: list[Row],
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    replay_coef: float = 1.0,
    normaliser: str = "own",
    std_eps: float = 1e-4,
) -> float:
    """J_on + coef J_off, each a mean over its own responses; or both over all of them."""
    losses = ppo_terms(rows, spread(rows, grouped(scene, std_eps)), clip_low, clip_high)
    total = 0.0
    for replayed, factor in ((False, 1.0), (True, replay_coef)):
        part = [sum(one) / len(one) for row, one in zip(rows, losses, strict=True) if row.replayed is replayed]
        total += factor * sum(part) / (len(part) if normaliser == "own" else len(rows))
    return total


def cispo(
    scene: Scene, rows: list[Row], *, clip_low: float = 1.0, clip_high: float = 4.0, std_eps: float = 1e-6
) -> float:
    advantages = grouped(scene, std_eps)

    def weight(i: int, t: int) -> float:
        return clip(math.exp(scene.rows[i].log_ratios[t]), 1 - clip_low, 1 + clip_high) * advantages[i]

    return parts.token_mean(score(rows, table(rows, weight)))


def sapo(
    scene: Scene, rows: list[Row], *, tau_positive: float = 1.0, tau_negative: float = 1.05, std_eps: float = 1e-6
) -> float:
    advantages = grouped(scene, std_eps)

    def loss(i: int, t: int) -> float:
        tau = tau_positive if advantages[i] > 0 else tau_negative
        gate = 1 / (1 + math.exp(-tau * (math.exp(rows[i].log_ratios[t]) - 1)))
        return -4 / tau * gate * advantages[i]

    return parts.sequence_mean(table(rows, loss))


def dppo_tv(
    scene: Scene, rows: list[Row], *, tv_low: float = 0.15, tv_high: float = 0.15, std_eps: float = 1e-6
) -> float:
    advantages = grouped(scene, std_eps)

    def loss(i: int, t: int) -> float:
        still = scene.rows[i]
        moved = math.exp(still.logprobs[t]) - math.exp(still.old_logprobs[t])
        dropped = moved > tv_high if advantages[i] > 0 else moved < -tv_low
        return 0.0 if dropped else -math.exp(rows[i].log_ratios[t]) * advantages[i]

    return parts.token_mean(table(rows, loss))


def dppo_kl(
    scene: Scene, rows: list[Row], *, kl_low: float = 0.05, kl_high: float = 0.05, std_eps: float = 1e-6
) -> float:
    advantages = grouped(scene, std_eps)

    def loss(i: int, t: int) -> float:
        pi, mu = math.exp(scene.rows[i].logprobs[t]), math.exp(scene.rows[i].old_logprobs[t])
        pi = min(pi, 1 - 1e-7)
        kl = mu * math.log(mu / pi) + (1 - mu) * math.log((1 - mu) / (1 - pi))
        out = (advantages[i] > 0 and pi > mu and kl > kl_high) or (advantages[i] < 0 and pi < mu and kl > kl_low)
        return 0.0 if out else -math.exp(rows[i].log_ratios[t]) * advantages[i]

    return parts.token_mean(table(rows, loss))


def aspo(
    scene: Scene,
    rows: list[Row],
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    cap: float = 3.0,
    std_eps: float = 1e-6,
) -> float:
    advantages = grouped(scene, std_eps)

    def loss(i: int, t: int) -> float:
        ratio, still = math.exp(rows[i].log_ratios[t]), math.exp(scene.rows[i].log_ratios[t])
        if advantages[i] <= 0:
            return -ppo_minimum(ratio, advantages[i], clip_low, clip_high)
        weight = 0.0 if still > 1 + clip_high else min(1 / still, cap)
        return -weight * advantages[i] * rows[i].logprobs[t]

    return parts.token_mean(table(rows, loss))


def cpgd(
    scene: Scene,
    rows: list[Row],
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    alpha: float = 0.1,
    drift_max: float = 5.0,
    omega: str = "std",
    clip_filter_max: float = 3.0,
    std_eps: float = 1e-6,
) -> float:
    advantages = grouped(scene, std_eps) if omega == "std" else parts.centred(scene)
    if omega == "clip_filter":
        informative = {row.group for row in rows if max(scene.peers(row)) > min(scene.peers(row))}
        factor = min(clip_filter_max, len({row.group for row in rows}) / len(informative))
        advantages = [factor * x for x in advantages]
    low = math.log(1 - clip_low) if clip_low < 1 else -math.inf

    def loss(i: int, t: int) -> float:
        free = rows[i].log_ratios[t]
        phi = min(free * advantages[i], clip(free, low, math.log(1 + clip_high)) * advantages[i])
        drift = min(math.exp(scene.rows[i].log_ratios[t]) - 1, drift_max) * rows[i].logprobs[t]
        return -phi + alpha * drift

    return parts.prompt_mean(table(rows, loss), rows)


def kdrl(
    scene: Scene,
    rows: list[Row],
    *,
    beta_start: float = 5e-3,
    beta_end: float = 1e-3,
    distil: str = "all",
    std_eps: float = 1e-6,
) -> float:
    """At the first optimizer step."""
    advantages = grouped(scene, std_eps)
    solved = {row.group for row in rows if row.correct == 1}
    taught = {
        "all": lambda row: True,
        "wrong": lambda row: row.correct != 1,
        "unsolved": lambda row: row.group not in solved,
    }[distil]

    def loss(i: int, t: int) -> float:
        policy = -math.exp(rows[i].log_ratios[t]) * advantages[i]
        reward = rows[i].teacher_logprobs[t] - rows[i].logprobs[t]
        return policy + max(beta_start, beta_end) * taught(rows[i]) * reward**2 / 2

    return parts.token_mean(table(rows, loss))
