"""Losses and gradients are verl's to 1e-7, for every objective that verl has, on batches clipped on either side."""

from types import ModuleType
from typing import Any

import pytest
import torch

import objectives
from objectives import Objective
from objectives.reference_engine import Case
from tests.objectives.parity.cases import (
    CASES,
    GROUP_SIZE,
    LIMIT,
    PROMPTS,
    Result,
    assert_same,
    assert_same_gradient,
    make_case,
    ours,
    tokens_of,
    without_row,
)

ROW_MEAN, TOKEN_MEAN, CONSTANT = "seq-mean-token-mean", "token-mean", "seq-mean-token-sum-norm"
FREE = 1e9  # of clip_ratio_c: no dual clip
LIMITED = {"loss_scale_factor": LIMIT}


def make(name: str, **settings: Any) -> Objective:
    return objectives.make(name, **settings)


def clip(low: float, high: float, dual: float = FREE) -> dict[str, Any]:
    return {"clip_ratio_low": low, "clip_ratio_high": high, "clip_ratio_c": dual}


# name: (our objective, verl's loss, its aggregation, its settings)
LOSSES: dict[str, tuple[Objective, str, str, dict[str, Any]]] = {
    "grpo": (make("grpo"), "vanilla", ROW_MEAN, clip(0.2, 0.2)),
    "grpo clip-higher": (make("grpo", clip_high=0.28), "vanilla", ROW_MEAN, clip(0.2, 0.28)),
    "dapo token mean": (make("dapo", weights="token_mean"), "vanilla", TOKEN_MEAN, clip(0.2, 0.28)),
    "dr_grpo": (make("dr_grpo"), "vanilla", CONSTANT, {**clip(0.2, 0.2), "batch": LIMITED}),
    "lite_ppo": (make("lite_ppo"), "vanilla", TOKEN_MEAN, clip(0.2, 0.2)),
    "reinforce_pp": (make("reinforce_pp"), "vanilla", TOKEN_MEAN, clip(0.2, 0.2)),
    "reinforce_pp_baseline": (make("reinforce_pp_baseline"), "vanilla", TOKEN_MEAN, clip(0.2, 0.2)),
    "ppo": (make("ppo", entropy_coef=0.0), "vanilla", TOKEN_MEAN, clip(0.2, 0.2)),
    "ppo dual clip": (make("ppo", entropy_coef=0.0, dual_clip=1.5), "vanilla", TOKEN_MEAN, clip(0.2, 0.2, 1.5)),
    "gspo": (make("gspo"), "gspo", ROW_MEAN, clip(3e-4, 4e-4)),
    "gspo wide": (make("gspo", clip_low=0.05, clip_high=0.1), "gspo", ROW_MEAN, clip(0.05, 0.1)),
    "gspo_token": (make("gspo_token"), "gspo", ROW_MEAN, clip(3e-4, 4e-4)),
    "sapo": (make("sapo"), "sapo", ROW_MEAN, {}),
    "sapo steep": (
        make("sapo", tau_positive=2.0, tau_negative=5.0),
        "sapo",
        ROW_MEAN,
        {"tau_pos": 2.0, "tau_neg": 5.0},
    ),
    "cispo": (make("cispo", clip_low=0.3, clip_high=0.2), "cispo", TOKEN_MEAN, clip(0.3, 0.2)),
    "cispo no lower bound": (make("cispo", clip_high=0.5), "cispo", TOKEN_MEAN, clip(1.0, 0.5)),
    "gmpo": (make("gmpo"), "geo_mean", ROW_MEAN, clip(0.4, 0.4)),
    "gmpo narrow": (make("gmpo", log_clip_low=0.1, log_clip_high=0.3), "geo_mean", ROW_MEAN, clip(0.1, 0.3)),
    "reinforce": (make("reinforce", baseline="batch"), "gpg", CONSTANT, {"batch": LIMITED}),
    "rloo": (make("rloo"), "gpg", CONSTANT, {"batch": LIMITED}),
    "opo": (make("opo"), "gpg", CONSTANT, {"batch": LIMITED}),
    "remax": (make("remax"), "gpg", CONSTANT, {"batch": LIMITED}),
    "subsequence as gspo": (make("gspo_subsequence", preset="gspo"), "gspo", ROW_MEAN, clip(3e-4, 4e-4)),
    "subsequence as grpo": (make("gspo_subsequence", preset="grpo"), "vanilla", ROW_MEAN, clip(0.2, 0.2)),
    "subsequence as gmpo": (make("gspo_subsequence", preset="gmpo"), "geo_mean", ROW_MEAN, clip(0.4, 0.4)),
}


def verl_loss(verl: ModuleType, name: str, case: Case, found: Any) -> Result:
    _, loss, aggregation, settings = LOSSES[name]
    return verl.policy_loss(loss, tokens_of(case, found), aggregation, **settings)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient_are_those_of_verl(verl: ModuleType, name: str, case: Case) -> None:
    found = ours(LOSSES[name][0], case)
    assert_same(found, verl_loss(verl, name, case, found))


@pytest.mark.parametrize("name", ["grpo", "dapo token mean", "dr_grpo", "gspo", "sapo", "cispo", "rloo"])
def test_a_row_without_tokens_counts_in_neither(verl: ModuleType, name: str) -> None:
    case = without_row(CASES["plain"], 5)
    found = ours(LOSSES[name][0], case)
    assert_same(found, verl_loss(verl, name, case, found))


@pytest.mark.parametrize("name", ["gspo_token", "sapo", "grpo"])
def test_advantages_that_vary_along_a_response_are_treated_as_in_verl(verl: ModuleType, name: str) -> None:
    """GSPO-token: the clip is decided by the response's ratio and each token's own sign (verl's gspo is GSPO-token)."""
    case = CASES["plain"]
    advantages = torch.randn(case.current["logprobs"].shape, generator=torch.Generator().manual_seed(7)).double()
    found = ours(LOSSES[name][0], case, advantages)
    assert_same(found, verl_loss(verl, name, case, found))


@pytest.mark.parametrize("name", ["grpo", "dapo token mean", "dr_grpo", "gspo", "sapo", "cispo", "rloo"])
def test_micro_batches_add_up_to_the_step_where_verl_is_told_of_the_whole(verl: ModuleType, name: str) -> None:
    case = CASES["plain"]
    objective, loss, aggregation, settings = LOSSES[name]
    found = ours(objective, case)
    tokens = tokens_of(case, found)
    rows = PROMPTS * GROUP_SIZE
    whole = {"batch_num_tokens": int(tokens.mask.sum()), "global_batch_size": rows, "loss_scale_factor": LIMIT}
    parts = [
        verl.policy_loss(loss, tokens.rows(start, start + 5), aggregation, **{**settings, "batch": whole})
        for start in range(0, rows, 5)
    ]
    loss_sum = torch.stack([part.loss for part in parts]).sum()
    assert_same(found, Result(loss_sum, torch.cat([part.gradient for part in parts])))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("dppo_tv", 0.05, 0.15), ("dppo_tv", 0.15, 0.05), ("dppo_kl", 0.01, 0.05), ("dppo_kl", 0.05, 0.01)],
)
def test_dppo_has_the_gradient_of_verls(verl: ModuleType, name: str, low: float, high: float, case: Case) -> None:
    """Uncapped. The loss is another number: verl's is -sg(r) A log pi_theta, ours -r A, of the same gradient r A."""
    prefix = name.removeprefix("dppo_")
    found = ours(make(name, **{f"{prefix}_low": low, f"{prefix}_high": high}), case)
    expected = verl.policy_loss(name, tokens_of(case, found), TOKEN_MEAN, **clip(low, high))
    assert_same_gradient(found, expected)
    assert float(found.loss) != pytest.approx(float(expected.loss), rel=0.1)
    dropped = found.stats["clipped"] & found.targets.loss_mask
    for sign in (1, -1):
        assert int((dropped & (found.targets.advantages * sign > 0)).sum()) > 3


def test_kimi_on_responses_of_one_token_is_the_dro_of_verl(verl: ModuleType) -> None:
    """DRO squares the token's log-ratio, Kimi the response's: one token is where they meet."""
    case = make_case(one_length=1)
    found = ours(make("kimi", tau=0.3), case)
    settings = {"batch": LIMITED, "loss_settings": {"dro_beta": 0.3}}
    assert_same(found, verl.policy_loss("dro", tokens_of(case, found), CONSTANT, **settings))
    longer = ours(make("kimi", tau=0.3), CASES["plain"])
    other = verl.policy_loss("dro", tokens_of(CASES["plain"], longer), CONSTANT, **settings)
    assert not torch.allclose(longer.gradients["logprobs"], other.gradient, rtol=1e-2)


def test_the_share_of_clipped_tokens_is_the_one_verl_logs(verl: ModuleType) -> None:
    case = CASES["wide"]
    for name in ("grpo", "gspo wide", "cispo"):
        found = ours(LOSSES[name][0], case)
        share = found.stats["clipped"][found.targets.loss_mask].double().mean()
        assert float(share) == pytest.approx(verl_loss(verl, name, case, found).clip_fraction, rel=1e-6)
        assert 0.1 < float(share) < 0.95
