"""What DAPO, CPGD and RePO do to rewards, masks and groups, by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import objectives
from objectives import Finish, Origin, Rollout
from tests.objectives.made import doubles, first, rollout_of, step_of

NAN = math.nan

# DAPO's rules


@pytest.mark.parametrize(("length", "expected"), [(6, 0), (8, 0), (9, -0.5), (10, -1), (12, -1)])
def test_the_punishment_grows_over_the_buffer(length: int, expected: float) -> None:
    """Eq. 13 with limit 10 and buffer 2."""
    data = rollout_of([1.0], [length], width=12, max_response_tokens=10)
    assert objectives.make("dapo").punishment(data).tolist() == [expected]  # pyright: ignore


def test_the_punishment_is_part_of_the_group_statistics() -> None:
    data = rollout_of([1.0, 1.0], [8, 10], width=10, max_response_tokens=10)
    torch.testing.assert_close(first("dapo", data, std_eps=0), doubles(1, -1) / math.sqrt(2))
    assert first("dapo", data, overlong_buffer=0).tolist() == [0, 0]


def test_without_a_limit_the_padded_width_is_the_limit() -> None:
    data = rollout_of([1.0], [9], width=10)
    assert objectives.make("dapo").punishment(data).tolist() == [-0.5]  # pyright: ignore


@pytest.mark.parametrize("weights", ["prompt_mean", "token_mean"])
def test_the_overlong_filter_takes_a_response_out_of_loss_and_denominator(weights: str) -> None:
    """Known faults 3 and 25: the mask reaches every weight; its reward still counts in the group."""
    finish = torch.tensor([Finish.EOS, Finish.LENGTH, Finish.EOS], dtype=torch.int8)
    data = rollout_of([0.0, 2.0, 1.0], [1, 4, 3], finish=finish, max_response_tokens=100)
    objective = objectives.make("dapo", overlong_filter=True, weights=weights)
    targets = objective.targets(data)
    assert targets.loss_mask.sum(1).tolist() == [1, 0, 3]
    torch.testing.assert_close(targets.advantages[:, 0], doubles(-1, 0, 0), rtol=1e-5, atol=0)
    assert objectives.make("dapo").targets(data).loss_mask.sum(1).tolist() == [1, 4, 3]


def test_dynamic_sampling_keeps_groups_with_two_different_rewards() -> None:
    rewards = torch.tensor([[0.7, 0.7, 0.7], [0.0, 1.0, 0.0], [NAN, NAN, 1.0], [NAN, 0.5, 1.0]])
    assert objectives.make("dapo").keep_groups(rewards).tolist() == [False, True, False, True]
    assert objectives.make("grpo").keep_groups(rewards).tolist() == [True] * 4


# CPGD's weights


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"omega": "equal"}, [-1, 1, 0, 0, 0, 0]),
        ({"omega": "std"}, [-1 / math.sqrt(2), 1 / math.sqrt(2), 0, 0, 0, 0]),
        ({"omega": "clip_filter"}, [-3, 3, 0, 0, 0, 0]),  # three prompts over one that informs
        ({"omega": "clip_filter", "clip_filter_max": 2}, [-2, 2, 0, 0, 0, 0]),
    ],
    ids=str,
)
def test_cpgd_weighs_advantages(settings: dict[str, Any], expected: list[float]) -> None:
    data = rollout_of([0.0, 2.0, 1.0, 1.0, 5.0, 5.0], [1] * 6, group=[0, 0, 1, 1, 2, 2])
    torch.testing.assert_close(first("cpgd", data, std_eps=0, **settings), doubles(*expected))


def test_cpgd_of_groups_all_alike_is_zero() -> None:
    assert first("cpgd", rollout_of([1.0, 1.0], [1, 1]), omega="clip_filter").tolist() == [0, 0]


# RePO's replayed rows: two fresh ones of prompt 0 (group 0), two replayed ones of the same prompt (group 1)


def replayed(rewards: list[float], lengths: list[int]) -> Rollout:
    origin = torch.tensor([Origin.FRESH, Origin.FRESH, Origin.REPLAY, Origin.REPLAY], dtype=torch.int8)
    data = rollout_of(rewards, lengths, group=[0, 0, 1, 1], prompt=torch.tensor([0, 0, 0, 0]))
    return replace(data, origin=origin)


def test_replays_of_successes_teach_only_beside_the_fresh_ones() -> None:
    """methods.md, 10.2: the k highest all right: split gives 0, mixed does not."""
    data = replayed([0.0, 1.0, 1.0, 1.0], [1, 1, 1, 1])
    torch.testing.assert_close(first("repo", data, std_eps=0), doubles(-1, 1, 0, 0) / math.sqrt(2))
    # together: mean 3/4, squares 9/16 + 3/16 = 3/4, sample variance 1/4
    torch.testing.assert_close(first("repo", data, advantages="mixed", std_eps=0), doubles(-1.5, 0.5, 0.5, 0.5))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (1 / 2, 1 / 4, 1 / 1)),  # two fresh rows of 1 and 2 tokens; one replayed row of one, beside an empty one
        ({"replay_coef": 0.5}, (1 / 2, 1 / 4, 1 / 2)),
        ({"normaliser": "all"}, (1 / 3, 1 / 6, 1 / 3)),
        ({"normaliser": "all", "replay_coef": 0.5}, (1 / 3, 1 / 6, 1 / 6)),
    ],
    ids=str,
)
def test_fresh_and_replayed_rows_are_means_of_their_own(settings: dict[str, Any], expected: tuple[float, ...]) -> None:
    data = replayed([0.0, 1.0, 1.0, 0.0], [1, 2, 1, 0])
    zeros = torch.zeros(4, 4, dtype=torch.float64)
    step = replace(step_of(zeros, zeros, data.response_mask), group=data.group, origin=data.origin)
    weights = objectives.make("repo", **settings).aggregation(step)
    torch.testing.assert_close(weights[:, 0], doubles(*expected, 0), rtol=1e-15, atol=0)


def test_mixed_advantages_say_what_they_miss() -> None:
    with pytest.raises(ValueError, match=r"reads Rollout\.prompt, which is None"):
        first("repo", rollout_of([1.0, 0.0], [1, 1]), advantages="mixed")
