"""Each objective against scalar.py, loss and gradient, on data where many tokens are clipped on either side."""

import itertools
import math
from typing import Any

import pytest
import torch

import objectives
from objectives.reference_engine import one_step, random_case
from tests.objectives import scalar
from tests.objectives.scalar_segments import Subsequence

SUBSEQUENCE = [
    {"norm": norm, "combine": combine, "outer_root": root, "clip_mode": mode, "segment_rule": rule}
    for norm, (combine, root), mode, rule in itertools.product(
        ("none", "mean"),
        (("product", "none"), ("product", "segments"), ("product", "tokens"), ("mean", "none")),
        ("plain", "one_sided", "stopgrad"),
        ("fixed_k", "fixed_length"),
    )
]


def compare(found: torch.Tensor, slopes: dict[tuple[int, int], float]) -> None:
    expected = torch.zeros_like(found)
    for place, slope in slopes.items():
        expected[place] = slope
    assert float(expected.abs().max()) > 0
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"clip_high": 0.28},
        {"clip_low": 0, "clip_high": 0},
        {"clip_low": 1, "clip_high": math.inf},
        {"std_eps": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["grpo", "gspo"])
def test_grpo_and_gspo_equal_the_scalar_formula(name: str, settings: dict[str, Any]) -> None:
    case = random_case(spread=0.4)
    objective = objectives.make(name, **settings)
    low, high = objective.clip_low, objective.clip_high  # pyright: ignore
    rows = scalar.rows_of(case)
    advantages = scalar.group_advantages(rows, scalar.empty_responses(case), settings.get("std_eps", 1e-6))
    formula = {"grpo": scalar.grpo, "gspo": scalar.gspo}[name]
    outcome = one_step(objective, case)
    assert float(outcome.loss) == pytest.approx(formula(rows, advantages, low, high), rel=1e-12)
    compare(outcome.gradients["logprobs"], scalar.slopes(lambda r: formula(r, advantages, low, high), rows, "logprobs"))


# What came after section 6's first form: bounds that know the length, bounds on the product, and the tighter minorant.
BOUNDS: list[dict[str, Any]] = [
    {"clip_mode": "outer_min"},
    {"clip_mode": "outer_min", "norm": "mean", "outer_root": "segments"},
    {"clip_mode": "outer_min", "outer_low": 0.1, "outer_high": 0.2},
    {"clip_mode": "one_sided", "outer_low": 0.1, "outer_high": 0.2},
    {"clip_mode": "plain", "outer_low": 0.1, "outer_high": 0.2},
    {"clip_mode": "stopgrad", "outer_low": 0.1},
    {"clip_mode": "stopgrad", "outer_high": 0.2, "outer_root": "tokens"},
    {"clip_mode": "one_sided", "dual_clip": 1.3},
    {"clip_mode": "one_sided", "dual_clip": 1.3, "combine": "mean", "segment_rule": "fixed_length"},
    {"clip_scale": "sqrt_len"},
    {"clip_scale": "sqrt_len", "norm": "mean", "clip_mode": "one_sided", "segment_rule": "fixed_length"},
    {"clip_scale": "budget", "clip_mode": "one_sided"},
    {"clip_scale": "budget", "norm": "mean", "combine": "mean"},
]


@pytest.mark.parametrize("settings", SUBSEQUENCE + BOUNDS, ids=lambda s: "-".join(map(str, s.values())))
def test_subsequence_equals_the_scalar_formula(settings: dict[str, Any]) -> None:
    case = random_case(spread=0.25, seed=1)
    size = {"num_segments": 3} if settings.get("segment_rule", "fixed_k") == "fixed_k" else {"segment_tokens": 2}
    given = {**settings, **size, "clip_low": 0.15, "clip_high": 0.25}
    rows = scalar.rows_of(case)
    advantages = scalar.group_advantages(rows, scalar.empty_responses(case), 1e-6)
    rule = settings.get("segment_rule", "fixed_k")
    formula = Subsequence(
        rule=rule,
        size=3 if rule == "fixed_k" else 2,
        norm=settings.get("norm", "none"),
        combine=settings.get("combine", "product"),
        root=settings.get("outer_root", "none"),
        mode=settings.get("clip_mode", "plain"),
        low=0.15,
        high=0.25,
        max_tokens=12,
        scale=settings.get("clip_scale", "const"),
        dual=settings.get("dual_clip", math.inf),
        outer_low=settings.get("outer_low", 1.0),
        outer_high=settings.get("outer_high", math.inf),
    )
    outcome = one_step(objectives.make("gspo_subsequence", **given), case)
    assert float(outcome.loss) == pytest.approx(formula.loss(rows, rows, advantages), rel=1e-12)
    slopes = scalar.slopes(lambda moved: formula.loss(moved, rows, advantages), rows, "logprobs")
    compare(outcome.gradients["logprobs"], slopes)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"lam": 1, "gamma": 0.9},
        {"lam": 0.5, "clip_low": 0.1, "clip_high": 0.3},
        {"value_clip": 0.05},
        {"value_clip": 3.0, "entropy_coef": 0.1},
        {"lam": 0, "gamma": 1},
        {"dual_clip": 1.5},
        {"dual_clip": 1.05, "clip_high": 0.28},
    ],
    ids=str,
)
def test_ppo_equals_the_scalar_formula(settings: dict[str, Any]) -> None:
    objective = objectives.make("ppo", **settings)
    case = random_case(objective.requires, spread=0.4)
    given = {"low": 0.2, "high": 0.2, "value_clip": 0.2, "gamma": 1.0, "lam": 0.95, "entropy": 0.01}
    names = {"clip_low": "low", "clip_high": "high", "entropy_coef": "entropy", "dual_clip": "dual"}
    given |= {names.get(key, key): value for key, value in settings.items()}
    rows = scalar.rows_of(case)
    outcome = one_step(objective, case)
    assert float(outcome.loss) == pytest.approx(scalar.ppo(rows, **given), rel=1e-12)
    for field in ("logprobs", "values"):
        compare(outcome.gradients[field], scalar.slopes(lambda r: scalar.ppo(r, **given), rows, field))
    tokens = sum(len(row.columns) for row in rows)
    expected = torch.where(outcome.targets.loss_mask, -given["entropy"] / tokens, 0.0).double()
    torch.testing.assert_close(outcome.gradients["entropy"], expected)


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_clipped_marks_the_tokens_whose_minimum_is_the_clipped_term(name: str) -> None:
    objective = objectives.make(name, clip_low=0.1, clip_high=0.3)
    case = random_case(objective.requires, spread=0.4)
    outcome = one_step(objective, case)
    ratio = torch.exp(case.current["logprobs"] - case.rollout.old_logprobs)
    advantages = outcome.targets.advantages
    expected = ((advantages > 0) & (ratio > 1.3)) | ((advantages < 0) & (ratio < 0.9))
    live = outcome.targets.loss_mask & (advantages != 0)
    assert 5 < int(expected[live].sum()) < int(live.sum()) - 5
    assert torch.equal(outcome.stats["clipped"][live], expected[live])


def test_clipped_of_gspo_marks_whole_responses() -> None:
    case = random_case(spread=0.4)
    outcome = one_step(objectives.make("gspo", clip_low=0.05, clip_high=0.1), case)
    rows, marked = scalar.rows_of(case), 0
    for row in rows:
        ratio = math.exp(sum(row.log_ratios) / len(row.columns))
        sign = float(outcome.targets.advantages[row.index, row.columns[0]])
        expected = (sign > 0 and ratio > 1.1) or (sign < 0 and ratio < 0.95)
        if sign != 0:
            marked += expected
            assert outcome.stats["clipped"][row.index, list(row.columns)].tolist() == [expected] * len(row.columns)
    assert 0 < marked < len(rows)
