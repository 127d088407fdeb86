"""Each objective's loss and gradient against its scalar formula, where many tokens are clipped on either side.

``test_reference.py`` holds GRPO, GSPO, PPO and the subsequence objective.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import objectives
from objectives.reference_engine import Case, one_step, random_case
from tests.objectives import scalar, scalar_sequences, scalar_tokens
from tests.objectives.made import without
from tests.objectives.scalar_parts import scene_of
from tests.objectives.test_reference import compare

OPEN = {"clip_low": 1, "clip_high": math.inf}
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "reinforce": [{}, {"baseline": "batch"}],
    "rloo": [{}],
    "remax": [{}],
    "opo": [{}],
    "reinforce_pp": [{}, {"kl_coef": 0.5, "gamma": 0.9}, {"gamma": 0, "kl_coef": 0, "clip_high": 0.28}],
    "reinforce_pp_baseline": [{}, {"clip_low": 0.1, "clip_high": 0.3}, OPEN],
    "dr_grpo": [{}, {"clip_low": 0.1, "clip_high": 0.3}, {"clip_low": 0, "clip_high": 0}],
    "lite_ppo": [{}, {"std_eps": 0.5, "clip_high": 0.28}],
    "dapo": [
        {},
        {"weights": "token_mean"},
        {"overlong_buffer": 0.75},
        {"overlong_buffer": 0, "overlong_filter": True},
        {"overlong_filter": True, "weights": "token_mean", "std_eps": 0.5},
    ],
    "luspo": [{}, {"clip_low": 0.05, "clip_high": 0.1, "std_eps": 0.5}, OPEN],
    "gspo_token": [{}, {"clip_low": 0.05, "clip_high": 0.1}, {**OPEN, "std_eps": 0.5}],
    "cispo": [{}, {"clip_low": 0.2, "clip_high": 0.28}, {"clip_low": 0, "clip_high": 0, "std_eps": 0.5}],
    "gmpo": [{}, {"log_clip_low": 0.1, "log_clip_high": 0.3}, {"log_clip_low": 0, "std_eps": 0.5}],
    "sapo": [{}, {"tau_positive": 4.0, "tau_negative": 0.3}, {"std_eps": 0.5}],
    "vespo": [{}, {"k_positive": 1.1, "lam_positive": 0.6, "k_negative": 0.0, "lam_negative": 4.3}, {"std_eps": 0.5}],
    "repo": [{}, {"normaliser": "all", "replay_coef": 0.3}, {"std_eps": 0.5, "clip_low": 0.1, "clip_high": 0.3}],
    "dppo_tv": [{}, {"tv_low": 0.02, "tv_high": 0.05}, {"tv_low": 0, "tv_high": 0, "std_eps": 0.5}],
    "dppo_kl": [{}, {"kl_low": 0.002, "kl_high": 0.02}, {"kl_low": 0, "kl_high": 0, "std_eps": 0.5}],
    "topr": [{}, {"baseline": 0.5}, {"baseline": -1}],
    "kimi": [{}, {"tau": 2.0}, {"tau": 0}],
    "clip_cov": [
        {},
        {"fraction": 0.1, "cov_low": 0.05, "cov_high": 0.6},
        {"fraction": 1, "cov_low": -0.2, "cov_high": 0.1, "clip_low": 0.1, "clip_high": 0.3},
        {"cov_low": 0.2, "std_eps": 0.5},
    ],
    "kl_cov": [{}, {"fraction": 0.2}, {"fraction": 0.5, "kl_coef": 0.3, "std_eps": 0.5}, {"fraction": 1}],
    "aspo": [{}, {"cap": 1.2, "clip_high": 0.28}, {"clip_low": 0, "clip_high": 0, "std_eps": 0.5}],
    "cpgd": [
        {},
        {"omega": "equal", "alpha": 0.5, "drift_max": 0.2},
        {"omega": "clip_filter"},
        {"omega": "clip_filter", "clip_filter_max": 1.2, "alpha": 0},
        {"clip_low": 1, "clip_high": 0, "std_eps": 0.5},
    ],
    "fspo": [{}, {"band_low": 0.1, "band_high": 0.3}, {"band_low": 0, "band_high": math.inf, "std_eps": 0.5}],
    "kdrl": [
        {},
        {"beta_start": 1.0, "beta_end": 0.5},
        {"beta_start": 0, "beta_end": 0.7},
        {"beta_start": 1.0, "distil": "wrong", "std_eps": 0.5},
        {"beta_start": 1.0, "distil": "unsolved"},
    ],
}
ELSEWHERE = ("grpo", "gspo", "gspo_subsequence", "ppo", "reg_grpo", "tppo")
"""The first four in ``test_reference``, Reg-GRPO below, T-PPO in ``test_tppo``."""
DIGITS = [(name, settings) for name, many in SETTINGS.items() for settings in many[:2]]
EMPTY = 5
"""The row of ``random_case`` without tokens."""
ALIKE = (1, 4, 7, 10)
"""The rows of ``random_case`` whose rewards are all alike."""
CASES = [(name, settings, seed) for name, many in SETTINGS.items() for settings in many for seed in (0, 4)]


def test_every_objective_has_a_scalar_formula() -> None:
    assert sorted([*SETTINGS, *ELSEWHERE]) == objectives.names()


def requires(name: str) -> frozenset[str]:
    return objectives.make(name).requires


def formula(name: str) -> Callable[..., float]:
    return getattr(scalar_tokens, name, None) or getattr(scalar_sequences, name)


def assert_formula(name: str, settings: dict[str, Any], case: Case) -> None:
    scene, outcome = scene_of(case), one_step(objectives.make(name, **settings), case)
    assert float(outcome.loss) == pytest.approx(formula(name)(scene, scene.rows, **settings), rel=1e-6)
    slopes = scalar.slopes(lambda rows: formula(name)(scene, rows, **settings), scene.rows, "logprobs")
    compare(outcome.gradients["logprobs"], slopes)


def case_of(name: str, seed: int) -> Case:
    case = random_case(requires(name), spread=0.5, seed=seed)
    return without(case, *ALIKE) if name == "clip_cov" else case


@pytest.mark.parametrize(("name", "settings", "seed"), CASES, ids=str)
def test_it_equals_the_scalar_formula(name: str, settings: dict[str, Any], seed: int) -> None:
    """Penalties are part of both."""
    assert_formula(name, settings, case_of(name, seed))


@pytest.mark.parametrize(("name", "settings"), DIGITS, ids=str)
def test_settings_keep_the_digits_of_float64(name: str, settings: dict[str, Any]) -> None:
    """A setting that passes through float32 is off by 1e-8: torch.where of two Python numbers does that."""
    case = case_of(name, seed=4)
    found = float(one_step(objectives.make(name, **settings), case).loss)
    assert found == pytest.approx(formula(name)(scene_of(case), scene_of(case).rows, **settings), rel=1e-12)


def test_clip_cov_may_draw_a_token_without_advantage_whatever_its_ratio() -> None:
    """PPO's minimum is at no bound where A = 0, so such a token is open."""
    settings = {"fraction": 0.1, "cov_low": 0.05, "cov_high": 0.6}
    assert_formula("clip_cov", settings, random_case(requires("clip_cov"), spread=0.5))


@pytest.mark.parametrize("settings", [{}, {"reduce": "mean"}, {"std_eps": 0.5}, {"detach_stats": True}], ids=str)
@pytest.mark.parametrize("seed", [0, 4])
def test_reg_grpo_has_the_gradient_of_its_regression(settings: dict[str, Any], seed: int) -> None:
    """The loss is the carrier of that gradient: its value is the gradient times the log-probabilities."""
    assert_regression(without(random_case(requires("reg_grpo"), spread=0.5, seed=seed), EMPTY), settings)


def test_reg_grpo_has_the_gradient_of_its_regression_beside_a_response_without_tokens() -> None:
    """An empty response is as if it were not there: neither its reward nor its log-ratio joins the statistics."""
    assert_regression(random_case(requires("reg_grpo"), spread=0.5), {})


def assert_regression(case: Case, settings: dict[str, Any]) -> None:
    scene = replace(scene_of(case), empty=[])
    outcome = one_step(objectives.make("reg_grpo", **settings), case)
    slopes = scalar.slopes(lambda rows: scalar_sequences.reg_grpo(scene, rows, **settings), scene.rows, "logprobs")
    compare(outcome.gradients["logprobs"], slopes)
    carried = outcome.gradients["logprobs"] * torch.where(case.rollout.scored, case.current["logprobs"], 0)
    assert float(outcome.loss) == pytest.approx(float(carried.sum()), rel=1e-12)
