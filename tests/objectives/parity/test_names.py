"""Settings that have one name and several meanings (or none): what each library understands, and our name for it."""

from types import ModuleType

import pytest
import torch

import objectives
from tests.objectives.parity.cases import CASES, assert_close, assert_same, ours, tokens_of

CASE = CASES["wide"]


def test_epsilon_high_is_a_bound_an_offset_or_a_log_ratio(trl: ModuleType, verl: ModuleType) -> None:
    """0.28 bounds CISPO's weight at 0.28 in TRL and at 1.28 in verl, PPO's ratio at 1.28 and GMPO's at e^0.28."""
    found = ours(objectives.make("cispo", clip_high=0.28), CASE)
    tokens = tokens_of(CASE, found)
    high = {"clip_ratio_low": 1.0, "clip_ratio_high": 0.28}
    offset = verl.policy_loss("cispo", tokens, "token-mean", **high)
    assert_same(found, offset)
    bound = trl.loss(tokens, loss_type="cispo", epsilon_high=0.28)
    share = tokens.advantages / tokens.mask.sum()
    assert float((offset.gradient / share)[tokens.mask].abs().max()) == pytest.approx(1.28)
    assert float((bound.gradient / share)[tokens.mask].abs().max()) == pytest.approx(0.28)
    gmpo = ours(objectives.make("gmpo", log_clip_low=0.4, log_clip_high=0.28), CASE)
    assert_same(gmpo, trl.loss(tokens, "gmpo", epsilon=0.4, epsilon_high=0.28))
    assert_same(gmpo, verl.policy_loss("geo_mean", tokens, "", clip_ratio_low=0.4, clip_ratio_high=0.28))


def test_cispo_at_the_defaults_of_trl_gives_all_tokens_one_weight(trl: ModuleType) -> None:
    """epsilon_high falls back to epsilon, 0.2: a weight of 0.2 wherever r > 0.2. Ours is bounded at 5 by default."""
    tokens = tokens_of(CASE, ours(objectives.make("cispo"), CASE))
    weight = -trl.loss(tokens, loss_type="cispo").gradient / (tokens.advantages / tokens.mask.sum())
    usual = tokens.mask & ((tokens.logprobs - tokens.old_logprobs).exp() > 0.2)
    assert int(usual.sum()) > 100
    assert_close(weight[usual], torch.full_like(weight[usual], 0.2))


def test_dapo_is_a_mean_over_tokens_in_trl_and_a_recipe_here(trl: ModuleType) -> None:
    """TRL's default loss_type is "dapo", with a symmetric clip: PPO's clip under a token mean, our ``lite_ppo``'s loss.

    DAPO here brings clip-higher, the overlong punishment, dynamic sampling and the paper's mean over prompts.
    """
    assert (trl.defaults()["loss_type"], trl.defaults()["epsilon_high"]) == ("dapo", None)
    found = ours(objectives.make("lite_ppo"), CASE)
    assert_same(found, trl.loss(tokens_of(CASE, found)))
    with pytest.raises(AssertionError):
        assert_same(ours(objectives.make("dapo"), CASE), trl.loss(tokens_of(CASE, found)))


def test_dual_clip_is_always_on_in_verl_and_never_by_default_in_trl_and_here(trl: ModuleType, verl: ModuleType) -> None:
    """verl's "vanilla" at its defaults is our PPO loss with dual_clip 3."""
    assert trl.defaults()["delta"] is None
    found = ours(objectives.make("ppo", entropy_coef=0.0, dual_clip=3.0), CASE)
    tokens = tokens_of(CASE, found)
    default = verl.policy_loss("vanilla", tokens, "token-mean")
    assert_same(found, default)
    assert_same(found, trl.loss(tokens, loss_type="dapo", delta=3.0, per_token=True))
    assert float(ours(objectives.make("ppo", entropy_coef=0.0), CASE).loss) > float(default.loss) + 1e-3


def test_the_penalty_on_the_reference_is_off_by_default_but_for_trls_rloo(trl: ModuleType, verl: ModuleType) -> None:
    """Here a run has no reference unless its trust region is ``reference_penalty``."""
    assert trl.defaults()["beta"] == 0
    assert trl.defaults()["use_bias_correction_kl"] is True
    assert verl.config().use_kl_loss is False
    assert trl.defaults("rloo")["beta"] == 0.05


def test_kl_cov_and_dppo_have_other_defaults_in_verl(verl: ModuleType) -> None:
    """verl: fraction 2e-4 and coefficient 0.1, where the paper has 2e-3 and 1; DPPO's bounds are PPO's clip, 0.2."""
    theirs = verl.config()
    held = objectives.make("kl_cov")
    assert (theirs.policy_loss.kl_cov_ratio, theirs.policy_loss.ppo_kl_coef) == (2e-4, 0.1)
    assert (held.fraction, held.kl_coef) == (2e-3, 1.0)  # pyright: ignore
    assert (theirs.clip_ratio_low, objectives.make("dppo_tv").tv_low) == (0.2, 0.15)  # pyright: ignore


def test_rloo_is_a_clipped_ratio_in_trl_and_the_score_function_here(trl: ModuleType) -> None:
    """TRL's RLOOTrainer is our subsequence objective with preset "rloo"; ``rloo`` is the paper's REINFORCE."""
    preset = ours(objectives.make("gspo_subsequence", preset="rloo"), CASE)
    tokens = tokens_of(CASE, preset)
    theirs = trl.loss(tokens, "rloo")
    assert_same(preset, theirs, 16)
    paper = ours(objectives.make("rloo"), CASE)
    assert_close(paper.targets.advantages, tokens.advantages)
    assert float(torch.cosine_similarity(paper.gradients["logprobs"].flatten(), theirs.gradient.flatten(), 0)) < 0.9
