"""Group statistics, advantages and whitening on cases small enough to do by hand."""

import math

import pytest
import torch

from objectives.advantages import Scale, broadcast_rows, generalised_advantages, group_advantages, whiten
from objectives.ops import clip_ratio_pessimistic, log_ratio, row_mean, saturated
from tests.objectives.made import doubles

NAN = math.nan


def test_group_advantages_by_hand() -> None:
    # mean 2, deviations -1, 0, 1, sample variance (1 + 0 + 1) / 2 = 1
    found = group_advantages(doubles(1, 2, 3), torch.zeros(3, dtype=torch.int64), scale="group", std_eps=0.5)
    torch.testing.assert_close(found, doubles(-1 / 1.5, 0, 1 / 1.5))


@pytest.mark.parametrize("reward", [0.7, 0.1, -3.3])
@pytest.mark.parametrize("scale", ["none", "group", "batch"])
def test_equal_rewards_in_float32_give_exactly_zero(reward: float, scale: Scale) -> None:
    """U17."""
    rewards = torch.full((8,), reward)
    assert group_advantages(rewards, torch.zeros(8, dtype=torch.int64), scale=scale).tolist() == [0.0] * 8


def test_equal_rewards_that_float32_wrote_in_two_ways_give_exactly_zero() -> None:
    """U17."""
    rewards = torch.tensor([0.1 + 0.2, 0.3, math.nextafter(0.3, 1)] * 3)
    rewards[0] = torch.nextafter(rewards[0], torch.tensor(1.0))
    assert len(set(rewards.tolist())) == 2
    assert group_advantages(rewards, torch.zeros(9, dtype=torch.int64), scale="group").tolist() == [0.0] * 9


def test_a_single_response_has_no_advantage() -> None:
    assert group_advantages(doubles(1, 5, 7), torch.tensor([0, 1, 1]), scale="group", std_eps=0)[0] == 0


def test_a_lone_known_reward_has_no_advantage() -> None:
    assert group_advantages(doubles(1, NAN), torch.tensor([0, 0]), scale="group", std_eps=0).tolist() == [0, 0]


def test_an_unknown_reward_does_not_count() -> None:
    with_it = group_advantages(doubles(1, NAN, 3), torch.zeros(3, dtype=torch.int64), scale="none")
    assert with_it.tolist() == [-1, 0, 1]  # mean (1 + 3) / 2


def test_a_group_of_unknown_rewards_gives_zero() -> None:
    assert group_advantages(doubles(NAN, NAN, 1, 2), torch.tensor([0, 0, 1, 1]), scale="group")[:2].tolist() == [
        0,
        0,
    ]


def test_no_rewards_give_no_advantages() -> None:
    assert group_advantages(torch.zeros(0), torch.zeros(0, dtype=torch.int64), scale="group").shape == (0,)


@pytest.mark.parametrize(("base", "spread"), [(1e4, 1.0), (1.0, 1e-4), (0.0, 1e-9)])
def test_a_far_or_narrow_group_is_scaled_as_any_other(base: float, spread: float) -> None:
    """Known fault 29."""
    rewards = base + spread * doubles(0, 1, 1, 0)
    found = group_advantages(rewards, torch.zeros(4, dtype=torch.int64), scale="group", std_eps=0)
    # deviations +-spread / 2, sample deviation sqrt(4 / 3) * spread / 2
    expected = doubles(-1, 1, 1, -1) * math.sqrt(3 / 4)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_rewards_of_1e4_in_float32_keep_their_difference() -> None:
    found = group_advantages(torch.tensor([1e4, 1e4 + 1]), torch.zeros(2, dtype=torch.int64), scale="none")
    assert found.tolist() == [-0.5, 0.5]


def test_two_groups_of_equal_rewards_stay_apart() -> None:
    # the same prompt text twice: all wrong in one group, all right in the other
    found = group_advantages(doubles(0, 1, 0, 1), torch.tensor([0, 1, 0, 1]), scale="group")
    assert found.tolist() == [0, 0, 0, 0]


def test_interleaved_groups_are_compared_within() -> None:
    found = group_advantages(doubles(1, 10, 3, 30), torch.tensor([0, 1, 0, 1]), scale="none")
    assert found.tolist() == [-1, -10, 1, 10]


def test_leave_one_out_is_the_centred_reward_stretched() -> None:
    rewards = doubles(0.3, 1.7, -0.4, 2.0)
    centred = group_advantages(rewards, torch.zeros(4, dtype=torch.int64), scale="none")
    others = torch.stack([rewards[i] - (rewards.sum() - rewards[i]) / 3 for i in range(4)])
    torch.testing.assert_close(4 / 3 * centred, others)


def test_gae_of_three_tokens_by_hand() -> None:
    """U19."""
    # delta = (0 + .9*2 - 1, 0 + .9*4 - 2, 1 + 0 - 4) = (.8, 1.6, -3); decay .9 * .5 = .45
    # A_2 = -3; A_1 = 1.6 - 1.35 = .25; A_0 = .8 + .1125 = .9125
    advantages, returns = generalised_advantages(
        doubles(0, 0, 1)[None], doubles(1, 2, 4, 0)[None], torch.ones(1, 3, dtype=torch.bool), gamma=0.9, lam=0.5
    )
    torch.testing.assert_close(advantages, doubles(0.9125, 0.25, -3)[None])
    torch.testing.assert_close(returns, doubles(1.9125, 2.25, 1)[None])


def test_gae_bootstraps_from_the_entry_after_the_last_token() -> None:
    # delta = .5 + .9 * 2 - 1 = 1.3; the padding's values are never read
    advantages, _ = generalised_advantages(
        doubles(0.5, 9)[None], doubles(1, 2, NAN)[None], torch.tensor([[True, False]]), gamma=0.9, lam=1
    )
    torch.testing.assert_close(advantages, doubles(1.3, 0)[None])


def test_gae_without_critic_is_the_return() -> None:
    """U19."""
    rewards = doubles(1, -2, 5)[None]
    mask = torch.ones(1, 3, dtype=torch.bool)
    advantages, returns = generalised_advantages(rewards, torch.zeros(1, 4).double(), mask, gamma=1, lam=1)
    torch.testing.assert_close(advantages, doubles(1 - 2 + 5, -2 + 5, 5)[None])
    torch.testing.assert_close(returns, advantages)


def test_gae_carries_value_and_advantage_through_masked_tokens() -> None:
    # tokens 0 and 3 are the policy's: delta_3 = 1 - 2 = -1, delta_0 = .9 * 2 - 1 = .8, A_0 = .8 + .45 * -1 = .35
    mask = torch.tensor([[True, False, False, True]])
    values = doubles(1, NAN, NAN, 2, 0)[None]
    advantages, returns = generalised_advantages(doubles(0, NAN, NAN, 1)[None], values, mask, gamma=0.9, lam=0.5)
    torch.testing.assert_close(advantages, doubles(0.35, 0, 0, -1)[None])
    torch.testing.assert_close(returns, doubles(1.35, 0, 0, 1)[None])


def test_whiten_by_hand() -> None:
    # mean 2, deviations -1, 1, sample variance 2
    found = whiten(doubles(1, 3, NAN)[None], torch.tensor([[True, True, False]]), eps=0)
    torch.testing.assert_close(found, doubles(-1 / math.sqrt(2), 1 / math.sqrt(2), 0)[None])


def test_whiten_leaves_a_single_entry_alone() -> None:
    assert whiten(doubles(5, NAN)[None], torch.tensor([[True, False]])).tolist() == [[5, 0]]


def test_log_ratio_is_bounded_and_masked() -> None:
    mask = torch.tensor([[True, True, True, False]])
    new = doubles(-1, 300, -300, NAN)[None].requires_grad_()
    found = log_ratio(new, doubles(-1.5, 0, 0, NAN)[None], mask)
    assert found.tolist() == [[0.5, 20, -20, 0]]
    (gradient,) = torch.autograd.grad(found.sum(), new)
    assert gradient.tolist() == [[1, 0, 0, 0]]
    assert saturated(new, doubles(-1.5, 0, 0, NAN)[None], mask).tolist() == [[False, True, True, False]]


def test_the_bound_itself_still_has_a_gradient() -> None:
    new = doubles(20, -20)[None]
    assert saturated(new, torch.zeros(1, 2).double(), new != 0).tolist() == [[False, False]]


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "slope"),
    [
        (1.5, 1, 1.28, 0),  # out of bounds in the rewarded direction
        (0.5, 1, 0.5, 1),  # wrong side: keeps its gradient
        (1.5, -1, 1.5, 1),
        (0.5, -1, 0.9, 0),
        (1.28, 1, 1.28, 1),  # at the bound
        (0.9, -1, 0.9, 1),
    ],
)
def test_clip_by_hand(ratio: float, advantage: float, expected: float, slope: float) -> None:
    x = doubles(ratio).requires_grad_()
    found = clip_ratio_pessimistic(x, doubles(advantage), 0.1, 0.28)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert (found.item(), gradient.item()) == (pytest.approx(expected), slope)


def test_row_mean_ignores_masked_entries() -> None:
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert row_mean(torch.tensor([[1.0, 3, NAN], [NAN, NAN, NAN]]), mask).tolist() == [[2], [0]]
    assert broadcast_rows(torch.tensor([5.0, NAN]), mask).tolist() == [[5, 5, 0], [0, 0, 0]]
