"""T-PPO against its formulas in plain floats (spec/methods.md, 4), and what they imply."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import objectives
from objectives import Finish
from objectives.reference_engine import Case, one_step, random_case
from tests.objectives import scalar
from tests.objectives.scalar import Row
from tests.objectives.test_reference import compare

REQUIRES = objectives.make("tppo").requires
CUT = 0
"""The row of ``random_case`` that the window cut off."""


def case_of(seed: int = 0) -> Case:
    return random_case(REQUIRES, spread=0.4, seed=seed)


def cut_off(case: Case, row: Row) -> bool:
    return int(case.rollout.finish[row.index]) == Finish.WINDOW


def estimates(case: Case, row: Row, gamma: float, lam: float) -> list[float]:
    """Extended GAE: a cut-off response ends in its last state's value and has no reward."""
    cut, length = cut_off(case, row), len(row.columns)
    values = [*row.old_values, row.old_values[-1] if cut else 0.0]
    rewards = [0.0] * (length - 1) + [0.0 if cut else row.reward]
    deltas = [rewards[t] + gamma * values[t + 1] - values[t] for t in range(length)]
    return [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, length)) for t in range(length)]


def formula(
    case: Case, rows: list[Row], gamma: float = 1.0, lam: float = 0.95, policy_tokens: str = "window", **clip: float
) -> float:
    assert case.rollout.window_mask is not None
    raw, policy, value = [], [], []
    for row in rows:
        found, length = estimates(case, row, gamma, lam), len(row.columns)
        for t, column in enumerate(row.columns):
            if policy_tokens == "all" or bool(case.rollout.window_mask[row.index, column]):
                raw.append(found[t])
                policy.append(math.exp(row.log_ratios[t]))
            if not cut_off(case, row):
                value.append((row.values[t] - gamma ** (length - 1 - t) * row.reward) ** 2)
    mean = sum(raw) / len(raw)
    std = math.sqrt(sum((a - mean) ** 2 for a in raw) / (len(raw) - 1) + 1e-8)
    low, high = clip.get("clip_low", 0.2), clip.get("clip_high", 0.2)
    terms = [scalar.ppo_minimum(r, (a - mean) / std, low, high) for r, a in zip(policy, raw, strict=True)]
    return -sum(terms) / len(terms) + sum(value) / len(value)


@pytest.mark.parametrize(
    "settings",
    [{}, {"lam": 1, "gamma": 0.9}, {"lam": 0.5, "clip_low": 0.1, "clip_high": 0.3}, {"policy_tokens": "all"}],
    ids=str,
)
@pytest.mark.parametrize("seed", [0, 4])
def test_tppo_equals_the_scalar_formula(settings: dict[str, Any], seed: int) -> None:
    case = case_of(seed)
    rows, outcome = scalar.rows_of(case), one_step(objectives.make("tppo", **settings), case)
    assert float(outcome.loss) == pytest.approx(formula(case, rows, **settings), rel=1e-12)
    for field in ("logprobs", "values"):
        compare(outcome.gradients[field], scalar.slopes(lambda r: formula(case, r, **settings), rows, field))


def raw_advantages(case: Case, **settings: Any) -> list[float]:
    return estimates(case, scalar.rows_of(case)[0], settings.get("gamma", 1.0), settings.get("lam", 0.95))


def test_the_last_token_of_a_cut_off_response_has_no_advantage_without_discount() -> None:
    assert raw_advantages(case_of())[-1] == 0
    assert raw_advantages(case_of(), gamma=0.9)[-1] != 0


def test_a_constant_critic_gives_a_cut_off_response_no_advantage() -> None:
    case = case_of()
    assert case.rollout.old_values is not None
    flat = replace(case.rollout, old_values=torch.full_like(case.rollout.old_values, 0.3))
    found = objectives.make("tppo").targets(flat)
    others = found.loss_mask.clone()
    others[CUT] = False
    assert len(set(found.advantages[CUT][found.loss_mask[CUT]].tolist())) == 1  # 0 before whitening
    assert len(set(found.advantages[others].tolist())) > 1


def test_the_critic_learns_from_ended_responses_and_the_policy_from_the_window() -> None:
    case = case_of()
    found = objectives.make("tppo").targets(case.rollout)
    assert case.rollout.window_mask is not None
    assert found.value_mask is not None
    assert found.returns is not None
    assert not found.value_mask[CUT].any()
    assert torch.equal(found.loss_mask, case.rollout.scored & case.rollout.window_mask)
    assert (found.value_mask & ~found.loss_mask).any()
    ended = 4
    tokens = found.value_mask[ended]
    assert found.returns[ended][tokens].tolist() == [float(case.rollout.rewards[ended])] * int(tokens.sum())


def test_with_nothing_cut_off_the_policy_is_ppos() -> None:
    case = case_of()
    assert case.rollout.window_mask is not None
    whole = replace(
        case.rollout,
        finish=torch.zeros_like(case.rollout.finish),
        window_mask=torch.ones_like(case.rollout.window_mask),
    )
    ours = objectives.make("tppo").targets(whole)
    theirs = objectives.make("ppo").targets(whole)
    torch.testing.assert_close(ours.advantages, theirs.advantages)
    assert torch.equal(ours.loss_mask, theirs.loss_mask)
