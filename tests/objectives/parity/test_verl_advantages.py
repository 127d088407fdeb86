"""Advantages and returns against verl's estimators, and where the two part on purpose."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import objectives
from objectives import Finish, Targets
from objectives.advantages import group_advantages, leave_one_out_advantages, length_weighted_advantages, whiten
from objectives.reference_engine import Case
from tests.objectives.parity.cases import CASES, RTOL, assert_close

ROLLOUT = CASES["plain"].rollout
ALL_CASES = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def targets(name: str, case: Case, **settings: Any) -> Targets:
    return objectives.make(name, **settings).targets(case.rollout)


@ALL_CASES
@pytest.mark.parametrize(
    ("name", "settings", "estimator", "theirs"),
    [
        ("grpo", {}, "grpo", {}),
        ("grpo", {"std_eps": 0.1}, "grpo", {"epsilon": 0.1}),
        ("dr_grpo", {}, "grpo", {"norm_adv_by_std_in_grpo": False}),
        ("rloo", {}, "rloo", {}),
        ("rloo", {}, "rloo_vectorized", {}),
        ("opo", {}, "opo", {}),
        ("reinforce_pp_baseline", {}, "reinforce_plus_plus_baseline", {}),
    ],
)
def test_advantages_within_a_group_are_those_of_verl(
    verl: ModuleType, case: Case, name: str, settings: dict[str, Any], estimator: str, theirs: dict[str, Any]
) -> None:
    """Sample deviation (ddof 1) plus eps; leave-one-out; length-weighted; centred, then whitened over tokens."""
    rollout = case.rollout
    expected, _ = verl.advantages(estimator, rollout.rewards, rollout.response_mask, rollout.group, **theirs)
    found = targets(name, case, **settings).advantages
    assert int((found != 0).sum()) > 100
    assert_close(found, expected)


def test_the_vectorised_grpo_of_verl_is_the_same_in_float32(verl: ModuleType) -> None:
    """It computes in float32 whatever it is given, so only to 1e-5."""
    expected, _ = verl.advantages("grpo_vectorized", ROLLOUT.rewards, ROLLOUT.response_mask, ROLLOUT.group)
    assert_close(targets("grpo", CASES["plain"]).advantages, expected.double(), rtol=1e-5, atol=1e-7)


@ALL_CASES
def test_remax_takes_the_greedy_reward_off_as_in_verl(verl: ModuleType, case: Case) -> None:
    rollout = case.rollout
    expected, _ = verl.advantages(
        "remax", rollout.rewards, rollout.response_mask, reward_baselines=rollout.greedy_rewards
    )
    mask = rollout.response_mask  # between tokens, at a tool's, verl leaves what no loss reads
    assert_close(targets("remax", case).advantages[mask], expected[mask])


def last_token_rewards(rewards: Tensor, mask: Tensor) -> Tensor:
    columns = torch.arange(1, mask.shape[1] + 1)
    return torch.where(columns == (mask * columns).amax(1, keepdim=True), rewards[:, None], 0.0)


@ALL_CASES
@pytest.mark.parametrize(("gamma", "coef"), [(1.0, 0.0), (0.9, 0.0), (1.0, 0.1), (0.9, 0.5)])
def test_reinforce_plus_plus_is_verls_with_the_kl_in_the_reward(
    verl: ModuleType, case: Case, gamma: float, coef: float
) -> None:
    """k1 to the reference off each token's reward, discounted back over a tool's tokens for free, whitened."""
    rollout = case.rollout
    rewards = last_token_rewards(rollout.rewards, rollout.response_mask)
    rewards = verl.kl_rewards(rewards, rollout.old_logprobs, rollout.ref_logprobs, coef)
    expected, _ = verl.advantages("reinforce_plus_plus", rewards, rollout.response_mask, gamma=gamma)
    found = targets("reinforce_pp", case, gamma=gamma, kl_coef=coef).advantages
    assert_close(found, expected)


@ALL_CASES
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (1.0, 0.95), (0.9, 0.8), (0.99, 0.0)])
def test_generalised_advantages_and_returns_are_those_of_verl(
    verl: ModuleType, case: Case, gamma: float, lam: float
) -> None:
    rollout = case.rollout
    mask, values = rollout.response_mask, rollout.old_values
    assert values is not None
    expected, returns = verl.advantages("gae", rollout.rewards, mask, gamma=gamma, lam=lam, values=values[:, :-1])
    found = targets("ppo", case, gamma=gamma, lam=lam)
    assert found.returns is not None
    assert_close(found.advantages[mask], expected[mask])
    assert_close(found.returns[mask], returns[mask])


# Where they part


def test_verl_never_bootstraps_and_we_do_where_the_window_cut_a_response(verl: ModuleType) -> None:
    """Equal to verl with gamma V of the next position added to the last reward of rows 0 and 4."""
    cut = torch.isin(torch.arange(len(ROLLOUT.rewards)), torch.tensor([0, 4]))
    finish = torch.where(cut, int(Finish.WINDOW), ROLLOUT.finish).to(torch.int8)
    case = Case(replace(ROLLOUT, finish=finish), CASES["plain"].current)
    mask, values = ROLLOUT.response_mask, ROLLOUT.old_values
    assert values is not None
    bootstrap = values.gather(1, mask.sum(1, keepdim=True))[:, 0]
    found = targets("ppo", case, gamma=0.9).returns
    assert found is not None
    for rewards, same in ((ROLLOUT.rewards, False), (ROLLOUT.rewards + 0.9 * bootstrap * cut, True)):
        _, returns = verl.advantages("gae", rewards, mask, gamma=0.9, lam=0.95, values=values[:, :-1])
        assert torch.allclose(found[mask], returns[mask], rtol=RTOL) == same


@pytest.mark.parametrize(
    ("estimator", "theirs"),
    [("grpo", 0.4), ("grpo_vectorized", 0.4), ("rloo", 0.4), ("rloo_vectorized", 0.0), ("opo", 0.4)],
)
def test_a_group_of_one_has_no_advantage_here_and_mostly_its_reward_in_verl(
    verl: ModuleType, estimator: str, theirs: float
) -> None:
    """Reward 0.4, alone in its group: verl's estimators disagree among themselves, ours are all 0."""
    rewards, group = torch.tensor([0.4], dtype=torch.float64), torch.tensor([0])
    mask = torch.ones(1, 2, dtype=torch.bool)
    expected, _ = verl.advantages(estimator, rewards, mask, group)
    assert expected.flatten().tolist() == pytest.approx([theirs] * 2, rel=1e-5)
    assert group_advantages(rewards, group, scale="group").tolist() == [0]
    assert leave_one_out_advantages(rewards, group).tolist() == [0]
    assert length_weighted_advantages(rewards, group, mask.sum(1)).tolist() == [0]


@pytest.mark.parametrize(("reward", "theirs"), [(0.7, 0.056), (0.1, 0.0074)])
def test_equal_rewards_in_float32_are_a_signal_to_verl_and_none_to_us(
    verl: ModuleType, reward: float, theirs: float
) -> None:
    """8 equal rewards: float noise over std + 1e-6 in verl, exactly 0 in ours."""
    rewards, group = torch.full((8,), reward), torch.zeros(8, dtype=torch.long)
    expected, _ = verl.advantages("grpo", rewards, torch.ones(8, 1, dtype=torch.bool), group)
    assert expected.abs().flatten().tolist() == pytest.approx([theirs] * 8, rel=0.05)
    assert group_advantages(rewards, group, scale="group", std_eps=1e-6).tolist() == [0] * 8


def test_whitening_a_single_token_is_refused_by_verl_and_leaves_it_as_it_is_here(verl: ModuleType) -> None:
    mask = torch.tensor([[True, False]])
    with pytest.raises(ValueError, match="sum of the mask is one"):
        verl.advantages("reinforce_plus_plus", torch.tensor([0.4]), mask)
    assert whiten(torch.tensor([[0.5, 9.0]]), mask).tolist() == [[0.5, 0.0]]
