"""Bingo's reward by hand, its weight over a climb and a plateau, and what all of shaping does to a rollout."""

import dataclasses
import json
import math

import pytest
import torch
from test_infra import laid_out
from test_train import Killed, kill_at
from test_update import gradient, moved
from tiny_engine import cell, digests, double, free_run, make_config, plugin, roll, update

import objectives
from harness.config.parts import ShapingConfig
from harness.engine.bingo import Bingo, Counts
from harness.engine.checkpoint import restore_run, save_run
from harness.engine.recorder import _rollout_metrics
from harness.engine.run import build_run
from harness.engine.shaping import significant
from harness.engine.windows import carry_over
from objectives import Finish, Origin
from objectives.base import select_rows

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


PARTS = {"format_coef": 0.5, "length_penalty": "per_token", "length_coef": 0.0625, "overlong_buffer": 0.5}


def parts_config(objective="grpo", *, shaped=PARTS, **more):
    """Return a run on arithmetic in which most parts of a reward have something to say."""
    rollout = {"num_prompts": 4, "group_size": 4, "max_response_tokens": 8, **more.pop("rollout", {})}
    base = make_config(objective={"name": objective}, rollout=rollout)  # for what the objective itself needs
    return make_config(
        objective={"name": objective, **({"overlong_buffer": 0.0} if objective == "dapo" else {})},
        task={"name": "arithmetic", "train_size": 8, "validation_size": 6, "test_size": 6},
        rollout=base.rollout.model_dump() | rollout,
        shaping=shaped,
        **more,
    )


@pytest.mark.parametrize("objective", objectives.names())
def test_every_objective_sees_the_parts_and_the_log_the_tasks_reward(tiny, objective):
    run = free_run(parts_config(objective))
    experience, _, rollout, _ = parts = roll(run)
    lengths = torch.tensor(experience.lengths)
    expected = experience.rewards + 0.5 * experience.formatted - 0.0625 * lengths - ((lengths - 4) / 4).clamp(0, 1)
    assert rollout.rewards.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert set(experience.rewards.tolist()) <= {0.0, 1.0}
    assert len(set(rollout.rewards.tolist())) > 3
    log = _rollout_metrics(experience)
    assert log["reward_mean"] == pytest.approx(float(experience.rewards.mean()))
    assert log["shaped_reward_mean"] == pytest.approx(float(expected.mean()))
    update(run, parts)
    assert run.updates > 0
    assert "shaping" not in run.ledger.phases


def test_greedy_responses_get_what_is_added_too(tiny):
    run, plain = free_run(parts_config("remax")), free_run(parts_config("remax", shaped={}))
    experience, _, rollout, _ = roll(run)
    greedy = experience.greedy
    lengths = greedy.lengths.float()
    expected = greedy.rewards + 0.5 * greedy.formatted - 0.0625 * lengths - ((lengths - 4) / 4).clamp(0, 1)
    assert rollout.greedy_rewards.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert torch.equal(experience.greedy_rewards, roll(plain)[2].greedy_rewards)
    assert _rollout_metrics(experience)["greedy_reward_mean"] == pytest.approx(float(greedy.rewards.mean()))


def test_without_shaping_nothing_is_shaped(tiny):
    run = free_run(make_config())
    experience, _, rollout, _ = roll(run)
    assert rollout.rewards is experience.rewards
    assert experience.shaped_rewards is None
    assert _rollout_metrics(experience)["shaped_reward_mean"] is None


def test_kimis_reward_compares_within_the_groups_of_the_rollout(tiny):
    run = free_run(parts_config(shaped={"length_penalty": "kimi", "length_coef": 0.5}))
    experience, _, rollout, _ = roll(run)
    lengths = torch.tensor(experience.lengths).reshape(4, 4).double()
    for row in range(16):
        group = lengths[row // 4]
        spread = float(group.max() - group.min())
        share = 0.5 - float(group[row % 4] - group.min()) / spread if spread else 0.0
        share = share if experience.correct[row] == 1 else min(0.0, share)
        assert float(rollout.rewards[row]) == pytest.approx(float(experience.rewards[row]) + 0.5 * share, abs=1e-6)
    assert len(set(rollout.rewards.tolist())) > 2


def test_unknown_rewards_stay_unknown(tiny):
    config = make_config(
        task=plugin("Unknowable", train_size=50), shaping=PARTS, rollout={"group_size": 8, "num_prompts": 4}
    )
    experience, _, rollout, targets = roll(free_run(config))
    assert 0 < int(rollout.rewards.isnan().sum()) < 32
    assert torch.equal(rollout.rewards.isnan(), experience.rewards.isnan())
    assert not targets.loss_mask[rollout.rewards.isnan()].any()


def test_groups_are_kept_by_the_tasks_own_rewards(tiny):
    """Every response to a prompt has another length, so shaped rewards would make every group informative."""
    shaped = free_run(parts_config("dapo", rollout={"max_resamples": 3}))
    plain = free_run(parts_config("dapo", rollout={"max_resamples": 3}, shaped={}))
    first, second = roll(shaped)[0], roll(plain)[0]
    assert first.examples == second.examples
    assert first.num_rejected == second.num_rejected > 0
    assert torch.equal(first.rewards, second.rewards)


@pytest.mark.parametrize("objective", objectives.names())
def test_filtered_responses_leave_the_step_as_if_they_had_not_been_sampled(tiny, monkeypatch, objective):
    """Known fault: the numerator without them, the denominator with them."""
    config = parts_config(objective, shaped={"overlong_filter": True}, rollout={"max_response_tokens": 5})
    run = double(free_run(config))
    experience, plan, rollout, targets = moved(run, roll(run))
    cut = experience.finish == Finish.LENGTH
    assert 0 < int(cut.sum()) < 16
    assert torch.equal(rollout.rewards.isnan(), cut)
    assert not targets.loss_mask[cut].any()
    assert _rollout_metrics(experience)["reward_mean"] == pytest.approx(float(experience.rewards.mean()))
    known = (~cut).nonzero()[:, 0]
    rewards = torch.where(cut, torch.nan, torch.arange(16).remainder(5).double() / 4)
    rollout = dataclasses.replace(rollout, rewards=rewards)
    found = gradient(run, (experience, plan, rollout, run.objective.targets(rollout)), monkeypatch)
    alone = laid_out(run.objective.targets(select_rows(rollout, known)), known, 16)
    expected = gradient(run, (experience, plan.of(~cut), rollout, alone), monkeypatch)
    assert float((found - expected).norm() / expected.norm()) < 1e-9


def test_a_length_limited_response_of_several_windows_is_punished_by_its_whole_length(tiny):
    config = make_config(
        objective={"name": "tppo"},
        task={"name": "arithmetic", "train_size": 64},
        rollout={"window_tokens": 2, "max_response_tokens": 6},
        shaping={"overlong_buffer": 0.5, "format_coef": 0.5},
    )
    run, seen = free_run(config), set()
    for _ in range(5):
        experience, _, rollout, _ = roll(run)
        carry_over(run, experience, rollout)
        for row, length in enumerate(experience.lengths):
            if experience.finish[row] == Finish.WINDOW:
                assert float(rollout.rewards[row]) == 0
                continue
            seen.add((length, int(experience.finish[row])))
            expected = float(experience.rewards[row]) + 0.5 * float(experience.formatted[row])
            assert float(rollout.rewards[row]) == pytest.approx(expected - max(0, (length - 3) / 3), abs=1e-6)
        run.iteration, run.cursor = run.iteration + 1, experience.cursor
    assert (6, int(Finish.LENGTH)) in seen
    assert any(length > 2 and finish == Finish.EOS for length, finish in seen)


def test_replayed_responses_are_shaped_as_they_were(tiny):
    config = make_config(
        objective={"name": "grpo"},
        task={"name": "arithmetic", "train_size": 4, "validation_size": 6, "test_size": 6},
        replay={"strategy": "all", "num_replays": 4, "min_cache": 4, "max_cache": 4},
        shaping=PARTS,
    )
    run = free_run(config)
    first = roll(run)
    run.replay.push(first[0], first[2])
    other = build_run(config)
    restore_run(other, save_run(run, {}))
    for each in (run, other):
        each.iteration, each.cursor = 1, first[0].cursor
        experience, _, rollout, _ = roll(each)
        replayed = experience.origin == Origin.REPLAY
        assert int(replayed.sum()) == 16
        assert sorted(rollout.rewards[replayed].tolist()) == sorted(first[2].rewards.tolist())
    assert len(set(first[2].rewards.tolist())) > 2


def test_a_run_with_every_part_writes_the_same_bytes_when_it_was_killed(tiny, tmp_path, monkeypatch):
    shaped = {**PARTS, "length_penalty": "kimi", "overlong_filter": True}
    config = parts_config(shaped=shaped, budget={"axis": "updates", "amount": 8}, eval={"points": 1})
    cell(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_at(patch, "write_checked", 3)
        with pytest.raises(Killed):
            cell(config, tmp_path / "cut")
    cell(config, tmp_path / "cut")
    assert digests(tmp_path / "cut") == digests(tmp_path / "whole")
    rows = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert all(row["shaped_reward_mean"] != row["reward_mean"] for row in rows)
