"""Bingo's reward by hand, its weight over a climb and a plateau, and what shaping does to a rollout."""

import math

import pytest
import torch
from tiny_engine import cell, digests, free_run, make_config, roll, update

from harness.config.parts import ShapingConfig
from harness.engine.bingo import Bingo, Counts
from harness.engine.checkpoint import restore_run, save_run
from harness.engine.run import build_run
from harness.engine.shaping import significant

START = 5 / (math.pi / 2)


def bingo(**settings):
    return Bingo(ShapingConfig(name="bingo", **settings))


@pytest.mark.parametrize(("insignificant", "bonus"), [(0, 5.0), (10, 2.70), (16, 0.0), (1000, 0.0)])
def test_a_right_answer_earns_more_the_fewer_insignificant_tokens_it_has(insignificant, bonus):
    found = bingo().reward(right=True, counts=Counts(insignificant, 3), reference=Counts(10, 5))
    assert found == pytest.approx(1 + bonus, abs=5e-3)


def test_a_wrong_answer_like_the_references_by_hand():
    found = bingo().reward(right=False, counts=Counts(10, 5), reference=Counts(10, 5))
    assert found == pytest.approx(2 * (math.cos(1) - 1) + START - 5)
    assert found == pytest.approx(-2.74, abs=5e-3)


def test_a_wrong_answer_never_pays():
    assert bingo().reward(right=False, counts=Counts(0, 100), reference=Counts(10, 5)) == 0.0


def test_a_reference_without_such_tokens_gives_the_ratio_one():
    found = bingo().reward(right=True, counts=Counts(7, 3), reference=Counts(0, 5))
    assert found == pytest.approx(1 + 5 * math.cos(1))


def test_the_weight_follows_a_climbing_score_and_falls_on_a_plateau():
    found = bingo(slope_start=3, slope_rollouts=3, slope_threshold=2.5)
    found.observe(0.0)
    found.observe(0.1)
    assert found.weight == pytest.approx(START)
    found.observe(0.2)  # the first slope, 0.1, is the unit
    assert found.weight == pytest.approx(START)
    found.observe(0.5)  # 0.2 a rollout
    assert found.weight == pytest.approx(2 * START)
    for score, weight in ((0.5, 1.5 * START), (0.5, -0.5), (0.5, -1.0), (0.5, -1.5)):
        found.observe(score)
        assert found.weight == pytest.approx(weight)
    for _ in range(20):
        found.observe(0.5)
    assert found.weight == pytest.approx(-2 * START)
    found.observe(math.nan)
    assert found.weight == pytest.approx(-2 * START)


def test_significance_is_surprisal_within_the_response():
    logprobs = torch.tensor([[-0.0, -1.0, -4.0, -9.0], [-1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    mask = torch.tensor([[True, True, True, False], [True, True, False, False], [False] * 4])
    found = significant(torch.where(mask, logprobs, torch.nan), mask, 0.5)
    assert found.tolist() == [[False, False, True, False], [True, True, False, False], [False] * 4]


def shaping(**more):
    return make_config(
        objective={"name": "ppo"},
        task={"name": "arithmetic", "train_size": 8, "validation_size": 6, "test_size": 6},
        shaping={"name": "bingo", "slope_start": 2, "slope_rollouts": 2},
        **more,
    )


def test_the_objective_sees_shaped_rewards_and_the_log_the_tasks(tiny):
    run = free_run(shaping())
    experience, _, rollout, _ = roll(run)
    right = experience.correct == 1
    assert set(experience.rewards.tolist()) <= {0.0, 1.0}
    assert (rollout.rewards[right] >= 1).all()
    assert (rollout.rewards[~right] <= 0).all()
    assert len(set(rollout.rewards.tolist())) > 2
    assert set(run.bingo.references) == set(experience.examples)
    work = run.ledger.phases["shaping"]
    assert work.flops > 0
    assert work.generated_tokens > 0
    row = int((~right).nonzero()[0, 0])
    chosen = significant(rollout.ref_logprobs, rollout.response_mask, 0.5)
    counts = Counts(experience.lengths[row] - int(chosen[row].sum()), int(chosen[row].sum()))
    fresh = bingo()
    expected = fresh.reward(right=False, counts=counts, reference=run.bingo.references[experience.examples[row]])
    assert float(rollout.rewards[row]) == pytest.approx(expected, rel=1e-6)


def test_a_reference_response_is_drawn_once_a_prompt(tiny):
    run = free_run(shaping())
    spent = []
    for _ in range(3):
        parts = roll(run)
        update(run, parts)
        spent.append(run.ledger.phases["shaping"].flops)
        run.iteration += 1
        run.cursor = parts[0].cursor
    assert spent[0] < spent[1] == spent[2]  # eight problems, four a rollout
    assert len(run.bingo.references) == 8
    assert len(run.bingo.scores) == 3


def test_no_shaping_costs_nothing(tiny):
    run = free_run(make_config())
    experience, _, rollout, _ = roll(run)
    assert torch.equal(rollout.rewards, experience.rewards)
    assert "shaping" not in run.ledger.phases
    assert run.reference is None


def test_a_checkpoint_holds_what_it_remembers(tiny):
    run = free_run(shaping())
    for _ in range(3):
        update(run, roll(run))
        run.iteration += 1
    other = build_run(run.config)
    restore_run(other, save_run(run, {}))
    assert other.bingo == run.bingo
    assert other.bingo.first_slope is not None


def test_two_shaped_runs_write_the_same_bytes(tiny, tmp_path):
    config = shaping(budget={"axis": "updates", "amount": 6}, eval={"points": 1})
    for name in ("a", "b"):
        cell(config, tmp_path / name)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
