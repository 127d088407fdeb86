import dataclasses

import numpy as np
import pytest

from harness.engine.streams import Noise, key, noises, prompt_order


def rows(seed, stream, step, prompts, samples, length):
    """Return the uniforms [prompts x samples, length] of all of them."""
    return np.stack([noise.uniforms(length) for noise in noises(seed, stream, step, prompts, samples)])


def test_numbers_do_not_depend_on_which_other_prompts_are_drawn():
    many = rows(3, "rollout", 5, ["a", "b", "c"], 4, 6).reshape(3, 4, 6)
    assert np.array_equal(rows(3, "rollout", 5, ["c", "a"], 4, 6).reshape(2, 4, 6), many[[2, 0]])
    assert np.array_equal(rows(3, "rollout", 5, ["b"], 2, 6), many[1, :2])


def test_a_longer_draw_begins_with_the_same_numbers():
    assert np.array_equal(rows(0, "r", 0, ["a"], 2, 100)[:, :7], rows(0, "r", 0, ["a"], 2, 7))


def test_a_draw_that_begins_later_goes_on_with_the_same_numbers():
    whole = Noise(0, "r", 0, "a", 1).uniforms(10)
    assert np.array_equal(Noise(0, "r", 0, "a", 1, begin=6).uniforms(4), whole[6:])


@pytest.mark.parametrize(
    "other", [(1, "r", 0, ["a"]), (0, "s", 0, ["a"]), (0, "r", 1, ["a"]), (0, "r", 0, ["b"])], ids=str
)
def test_streams_of_any_other_key_are_unrelated(other):
    first, second = rows(0, "r", 0, ["a"], 2, 4000), rows(*other, 2, 4000)
    assert not (first == second).any()
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.05


def test_samples_of_one_prompt_are_unrelated():
    assert abs(np.corrcoef(rows(0, "r", 0, ["a"], 2, 4000))[0, 1]) < 0.05


def test_numbers_are_uniform():
    drawn = rows(0, "r", 0, list("abcdefgh"), 8, 500)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = np.histogram(drawn, 10, (0, 1))[0] / drawn.size
    assert np.abs(counts - 0.1).max() < 0.01


def test_the_numbers_are_pinned():
    assert Noise(0, "rollout", 0, "p", 0).uniforms(2).tolist() == pytest.approx(PINNED, abs=1e-15)


PINNED = [0.09487398818188375, 0.7467331091407625]


def test_a_request_has_a_seed_of_its_own_in_63_bits():
    base = Noise(0, "rollout", 0, "p", 0)
    changes = [{"seed": 1}, {"stream": "r"}, {"step": 1}, {"prompt": "q"}, {"sample": 1}, {"begin": 1}]
    seeds = [base.request_seed(), *(dataclasses.replace(base, **change).request_seed() for change in changes)]
    assert len(set(seeds)) == 7
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**60
    assert Noise(0, "rollout", 0, "p", 0).request_seed() == seeds[0]


def test_keys_tell_types_and_borders_apart():
    keys = [key(1), key("1"), key(1, 1), key(11), key("1", "1"), key("11"), key()]
    assert len(set(keys)) == len(keys)


def test_every_epoch_visits_every_prompt_once_in_its_own_order():
    order = prompt_order(4, 7, 0, 21)
    epochs = [order[0:7], order[7:14], order[14:21]]
    assert [sorted(epoch) for epoch in epochs] == [list(range(7))] * 3
    assert epochs[0] != epochs[1] != epochs[2]


def test_the_stream_of_prompts_can_be_entered_anywhere():
    order = prompt_order(4, 7, 0, 40)
    assert [prompt_order(4, 7, start, 5) for start in range(35)] == [order[start : start + 5] for start in range(35)]


def test_seeds_shuffle_differently():
    assert prompt_order(0, 50, 0, 50) != prompt_order(1, 50, 0, 50)


def test_more_prompts_than_examples_go_round():
    assert sorted(prompt_order(0, 2, 0, 6)) == [0, 0, 0, 1, 1, 1]
