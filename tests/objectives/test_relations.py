"""What must be equal between objectives, and what sets them apart (spec/objectives.md, 8; spec/methods.md, 10)."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import objectives
from objectives import Targets
from objectives.reference_engine import Case, Outcome, one_step, padded, random_case
from tests.objectives.test_identities import assert_same

NEEDS = frozenset({"prompt", "teacher_logprobs", "correct", "ref_logprobs", "old_values", "greedy_rewards"})
CASE = random_case(NEEDS, spread=0.5, seed=4)
ON_POLICY = random_case(NEEDS, spread=0, seed=4)
# No clip anywhere.
ALL_OPEN: dict[str, Any] = {"clip_low": 1, "clip_high": math.inf}


def step(name: str, case: Case = CASE, **settings: Any) -> Outcome:
    return one_step(objectives.make(name, **settings), case)


def slopes(outcome: Outcome) -> Tensor:
    """c_t: the gradient without the weights; 0 outside the mask."""
    return torch.where(outcome.weights > 0, -outcome.gradients["logprobs"] / outcome.weights, 0.0)


# Equal by construction, with several updates


@pytest.mark.parametrize("settings", [{}, {"clip_low": 0.05, "clip_high": 0.1}], ids=str)
def test_gspo_token_is_gspo_where_a_response_has_one_advantage(settings: dict[str, Any]) -> None:
    """U4."""
    assert_same(step("gspo_token", **settings), step("gspo", **settings))


def test_gspo_token_is_not_gspo_where_advantages_vary_along_a_response() -> None:
    """U4."""

    def varied(targets: Targets) -> Targets:
        factor = torch.arange(targets.advantages.shape[1]) % 2 * 2.0
        return replace(targets, advantages=targets.advantages * factor)

    found, expected = (
        one_step(objectives.make(name, **ALL_OPEN), CASE, edit=varied) for name in ("gspo_token", "gspo")
    )
    alternate = found.targets.loss_mask & (found.targets.advantages == 0)
    assert bool((found.gradients["logprobs"][alternate] == 0).all())
    assert bool((expected.gradients["logprobs"][:, 0][expected.targets.advantages[:, 1] != 0] != 0).all())


@pytest.mark.parametrize("settings", [{}, {"log_clip_low": 0.1, "log_clip_high": 0.3}], ids=str)
def test_gmpo_is_the_subsequence_objective_with_one_token_a_segment_and_the_root_of_the_length(
    settings: dict[str, Any],
) -> None:
    """U5."""
    low, high = settings.get("log_clip_low", 0.4), settings.get("log_clip_high", 0.4)
    given: dict[str, Any] = {"segment_rule": "fixed_length", "segment_tokens": 1, "outer_root": "tokens"}
    given |= {"clip_mode": "one_sided", "clip_low": -math.expm1(-low), "clip_high": math.expm1(high)}
    assert_same(step("gmpo", **settings), step("gspo_subsequence", **given))


@pytest.mark.parametrize("name", ["gmpo", "grpo", "gspo"])
def test_the_presets_of_the_subsequence_objective_are_what_they_are_called(name: str) -> None:
    """U3, U5, U6, U7 at the defaults."""
    assert_same(step("gspo_subsequence", preset=name), step(name))


def test_without_bounds_gmpo_is_gspo() -> None:
    """U8."""
    assert_same(step("gmpo", log_clip_low=math.inf, log_clip_high=math.inf), step("gspo", **ALL_OPEN))


def test_without_a_band_fspo_is_raw_importance_sampling_of_whole_responses() -> None:
    """U8."""
    assert_same(
        step("fspo", band_low=math.inf, band_high=math.inf), step("gspo_subsequence", num_segments=1, **ALL_OPEN)
    )


@pytest.mark.parametrize("name", ["grpo", "dapo", "dr_grpo", "lite_ppo", "reinforce_pp_baseline", "clip_cov"])
def test_without_bounds_a_clip_of_tokens_is_the_ratio_times_the_advantage(name: str) -> None:
    """U8."""
    nothing_silent: dict[str, Any] = {"cov_low": 99.0, "cov_high": 99.0} if name == "clip_cov" else {}
    outcome = step(name, **ALL_OPEN, **nothing_silent)
    ratio = torch.where(outcome.targets.loss_mask, CASE.current["logprobs"] - CASE.rollout.old_logprobs, 0).exp()
    torch.testing.assert_close(slopes(outcome), ratio * outcome.targets.advantages, rtol=1e-11, atol=1e-14)


def test_without_the_upper_bound_a_good_response_is_raw() -> None:
    """U8."""
    outcome = step("grpo", clip_low=0.01, clip_high=math.inf)
    good, bad = outcome.targets.advantages > 0, outcome.targets.advantages < 0
    raw = (CASE.current["logprobs"] - CASE.rollout.old_logprobs).exp() * outcome.targets.advantages
    torch.testing.assert_close(slopes(outcome)[good], raw[good])
    assert not torch.allclose(slopes(outcome)[bad], raw[bad])


def test_dapo_without_its_rules_is_grpo_by_tokens() -> None:
    found = step("dapo", clip_high=0.2, overlong_buffer=0, weights="token_mean")
    expected = step("grpo")
    torch.testing.assert_close(slopes(found), slopes(expected))
    torch.testing.assert_close(found.weights, step("ppo").weights)


def test_without_replayed_rows_repo_is_grpo() -> None:
    """methods.md, 10.1."""
    fresh = Case(replace(CASE.rollout, origin=torch.zeros_like(CASE.rollout.origin)), CASE.current)
    assert_same(step("repo", fresh, std_eps=1e-6), step("grpo", fresh))


def test_luspo_is_gspo_times_the_length_over_the_limit_where_all_have_one_length() -> None:
    case = padded(CASE, 0)
    rows = torch.tensor([0, 11])  # five tokens each
    case = Case(objectives.select_rows(case.rollout, rows), {k: v[rows] for k, v in case.current.items()})
    case = Case(replace(case.rollout, group=torch.zeros(2, dtype=torch.int64)), case.current)
    found, expected = (step(name, case, clip_low=0.3, clip_high=0.3) for name in ("luspo", "gspo"))
    assert float(expected.gradients["logprobs"].abs().max()) > 0
    torch.testing.assert_close(found.gradients["logprobs"], expected.gradients["logprobs"] * 5 / 12)


def test_without_its_penalty_kimi_is_reinforce_with_the_advantage_of_dr_grpo() -> None:
    outcome = step("kimi", tau=0)
    torch.testing.assert_close(slopes(outcome), outcome.targets.advantages)
    torch.testing.assert_close(outcome.targets.advantages, step("dr_grpo").targets.advantages)


# Equal on-policy only (methods.md, 10.1)


BY_GROUP_DEVIATION = (
    ("aspo", {}),
    ("cispo", {}),
    ("clip_cov", {"cov_low": 99.0, "cov_high": 99.0}),
    ("cpgd", {}),
    ("dapo", {"overlong_buffer": 0}),
    ("dppo_kl", {}),
    ("dppo_tv", {}),
    ("fspo", {}),
    ("gmpo", {}),
    ("gspo", {}),
    ("gspo_subsequence", {}),
    ("gspo_token", {}),
    ("kdrl", {"beta_start": 0, "beta_end": 0}),
    ("kl_cov", {}),
    ("luspo", {}),
    ("sapo", {}),
    ("vespo", {}),
)


@pytest.mark.parametrize(("name", "settings"), BY_GROUP_DEVIATION)
def test_on_policy_all_with_grpos_advantage_are_grpo_up_to_weights(name: str, settings: dict[str, Any]) -> None:
    """U1, with the penalties."""
    torch.testing.assert_close(slopes(step(name, ON_POLICY, **settings)), slopes(step("grpo", ON_POLICY)))


@pytest.mark.parametrize("name", ["gspo", "gspo_token", "sapo", "gmpo"])
def test_on_policy_these_are_grpo(name: str) -> None:
    """U1: the same weights too."""
    expected = step("grpo", ON_POLICY).gradients["logprobs"]
    torch.testing.assert_close(step(name, ON_POLICY).gradients["logprobs"], expected)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dapo", {"overlong_buffer": 0, "weights": "token_mean"}),
        ("aspo", {}),
        ("dppo_tv", {}),
        ("vespo", {}),
        ("kdrl", {"beta_start": 0, "beta_end": 0}),
    ],
)
def test_on_policy_these_are_cispo(name: str, settings: dict[str, Any]) -> None:
    """U1: mean over tokens; KDRL without a teacher is token-mean GRPO."""
    expected = step("cispo", ON_POLICY).gradients["logprobs"]
    torch.testing.assert_close(step(name, ON_POLICY, **settings).gradients["logprobs"], expected)


def test_on_policy_cpgd_is_reinforce_with_its_group_weights() -> None:
    outcome = step("cpgd", ON_POLICY, omega="equal")
    torch.testing.assert_close(slopes(outcome), step("dr_grpo", ON_POLICY).targets.advantages)
    torch.testing.assert_close(outcome.weights, step("dapo", ON_POLICY).weights)


def test_off_policy_they_differ() -> None:
    """One update a rollout cannot tell them apart; several can."""
    names = ["grpo", "gspo", "gmpo", "sapo", "aspo", "cispo", "cpgd", "fspo", "vespo", "dppo_tv"]
    found = [slopes(step(name)) for name in names]
    for i, one in enumerate(found):
        for other in found[:i]:
            assert float((one - other).abs().max()) > 0.01
