"""Losses and gradients are TRL's to 1e-7, for every objective that TRL has, on batches clipped on either side."""

import math
from types import ModuleType
from typing import Any

import pytest
import torch

import objectives
from objectives import Objective
from objectives.reference_engine import Case, divergence
from tests.objectives.parity.cases import CASES, LIMIT, RTOL, assert_close, assert_same, ours, tokens_of

SEQUENCE = {"loss_type": "grpo", "importance_sampling_level": "sequence"}
NARROW = {"clip_low": 3e-4, "clip_high": 4e-4}
TRL_NARROW = {"epsilon": 3e-4, "epsilon_high": 4e-4}
TRL_HIGHER = {"epsilon": 0.2, "epsilon_high": 0.28}
# TRL rounds SAPO's temperatures to float32, whatever the log-probabilities are: its default 1.05 is this number.
ROUNDED = float(torch.tensor(1.05, dtype=torch.float32))


def make(name: str, **settings: Any) -> Objective:
    return objectives.make(name, **settings)


# name: (our objective, TRL's settings, TRL's loss is ours times this)
LOSSES: dict[str, tuple[Objective, dict[str, Any], float]] = {
    "grpo": (make("grpo"), {"loss_type": "grpo"}, 1),
    "grpo clip-higher": (make("grpo", clip_high=0.28), {"loss_type": "grpo", **TRL_HIGHER}, 1),
    "dapo token mean": (make("dapo", weights="token_mean"), {"loss_type": "dapo", **TRL_HIGHER}, 1),
    "lite_ppo": (make("lite_ppo"), {"loss_type": "dapo"}, 1),
    "reinforce_pp": (make("reinforce_pp"), {"loss_type": "dapo", "per_token": True}, 1),
    "reinforce_pp_baseline": (make("reinforce_pp_baseline"), {"loss_type": "dapo"}, 1),
    "dr_grpo": (make("dr_grpo"), {"loss_type": "dr_grpo", "max_completion_length": LIMIT}, 1),
    "gspo": (make("gspo"), {**SEQUENCE, **TRL_NARROW}, 1),
    "gspo wide": (make("gspo", clip_low=0.05, clip_high=0.1), {**SEQUENCE, "epsilon": 0.05, "epsilon_high": 0.1}, 1),
    "gspo_token": (make("gspo_token"), {**SEQUENCE, **TRL_NARROW}, 1),
    "luspo": (make("luspo", **NARROW), {**SEQUENCE, "loss_type": "luspo", **TRL_NARROW}, LIMIT),
    "sapo": (make("sapo", tau_negative=ROUNDED), {"loss_type": "sapo"}, 1),
    "sapo steep": (
        make("sapo", tau_positive=2.0, tau_negative=5.0),
        {"loss_type": "sapo", "sapo_temperature_pos": 2.0, "sapo_temperature_neg": 5.0},
        1,
    ),
    "vespo": (make("vespo"), {"loss_type": "vespo"}, 1),
    "vespo other powers": (
        make("vespo", k_positive=1.0, lam_positive=0.5, k_negative=2.0, lam_negative=1.5),
        {
            "loss_type": "vespo",
            "vespo_k_pos": 1.0,
            "vespo_lambda_pos": 0.5,
            "vespo_k_neg": 2.0,
            "vespo_lambda_neg": 1.5,
        },
        1,
    ),
    "gmpo": (make("gmpo"), {"trainer": "gmpo"}, 1),
    "gmpo narrow": (
        make("gmpo", log_clip_low=0.1, log_clip_high=0.3),
        {"trainer": "gmpo", "epsilon": 0.1, "epsilon_high": 0.3},
        1,
    ),
    "subsequence as rloo": (make("gspo_subsequence", preset="rloo"), {"trainer": "rloo"}, LIMIT),
    "subsequence as gspo": (make("gspo_subsequence", preset="gspo"), {**SEQUENCE, **TRL_NARROW}, 1),
    "subsequence as grpo": (make("gspo_subsequence", preset="grpo"), {"loss_type": "grpo"}, 1),
    "subsequence as gmpo": (make("gspo_subsequence", preset="gmpo"), {"trainer": "gmpo"}, 1),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient_are_those_of_trl(trl: ModuleType, name: str, case: Case) -> None:
    objective, settings, factor = LOSSES[name]
    found = ours(objective, case)
    assert_same(found, trl.loss(tokens_of(case, found), **settings), factor)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_cispo_with_the_bound_itself_as_epsilon_high_is_that_of_trl(trl: ModuleType, case: Case) -> None:
    """TRL's ``epsilon_high`` of CISPO is the bound, ours its distance from 1; TRL has no lower bound."""
    found = ours(make("cispo", clip_high=0.3), case)
    assert_same(found, trl.loss(tokens_of(case, found), loss_type="cispo", epsilon_high=1.3))


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_dual_clip_is_the_delta_of_trl(trl: ModuleType, loss_type: str) -> None:
    """``delta`` above 1 + epsilon_high bounds the ratio where A < 0: dual clip. Without it the losses are others."""
    case = CASES["wide"]
    objective = make("ppo", dual_clip=2.0, entropy_coef=0.0)
    if loss_type == "grpo":
        objective = make("gspo_subsequence", preset="grpo", dual_clip=2.0)
    found = ours(objective, case)
    tokens = tokens_of(case, found)
    ratio = (tokens.logprobs - tokens.old_logprobs).exp()
    assert int(((ratio > 2) & (tokens.advantages < 0) & tokens.mask).sum()) > 5
    assert_same(found, trl.loss(tokens, loss_type=loss_type, delta=2.0, per_token=True))
    without = trl.loss(tokens, loss_type=loss_type, per_token=True)
    assert float(without.loss) > float(found.loss) + 0.02


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_reference_penalty_is_trls_with_its_bias_correction(trl: ModuleType, case: Case) -> None:
    """TRL 1.16's default is ratio * k3, differentiated through the ratio, as ours; mean over tokens here."""
    value, gradient, _ = divergence(objectives.trust_region.make("reference_penalty"), case)
    policy = ours(make("lite_ppo"), case)
    tokens = tokens_of(case, policy)
    found = trl.loss(tokens, loss_type="dapo", beta=0.04)
    share = 0.04 / int(tokens.mask.sum())
    assert float(found.loss) == pytest.approx(float(policy.loss) + share * float(value.sum()), rel=RTOL)
    both = policy.gradients["logprobs"] + share * gradient
    assert_close(found.gradient, both)
    bare = trl.loss(tokens, loss_type="dapo", beta=0.04, use_bias_correction_kl=False)
    assert not torch.allclose(bare.gradient, both, rtol=1e-2)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("grpo", {"loss_type": "grpo"}), ("gspo", {**SEQUENCE, **TRL_NARROW}), ("gmpo", {"trainer": "gmpo"})],
)
def test_the_share_of_clipped_tokens_is_the_one_trl_logs(trl: ModuleType, name: str, settings: dict[str, Any]) -> None:
    """By token; for GSPO by response, where TRL takes the mean over responses."""
    case = CASES["wide"]
    found = ours(make(name), case)
    mask, clipped = found.targets.loss_mask, found.stats["clipped"]
    share = clipped[mask].double().mean() if name != "gspo" else (clipped & mask).any(1).double().mean()
    assert float(share) == pytest.approx(trl.loss(tokens_of(case, found), **settings).clip_fraction, rel=1e-6)
    assert 0.1 < float(share) < 0.9


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_batches_hold_many_tokens_outside_the_clip_on_either_side(case: Case) -> None:
    found = ours(make("grpo"), case)
    tokens = tokens_of(case, found)
    ratio = (tokens.logprobs - tokens.old_logprobs).exp()
    whole = torch.where(tokens.mask, ratio.log(), 0).sum(1)
    for sign in (1, -1):
        at = tokens.mask & (tokens.advantages * sign > 0)
        rows = at.any(1)
        for low, high in ((0, 0.8), (0.8, 1.2), (1.28, math.inf)):
            assert int((at & (ratio > low) & (ratio < high)).sum()) >= 8
        for outside in (whole > math.log(1.2), whole < math.log(0.8)):
            assert int((rows & outside).sum()) >= 2
    assert len(tokens.mask.sum(1).unique()) > 5
