"""What the weight of a token is known for in single objectives, on ratios by hand (spec/objectives.md, 2 and 8)."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import objectives
from objectives import Batch, Objective, TokenLoss
from objectives.reference_engine import far, one_step, random_case
from tests.objectives.made import batch_of


def run(objective: Objective, batch: Batch) -> tuple[TokenLoss, Tensor]:
    """Return the loss of every token and c_t."""
    terms = objective.token_loss(batch)
    (gradient,) = torch.autograd.grad(terms.policy.expand_as(batch.logprobs).sum(), batch.logprobs)
    return terms, -gradient


def slope(name: str, ratio: float, advantage: float, probability: float = 0.1, **settings: Any) -> float:
    """c_t of one token."""
    rows = torch.tensor([[ratio]], dtype=torch.float64), torch.tensor([[advantage]], dtype=torch.float64)
    return float(run(objectives.make(name, **settings), batch_of(*rows, probability))[1])


# CISPO


@pytest.mark.parametrize("distance", [0.5, 5.0, 15.0])
def test_cispo_never_silences_a_token(distance: float) -> None:
    """U24: where PPO's clip does."""
    case = far(random_case(), distance)
    found, clipped = (one_step(objectives.make(name), case) for name in ("cispo", "grpo"))
    live = found.targets.loss_mask & (found.targets.advantages != 0)
    assert bool((found.gradients["logprobs"][live] != 0).all())
    assert not bool((clipped.gradients["logprobs"][live] != 0).all())


def test_the_bounds_of_cispo_are_offsets_from_one() -> None:
    """TRL's epsilon_high is the bound itself: with 0.2 it would hold every weight at 0.2."""
    assert slope("cispo", 9, 1, clip_high=0.2) == pytest.approx(1.2)
    assert slope("cispo", 9, -1) == pytest.approx(-5)
    assert slope("cispo", 0.1, 1, clip_low=0.2) == pytest.approx(0.8)
    assert slope("cispo", 0.001, 1) == pytest.approx(0.001)


# SAPO


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_sapo_has_slope_a_on_policy_and_none_far_off(advantage: float) -> None:
    """U25."""
    assert slope("sapo", 1, advantage) == pytest.approx(advantage)
    assert abs(slope("sapo", 1e-4, advantage)) < 1e-3
    assert abs(slope("sapo", 40, advantage)) < 1e-6


@pytest.mark.parametrize(("ratio", "expected"), [(1, 1), (2, 1.57), (3, 1.26), (4, 0.72), (3.35, 1.065), (3.5, 0.98)])
def test_the_weight_of_sapo_is_not_monotone(ratio: float, expected: float) -> None:
    assert slope("sapo", ratio, 1) == pytest.approx(expected, abs=0.005)


def test_the_gate_of_sapo_is_worth_two_over_tau_on_policy() -> None:
    ones = torch.ones(1, 1, dtype=torch.float64)
    for advantage, value in ((1.0, 2 / 1.0), (-1.0, -2 / 1.05)):
        terms, _ = run(objectives.make("sapo"), batch_of(ones, advantage * ones))
        assert float(terms.policy.detach()) == pytest.approx(-value, rel=1e-6)


def test_sapo_marks_a_gate_that_is_shut_to_the_last_digit() -> None:
    ratios = torch.tensor([[1.0, 30.0, 60.0]], dtype=torch.float64)
    terms, found = run(objectives.make("sapo"), batch_of(ratios, torch.ones_like(ratios)))
    assert terms.stats["clipped"].tolist() == [[False, False, True]]
    assert (found == 0).tolist() == [[False, False, True]]


# VESPO and TOPR


@pytest.mark.parametrize(("advantage", "k", "lam"), [(1.0, 2, 3), (-1.0, 3, 2)])
def test_the_weight_of_vespo_is_one_on_policy_and_largest_at_k_over_lam(advantage: float, k: int, lam: int) -> None:
    """U25."""
    assert slope("vespo", 1, advantage) == pytest.approx(advantage)
    peak = abs(slope("vespo", k / lam, advantage))
    assert all(abs(slope("vespo", k / lam * factor, advantage)) < peak for factor in (0.5, 0.9, 1.1, 2))


def test_vespo_keeps_the_ratio_of_a_response_within_its_ends() -> None:
    """Log W from log 1e-8 to 20: weights 1e-16 e^3 and 0 to the last digit."""
    ratios = torch.tensor([[1e-5, 1e-5], [1e5, 1e5], [1.0, 2.0]], dtype=torch.float64)
    terms, found = run(objectives.make("vespo"), batch_of(ratios, torch.ones_like(ratios)))
    expected = [1e-16 * math.exp(3), 0, 4 * math.exp(-3)]
    torch.testing.assert_close(found[:, 0], torch.tensor(expected, dtype=torch.float64), rtol=1e-7, atol=0)
    assert terms.stats["clipped"].tolist() == [[True, True], [True, True], [False, False]]


def test_topr_tapers_wrong_responses_by_the_ratio_of_the_whole() -> None:
    ratios = torch.tensor([[0.5, 0.5], [0.5, 0.5], [2.0, 2.0], [2.0, 2.0]], dtype=torch.float64)
    advantages = torch.tensor([[1.0, 1], [-1, -1], [1, 1], [-1, -1]], dtype=torch.float64)
    terms, found = run(objectives.make("topr"), batch_of(ratios, advantages))
    assert found[:, 0].tolist() == pytest.approx([1, -0.25, 1, -1])
    assert terms.stats["clipped"][:, 0].tolist() == [False, False, False, True]


def test_topr_keeps_the_logarithm_of_its_taper_above_minus_twenty() -> None:
    ratios = torch.full((1, 2), math.exp(-15), dtype=torch.float64)
    _, found = run(objectives.make("topr"), batch_of(ratios, -torch.ones_like(ratios)))
    torch.testing.assert_close(found, torch.full_like(ratios, -math.exp(-20)), rtol=1e-12, atol=0)


# DPPO


@pytest.mark.parametrize("name", ["dppo_tv", "dppo_kl"])
@pytest.mark.parametrize(("ratio", "advantage"), [(0.01, 1), (9, -1)])
def test_dppo_keeps_a_token_that_moves_against_its_advantage(name: str, ratio: float, advantage: float) -> None:
    """U26: only moving further out is dropped."""
    assert slope(name, ratio, advantage) == pytest.approx(ratio * advantage)
    assert slope(name, ratio, -advantage, probability=0.11 if ratio > 1 else 0.5) == 0


def test_dppo_tv_is_about_the_difference_of_probabilities() -> None:
    """U26: a rare token may grow tenfold, a frequent one not by a fifth."""
    assert slope("dppo_tv", 10, 1, probability=0.01) == pytest.approx(10)
    assert slope("dppo_tv", 1.19, 1, probability=0.8) == 0
    assert slope("dppo_tv", 0.82, -1, probability=0.8) == pytest.approx(-0.82)
    assert slope("dppo_tv", 0.8, -1, probability=0.8) == 0


def test_dppo_kl_is_finite_for_a_certain_token() -> None:
    assert slope("dppo_kl", 1, 1, probability=1) == 1
    # .97 log(.97 / .999) + .03 log(.03 / .001) = .073 nats
    assert slope("dppo_kl", 0.999 / 0.97, 1, probability=0.97) == 0
    assert slope("dppo_kl", 1.25, 1, probability=0.8) == 0
    assert slope("dppo_kl", 0.5, -1, probability=1) == 0


# PPO


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.5, 2.9, 3.1, 9.0])
def test_the_dual_clip_bounds_a_wrong_token_from_above(ratio: float) -> None:
    """U23 in our own terms: max(min(r A, clip(r) A), 3 A) where A < 0, as TRL's delta = 3 has it."""
    settings = {"dual_clip": 3.0, "clip_low": 0.2, "clip_high": 0.2}
    objective: Any = objectives.make("ppo", **settings)
    one = torch.ones(1, 1, dtype=torch.float64)
    known = {name: torch.zeros(1, 1, dtype=torch.float64) for name in ("values", "old_values", "returns", "entropy")}
    for sign in (1.0, -1.0):
        terms, found = run(objective, replace(batch_of(ratio * one, sign * one), **known))
        minimum = min(ratio * sign, min(max(ratio, 0.8), 1.2) * sign)
        value = max(minimum, -3.0) if sign < 0 else minimum
        assert float(terms.policy.detach()) == pytest.approx(-value)
        assert float(found) == pytest.approx(value if value == ratio * sign else 0)
        assert bool(terms.stats["clipped"]) is (value != pytest.approx(ratio * sign))


@pytest.mark.parametrize("value", [0.9, 0.35, 0.19, -0.1, -0.3, -0.9])
def test_the_value_clip_is_symmetric(value: float) -> None:
    """U20: mirrored values and returns have the same loss and mirrored slopes."""
    objective: Any = objectives.make("ppo")
    found: list[tuple[float, float]] = []
    for sign in (1, -1):
        values = torch.tensor([[sign * value]], dtype=torch.float64, requires_grad=True)
        zero, target = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[sign * 0.25]], dtype=torch.float64)
        batch = batch_of(zero + 1, zero)
        terms = objective.token_loss(
            replace(batch, values=values, old_values=zero, returns=target, entropy=zero.clone())
        )
        (gradient,) = torch.autograd.grad(terms.value.sum(), values)
        found.append((float(terms.value.detach()), sign * float(gradient)))
    near = min(max(value, -0.2), 0.2)
    worst = max((value - 0.25) ** 2, (near - 0.25) ** 2)
    assert found[0] == pytest.approx(found[1])
    assert found[0][0] == pytest.approx(worst / 2)
    assert found[0][1] == pytest.approx(value - 0.25 if worst == (value - 0.25) ** 2 else 0)


@pytest.mark.parametrize(("name", "same"), [("clip_cov", "lite_ppo"), ("kl_cov", "kdrl")])
def test_a_fraction_of_zero_selects_nothing(name: str, same: str) -> None:
    """Clip-Cov then clips as PPO does and KL-Cov is the bare ratio: c_t over A is that of an objective that is."""
    settings = {"beta_start": 0, "beta_end": 0} if same == "kdrl" else {}
    found = []
    for objective in (objectives.make(name, fraction=0), objectives.make(same, **settings)):
        outcome = one_step(objective, random_case(objective.requires, spread=0.3))
        scale = outcome.weights * outcome.targets.advantages
        found.append(torch.where(scale != 0, outcome.gradients["logprobs"] / scale, 0.0))
    torch.testing.assert_close(found[0], found[1])
