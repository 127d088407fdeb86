"""What format and length add to a reward, by hand: every part alone, together, and at its corners."""

import math

import pytest
import torch

from harness.config.errors import UserError
from harness.config.loading import resolve_run
from harness.config.parts import ShapingConfig
from harness.engine.judging import Judged
from harness.engine.reward_parts import added_reward
from objectives import Finish, Rollout, make

NAN = math.nan
LIMIT = 20


def judged(lengths, *, rewards=None, formatted=None, finish=None):
    """Return responses that are right, formatted and ended unless it is said otherwise."""
    count = len(lengths)
    rewards = torch.tensor(rewards or [1.0] * count)
    unfinished = torch.tensor(finish or [0] * count, dtype=torch.int8)
    known = ~rewards.isnan() & (unfinished != Finish.WINDOW)
    return Judged(
        rewards=rewards,
        correct=torch.where(known, (rewards == 1).float(), NAN),
        formatted=torch.where(known, torch.tensor(formatted or [1.0] * count), NAN),
        lengths=torch.tensor(lengths),
        finish=unfinished,
    )


def added(responses, group=None, **settings):
    return added_reward(ShapingConfig(**settings), responses, group, LIMIT).tolist()


def test_nothing_is_added_by_default():
    assert added(judged([1, 20], finish=[0, 1])) == [0.0, 0.0]


def test_a_response_in_the_format_earns_the_bonus_right_or_wrong():
    responses = judged([3, 3, 3, 3], rewards=[1.0, 0.0, 0.0, NAN], formatted=[1.0, 1.0, 0.0, 1.0])
    assert added(responses, format_coef=0.25) == [0.25, 0.25, 0.0, 0.0]


def test_tokens_beyond_the_free_ones_cost():
    responses = judged([0, 4, 5, 10], rewards=[0.0, 1.0, 0.0, 1.0])
    found = added(responses, length_penalty="per_token", length_coef=0.125, free_tokens=4)
    assert found == [0.0, 0.0, -0.125, -0.75]
    assert added(responses, length_penalty="per_token", length_coef=0.125) == [0.0, -0.5, -0.625, -1.25]


def test_kimis_length_reward_is_positive_for_right_answers_only():
    group = torch.tensor([0, 1, 0, 0, 1, 0])
    responses = judged([2, 7, 4, 10, 7, 2], rewards=[1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    # group 0: lengths 2, 4, 10, 2 -> lambda 0.5, 0.25, -0.5, 0.5; the last is wrong; group 1: equally long
    expected = [0.5, 0.0, 0.25, -0.5, 0.0, 0.0]
    assert added(responses, group, length_penalty="kimi", length_coef=1.0) == pytest.approx(expected, abs=1e-12)
    wrong = judged([2, 4, 10], rewards=[0.0, 0.0, 0.5])
    found = added(wrong, torch.zeros(3, dtype=torch.int64), length_penalty="kimi", length_coef=2.0)
    assert found == pytest.approx([0.0, 0.0, -1.0])


def test_a_single_known_response_has_no_length_reward():
    responses = judged([2, 9, 5], rewards=[1.0, NAN, 1.0])
    found = added(responses, torch.tensor([0, 0, 1]), length_penalty="kimi", length_coef=1.0)
    assert found == [0.0, 0.0, 0.0]


def test_what_could_not_be_scored_does_not_shift_its_siblings():
    group = torch.tensor([0, 0, 0])
    with_it = added(judged([2, 6, 4, 20], rewards=[1.0, 1.0, 1.0, NAN]), torch.zeros(4, dtype=torch.int64),
                    length_penalty="kimi", length_coef=1.0)  # fmt: skip
    without = added(judged([2, 6, 4]), group, length_penalty="kimi", length_coef=1.0)
    assert with_it == [*without, 0.0] == [0.5, -0.5, 0.0, 0.0]


def test_the_overlong_punishment_at_its_corners():
    """DAPO's eq. 13 with a limit of 20 and a buffer of 4."""
    lengths = [1, 15, 16, 17, 18, 19, 20]
    expected = [0.0, 0.0, 0.0, -0.25, -0.5, -0.75, -1.0]
    assert added(judged(lengths), overlong_buffer=0.2) == pytest.approx(expected, abs=1e-12)
    assert added(judged(lengths), overlong_buffer=0.2, overlong_coef=0.5) == pytest.approx(
        [half / 2 for half in expected], abs=1e-12
    )
    assert added(judged([20], finish=[1]), overlong_buffer=0.2) == [-1.0]
    assert added(judged([10, 20], finish=[0, 1]), overlong_buffer=1.0) == [-0.5, -1.0]


def test_the_overlong_punishment_is_the_one_of_the_objective_dapo():
    lengths = torch.arange(LIMIT + 1)
    mask = torch.arange(LIMIT) < lengths[:, None]
    zeros = torch.zeros(mask.shape)
    rollout = Rollout(
        zeros[:, 0], lengths, lengths.to(torch.int8) * 0, lengths.to(torch.int8) * 0, zeros.long(), mask, zeros,
        max_response_tokens=LIMIT,
    )  # fmt: skip
    expected = make("dapo", overlong_buffer=0.3).punishment(rollout)
    assert added(judged(lengths.tolist()), overlong_buffer=0.3) == pytest.approx(expected.tolist(), abs=1e-6)


def test_a_response_that_goes_on_gets_nothing_yet():
    responses = judged([20, 20], finish=[int(Finish.WINDOW), int(Finish.LENGTH)])
    parts = {"format_coef": 1.0, "length_penalty": "per_token", "length_coef": 0.1, "overlong_buffer": 0.5}
    assert added(responses, **parts) == pytest.approx([0.0, 1 - 2 - 1])


def test_parts_add_up():
    responses = judged([4, 18, 20], rewards=[1.0, 0.0, 0.0], formatted=[1.0, 1.0, 0.0], finish=[0, 0, 1])
    group = torch.zeros(3, dtype=torch.int64)
    parts = {
        "format": {"format_coef": 0.5},
        "length": {"length_penalty": "kimi", "length_coef": 0.4},
        "overlong": {"overlong_buffer": 0.2},
    }
    alone = [torch.tensor(added(responses, group, **settings)) for settings in parts.values()]
    together = added(responses, group, **{name: value for part in parts.values() for name, value in part.items()})
    assert together == pytest.approx(sum(alone).tolist(), abs=1e-7)
    assert together == pytest.approx([0.5 + 0.2, 0.5 + 0.4 * (0.5 - 14 / 16) - 0.5, 0.4 * -0.5 - 1.0])


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"length_penalty": "kimi"}, "length_penalty = 'kimi' changes nothing with shaping.length_coef = 0: give its"),
        ({"length_penalty": "per_token"}, "such as 0.01"),
        ({"length_penalty": "shortest"}, "should be 'none', 'per_token' or 'kimi'"),
        (
            {"name": "bingo", "length_penalty": "kimi", "length_coef": 1.0},
            "a length reward already: leave shaping.",
        ),
        ({"name": "bingo", "overlong_buffer": 0.2}, "is a length reward already: leave shaping.overlong_buffer out"),
        ({"overlong_buffer": 1.5}, "shaping.overlong_buffer = 1.5"),
        ({"overlong_coef": 0.0}, "shaping.overlong_coef = 0.0"),
        ({"format_coef": -1.0}, "shaping.format_coef = -1.0"),
        ({"format_coeff": 1.0}, "did you mean format_coef"),
        ({"free_tokens": -1}, "shaping.free_tokens = -1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(table, reason):
    with pytest.raises(UserError) as refusal:
        resolve_run({"budget": {"amount": 1.0}, "shaping": table})
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)
