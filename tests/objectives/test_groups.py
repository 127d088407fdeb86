"""Objectives that look at a group or a whole step: what they hold, and what they select (spec/methods.md, 1, 3, 5)."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import objectives
from objectives.covariance import token_covariance
from objectives.reference_engine import Case, one_step, random_case
from tests.objectives.made import step_of, without

# OPO


@pytest.mark.parametrize("seed", range(3))
def test_the_tokens_of_a_group_weigh_nothing_together_in_opo(seed: int) -> None:
    case = without(random_case(seed=seed), 3)
    outcome = one_step(objectives.make("opo"), case)
    for group in range(3):
        share = outcome.gradients["logprobs"][case.rollout.group == group]
        assert float(share.sum()) == pytest.approx(0, abs=1e-12)
        assert group == 1 or float(share.abs().max()) > 1e-3


def test_with_equal_lengths_opo_has_the_advantage_of_dr_grpo() -> None:
    case = random_case()
    rollout = replace(case.rollout, response_mask=torch.ones_like(case.rollout.response_mask))
    found, expected = (objectives.make(name).targets(rollout).advantages for name in ("opo", "dr_grpo"))
    torch.testing.assert_close(found, expected)


# Reg-GRPO


def pairs(case: Case) -> Case:
    """Return two responses a group."""
    return without(case, 3, 5, 6, 7, 8, 10)


def test_with_two_responses_a_group_reg_grpo_has_no_gradient() -> None:
    objective = objectives.make("reg_grpo", std_eps=1e-12)
    assert type(objective).min_group_size == 3
    case = pairs(random_case(objective.requires))
    assert float(one_step(objective, case).gradients["logprobs"].abs().max()) < 1e-18
    assert float(one_step(objectives.make("reg_grpo"), case).targets.advantages.abs().max()) > 0.5


@pytest.mark.parametrize("settings", [{}, {"detach_stats": True}, {"std_eps": 1e-6}], ids=str)
def test_on_policy_reg_grpo_is_finite_and_reinforce(settings: dict[str, Any]) -> None:
    objective = objectives.make("reg_grpo", **settings)
    outcome = one_step(objective, random_case(objective.requires, spread=0))
    torch.testing.assert_close(outcome.gradients["logprobs"], -outcome.weights * outcome.targets.advantages)


def test_reg_grpo_maximises_the_correlation_of_rewards_and_log_ratios() -> None:
    """The mean of (A - P)^2 is 2 (1 - kappa) with population deviations; G - 1 over G times that with sample ones."""
    objective = objectives.make("reg_grpo", std_eps=1e-9)
    case = without(random_case(objective.requires, spread=0.5), 5)
    outcome = one_step(objective, case)
    logprobs = case.current["logprobs"].clone().requires_grad_()
    mask, loss = case.rollout.scored, torch.zeros((), dtype=torch.float64)
    for group in (0, 2):
        rows = (case.rollout.group == group) & mask.any(1)
        rewards = case.rollout.rewards[rows]
        ratios = torch.where(mask, logprobs - case.rollout.old_logprobs, 0).sum(1)[rows]
        target, predicted = (((x - x.mean()) / x.std(correction=0)) for x in (rewards, ratios))
        kappa = (target * predicted).mean()
        assert float((target - predicted).square().mean().detach()) == pytest.approx(float(2 * (1 - kappa).detach()))
        loss = loss + (int(rows.sum()) - 1) * (1 - kappa)
    (expected,) = torch.autograd.grad(loss * 1e-9 / (mask.any(1).sum() * 12), logprobs)
    torch.testing.assert_close(outcome.gradients["logprobs"], expected, rtol=1e-9, atol=1e-20)


# KDRL


def test_a_teacher_equal_to_the_student_teaches_nothing() -> None:
    objective = objectives.make("kdrl", beta_start=1.0)
    case = random_case(objective.requires)
    same = replace(case.rollout, teacher_logprobs=case.current["logprobs"])
    found = one_step(objective, Case(same, case.current))
    expected = one_step(objective, case, penalty=False)
    torch.testing.assert_close(found.gradients["logprobs"], expected.gradients["logprobs"], rtol=0, atol=0)
    taught = one_step(objective, case).gradients["logprobs"]
    assert not torch.allclose(taught, expected.gradients["logprobs"], rtol=0.1)


# Selections by hand


LOGPROBS = torch.tensor([[-1.0, -2], [-3, -2], [-1, -3], [-0.5, -3.5]], dtype=torch.float64)
ADVANTAGES = torch.tensor([[1.0, 1], [1, 1], [-1, -1], [-1, -1]], dtype=torch.float64)
# Means -2 and 0, so covariances [[1, 0], [-1, 0], [-1, 1], [-1.5, 1.5]].
UNIFORMS = torch.tensor([[0.6, 0], [0, 0], [0, 0.4], [0, 0.9]], dtype=torch.float64)


def test_the_covariance_by_hand() -> None:
    expected = torch.tensor([[1, 0], [-1, 0], [-1, 1], [-1.5, 1.5]], dtype=torch.float64)
    torch.testing.assert_close(token_covariance(step_of(LOGPROBS, ADVANTAGES)), expected)


def test_the_covariance_knows_nothing_of_masked_tokens() -> None:
    mask = torch.tensor([[True, True], [True, False], [False, False], [False, False]])
    found = token_covariance(step_of(LOGPROBS, torch.where(mask, -LOGPROBS, torch.nan), mask))
    # tokens -1, -2, -3: mean -2, and A = -log pi
    assert found.tolist() == [[-1, 0], [-1, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [[2, 1]]),  # int(2e-4 * 8) = 0, but at least one: the smallest uniform of three candidates
        ({"fraction": 0.25}, [[0, 0], [2, 1]]),
        ({"fraction": 0.3}, [[0, 0], [2, 1]]),  # int(2.4)
        ({"fraction": 1}, [[0, 0], [2, 1], [3, 1]]),
        ({"fraction": 1, "cov_low": 1}, [[3, 1]]),  # the bounds themselves are outside
        ({"fraction": 1, "cov_high": 1.5}, [[0, 0], [2, 1]]),
        ({"fraction": 1, "cov_low": 1.6, "cov_high": 9}, []),
    ],
    ids=str,
)
def test_clip_cov_draws_among_the_tokens_of_high_covariance(
    settings: dict[str, Any], expected: list[list[int]]
) -> None:
    objective = objectives.make("clip_cov", **{"cov_low": 0.5, **settings})
    found = objective.prepare(step_of(LOGPROBS, ADVANTAGES, uniforms=UNIFORMS))["silent"]
    assert found.nonzero().tolist() == expected


def test_clip_cov_never_draws_a_clipped_token() -> None:
    old = LOGPROBS.clone()
    old[0, 0] -= 0.2  # ratio 1.22, A = 1
    old[2, 1] -= 0.2  # ratio 1.22, A = -1
    objective = objectives.make("clip_cov", cov_low=0.5, fraction=1)
    step = step_of(LOGPROBS, ADVANTAGES, uniforms=UNIFORMS, old_logprobs=old)
    assert objective.prepare(step)["silent"].nonzero().tolist() == [[2, 1], [3, 1]]


@pytest.mark.parametrize(
    ("fraction", "expected"), [(2e-3, [[3, 1]]), (0.25, [[0, 0], [3, 1]]), (0.4, [[0, 0], [2, 1], [3, 1]])]
)
def test_kl_cov_holds_the_tokens_of_largest_covariance(fraction: float, expected: list[list[int]]) -> None:
    found = objectives.make("kl_cov", fraction=fraction).prepare(step_of(LOGPROBS, ADVANTAGES))
    assert found["held"].nonzero().tolist() == expected


@pytest.mark.parametrize("name", ["clip_cov", "kl_cov"])
def test_masked_tokens_are_in_no_mean_of_the_covariance_and_never_selected(name: str) -> None:
    objective = objectives.make(name, fraction=1, **({"cov_low": 0.5} if name == "clip_cov" else {}))
    plain = step_of(LOGPROBS, ADVANTAGES, uniforms=UNIFORMS)
    wide = {key: torch.nn.functional.pad(value, (0, 2), value=7.0) for key, value in vars(plain).items() if key in WIDE}
    mask = torch.nn.functional.pad(plain.loss_mask, (0, 2))
    (found,), (expected,) = (
        objective.prepare(step).values() for step in (replace(plain, **wide, loss_mask=mask), plain)
    )
    assert torch.equal(found, torch.nn.functional.pad(expected, (0, 2)))


WIDE = ("logprobs", "advantages", "uniforms", "old_logprobs")


def test_the_penalty_of_kl_cov_is_there_for_held_tokens_only() -> None:
    objective = objectives.make("kl_cov", kl_coef=0.5)
    case = random_case(objective.requires, spread=0.5)
    with_it, without_it = (one_step(objective, case, penalty=given).gradients["logprobs"] for given in (True, False))
    changed = (with_it - without_it).nonzero().tolist()
    assert len(changed) == 1
    row, column = changed[0]
    sign = float((case.current["logprobs"] - case.rollout.old_logprobs)[row, column].sign())
    assert float((with_it - without_it)[row, column]) == pytest.approx(0.5 * sign / 50)


@pytest.mark.parametrize("name", ["clip_cov", "kl_cov", "reg_grpo"])
def test_what_looks_at_the_step_says_what_it_misses(name: str) -> None:
    step = step_of(LOGPROBS, ADVANTAGES)
    with pytest.raises(ValueError, match=r'Step\.logprobs: name "step_logprobs" in requires'):
        objectives.make(name).prepare(replace(step, logprobs=None))
    if name == "clip_cov":
        with pytest.raises(ValueError, match=r'Step\.uniforms: name "step_uniforms" in requires'):
            objectives.make(name).prepare(step)


# KDRL's schedule and masks


@pytest.mark.parametrize(("index", "beta"), [(0, 5e-3), (1, 4.95e-3), (40, 3e-3), (80, 1e-3), (200, 1e-3)])
def test_the_factor_of_the_teacher_falls_by_optimizer_steps(index: int, beta: float) -> None:
    step = replace(step_of(LOGPROBS, ADVANTAGES), index=index)
    found = objectives.make("kdrl").prepare(step)["beta"]
    torch.testing.assert_close(found, torch.full_like(LOGPROBS, beta), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("distil", "expected"),
    [("all", [1, 1, 1, 1, 1, 1]), ("wrong", [0, 1, 1, 1, 1, 1]), ("unsolved", [0, 1, 0, 1, 1, 1])],
)
def test_whom_the_teacher_corrects(distil: str, expected: list[float]) -> None:
    """Groups: a right and a wrong one; none right; an unknown verdict is not right."""
    objective = objectives.make("kdrl", distil=distil)
    case = random_case(objective.requires)
    rows = torch.arange(6)
    rollout = replace(
        objectives.select_rows(case.rollout, rows),
        rewards=torch.ones(6, dtype=torch.float64),
        group=torch.tensor([0, 1, 0, 1, 2, 2]),
        correct=torch.tensor([1, 0, 0, 0, torch.nan, 0], dtype=torch.float64),
        response_mask=torch.ones(6, 9, dtype=torch.bool),
    )
    found = objective.targets(rollout).extras["distil"]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64)[:, None].expand(6, 9))
