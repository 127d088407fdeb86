"""Advantages, masks and the overlong punishment against TRL's scoring of a generation batch."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import objectives
from objectives import Finish, Objective
from objectives.advantages import Scale, group_advantages, leave_one_out_advantages
from objectives.reference_engine import Case
from tests.objectives.parity.cases import (
    CASES,
    GROUP_SIZE,
    LIMIT,
    Result,
    Tokens,
    assert_close,
    assert_same,
    make_case,
    ours,
    tokens_of,
)

ROLLOUT = CASES["plain"].rollout
UNKNOWN = ROLLOUT.rewards.index_fill(0, torch.tensor([0, 3, 9]), torch.nan)


@pytest.mark.parametrize(
    "rewards", [ROLLOUT.rewards, (ROLLOUT.rewards > 0).double(), UNKNOWN], ids=["real", "binary", "unknown"]
)
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_group_advantages_are_those_of_scale_rewards(trl: ModuleType, scale: Scale, rewards: Tensor) -> None:
    """Sample deviation (ddof 1) plus 1e-4, unknown rewards in no statistic and with advantage 0."""
    expected = trl.score(rewards, GROUP_SIZE, scale_rewards=scale)["advantages"]
    found = group_advantages(rewards, ROLLOUT.group, scale=scale, std_eps=1e-4)
    assert_close(found, expected)
    assert int((found != 0).sum()) >= 16


@pytest.mark.parametrize("rewards", [ROLLOUT.rewards, UNKNOWN], ids=["known", "unknown"])
def test_leave_one_out_advantages_are_those_of_rloo(trl: ModuleType, rewards: Tensor) -> None:
    expected = trl.score(rewards, GROUP_SIZE, "rloo", beta=0.0)["advantages"]
    assert_close(leave_one_out_advantages(rewards, ROLLOUT.group), expected, rtol=1e-12)


def test_rloo_of_trl_takes_the_kl_to_the_reference_off_the_reward_by_default(trl: ModuleType) -> None:
    """TRL: R - 0.05 sum_t log(pi_old / pi_ref) before the baseline. Ours leaves the reference to a trust region."""
    mask, old, ref = ROLLOUT.response_mask, ROLLOUT.old_logprobs, ROLLOUT.ref_logprobs
    assert ref is not None
    expected = trl.score(ROLLOUT.rewards, GROUP_SIZE, "rloo", mask=mask, old_logprobs=old, ref_logprobs=ref)
    less = ROLLOUT.rewards - 0.05 * torch.where(mask, old - ref, 0).sum(1)
    found = leave_one_out_advantages(less, ROLLOUT.group)
    assert_close(found, expected["advantages"], rtol=1e-12)
    assert not torch.allclose(found, leave_one_out_advantages(ROLLOUT.rewards, ROLLOUT.group), atol=1e-2)


@pytest.mark.parametrize(("trainer", "settings"), [("grpo", {}), ("rloo", {"beta": 0.0})])
def test_a_group_of_one_has_no_advantage(trl: ModuleType, trainer: str, settings: dict[str, Any]) -> None:
    rewards = torch.tensor([1.0, 0.3])
    assert trl.score(rewards, 1, trainer, **settings)["advantages"].tolist() == [0, 0]
    estimate = group_advantages if trainer == "grpo" else leave_one_out_advantages
    assert estimate(rewards, torch.arange(2)).tolist() == [0, 0]


def test_equal_rewards_in_float32_are_a_signal_to_trl_and_none_to_us(trl: ModuleType) -> None:
    """TRL divides float noise by std + 1e-4: 8 rewards of 0.7 get 6e-4 each. Ours are exactly 0, whatever the eps."""
    rewards = torch.full((8,), 0.7)
    theirs = trl.score(rewards, 8)["advantages"]
    assert float(theirs.abs().min()) == pytest.approx(6e-4, rel=0.02)
    found = group_advantages(rewards, torch.zeros(8, dtype=torch.long), scale="group", std_eps=1e-6)
    assert found.tolist() == [0.0] * 8


# From rewards to gradients, on TRL's own masks and counts


def pipeline(trl: ModuleType, objective: Objective, case: Case, **settings: Any) -> tuple[Tokens, Result]:
    """TRL's loss on the advantages and masks of TRL's own scoring."""
    rollout = case.rollout
    scored = trl.score(
        rollout.rewards,
        GROUP_SIZE,
        mask=rollout.response_mask,
        ended=rollout.finish != Finish.LENGTH,
        old_logprobs=rollout.old_logprobs,
        **settings,
    )
    mask = (scored["completion_mask"] * scored["tool_mask"]).bool()
    wide = torch.nn.functional.pad(mask, (0, rollout.response_mask.shape[1] - mask.shape[1]))
    tokens = replace(tokens_of(case, ours(objective, case)), mask=wide, advantages=scored["advantages"][:, None] * wide)
    return tokens, trl.loss(tokens, num_items=int(scored["num_items_in_batch"]), **settings)


PIPELINES: dict[str, tuple[Objective, dict[str, Any]]] = {
    "grpo": (objectives.make("grpo", std_eps=1e-4), {"loss_type": "grpo"}),
    "dr_grpo": (
        objectives.make("dr_grpo"),
        {"loss_type": "dr_grpo", "scale_rewards": "none", "max_completion_length": LIMIT},
    ),
    "lite_ppo": (objectives.make("lite_ppo", std_eps=1e-4), {"loss_type": "dapo", "scale_rewards": "batch"}),
    "gspo": (
        objectives.make("gspo", std_eps=1e-4, clip_low=0.1, clip_high=0.1),
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.1},
    ),
    "vespo": (objectives.make("vespo", std_eps=1e-4), {"loss_type": "vespo"}),
}


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_from_rewards_to_gradients_all_is_as_in_trl(trl: ModuleType, case: Case, name: str) -> None:
    """TRL's own advantages, masks (a tool's tokens out) and token count, then its loss."""
    objective, settings = PIPELINES[name]
    assert_same(ours(objective, case), pipeline(trl, objective, case, **settings)[1])


def truncated(case: Case) -> Case:
    finish = case.rollout.finish.clone()
    finish[[2, 11, 20]] = int(Finish.LENGTH)
    return Case(replace(case.rollout, finish=finish), case.current)


def test_the_overlong_filter_is_trls_mask_truncated_completions(trl: ModuleType) -> None:
    """Truncated responses leave loss and denominator in both, and stay in the group's statistics in both."""
    objective = objectives.make("dapo", overlong_buffer=0, overlong_filter=True, weights="token_mean", std_eps=1e-4)
    case = truncated(CASES["plain"])
    settings = {"loss_type": "dapo", "epsilon_high": 0.28, "mask_truncated_completions": True}
    tokens, expected = pipeline(trl, objective, case, **settings)
    found = ours(objective, case)
    assert_same(found, expected)
    assert_close(found.targets.advantages, tokens.advantages)
    assert not bool(found.targets.loss_mask[[2, 11, 20]].any())


def test_a_row_with_an_unknown_reward_leaves_our_loss_and_stays_in_trls_denominator(trl: ModuleType) -> None:
    """Both give it advantage 0; TRL still counts it as one of 24 rows, ours has 21 (losses 24 to 21)."""
    case = CASES["plain"]
    case = Case(replace(case.rollout, rewards=UNKNOWN), case.current)
    objective, settings = PIPELINES["grpo"]
    found = ours(objective, case)
    assert not bool(found.targets.loss_mask[UNKNOWN.isnan()].any())
    assert_same(found, pipeline(trl, objective, case, **settings)[1], 21 / 24)


def test_soft_overlong_punishment_is_trls(trl: ModuleType) -> None:
    """0 up to limit - buffer, then linear down to -1 at the limit and beyond."""
    lengths = list(range(21))
    mask = torch.arange(20) < torch.tensor(lengths)[:, None]
    case = make_case(one_length=12)
    rows = torch.arange(21)
    rollout = replace(
        case.rollout,
        **{name: getattr(case.rollout, name)[rows] for name in ("rewards", "group", "origin", "finish")},
        response_ids=torch.zeros(21, 20, dtype=torch.long),
        response_mask=mask,
        old_logprobs=torch.zeros(21, 20, dtype=torch.float64),
        **dict.fromkeys(("ref_logprobs", "teacher_logprobs", "old_values", "greedy_rewards", "correct")),
    )
    for buffer in (4, 8, 16):
        dapo: Any = objectives.make("dapo", overlong_buffer=buffer / LIMIT)
        expected = torch.tensor(trl.soft_overlong_punishment(lengths, LIMIT, buffer), dtype=torch.float64)
        assert_close(dapo.punishment(rollout), expected, rtol=1e-12)
        assert len(expected.unique()) == buffer + 1
    nothing: Any = objectives.make("dapo", overlong_buffer=0)
    assert float(nothing.punishment(rollout)[:17].abs().max()) == 0
    assert trl.soft_overlong_punishment(lengths[:17], LIMIT, 0) == [0] * 17
