"""The replay buffer: what is remembered and recalled, how it joins a rollout, and that a resumed run goes on alike."""

import json
from collections import deque

import pytest
import torch
from tiny_engine import cell, digests, free_run, make_config, roll, update

from harness.config.errors import UserError
from harness.config.parts import ReplayConfig
from harness.engine.checkpoint import restore_run, save_run
from harness.engine.replay import Memory, Replay
from harness.engine.run import build_run
from objectives import Origin


def memory(reward, tokens=2):
    return Memory({"ids": torch.arange(tokens), "old_logprobs": torch.zeros(tokens)}, reward, reward, 0)


def filled(strategy, rewards, **settings):
    config = ReplayConfig(strategy=strategy, **{"num_replays": 2, "min_cache": 1, **settings})
    replay = Replay(config, seed=0)
    replay.memories["a"] = deque((memory(reward) for reward in rewards), maxlen=config.max_cache)
    return replay


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("none", []),
        ("all", [0.1, 0.9, 0.5, 0.9]),
        ("recent_k", [0.5, 0.9]),
        ("highest_k", [0.9, 0.9]),
        ("max_variance_k", [0.1, 0.9]),
    ],
)
def test_strategies_by_hand(strategy, expected):
    found = filled(strategy, [0.1, 0.9, 0.5, 0.9]).recall("a", 0)
    assert [m.reward for m in found] == expected


def test_ties_of_the_highest_go_to_the_oldest():
    replay = filled("highest_k", [1.0, 1.0, 1.0])
    assert replay.recall("a", 0) == list(replay.memories["a"])[:2]


def test_random_replays_are_keyed_by_iteration():
    replay = filled("random_k", [0.0, 1.0, 2.0, 3.0, 4.0], max_cache=16)
    draws = [tuple(m.reward for m in replay.recall("a", i)) for i in range(20)]
    assert draws == [tuple(m.reward for m in replay.recall("a", i)) for i in range(20)]
    assert len(set(draws)) > 3
    assert all(len(draw) == 2 for draw in draws)


def test_nothing_is_replayed_from_too_short_a_memory():
    assert filled("all", [1.0, 2.0], min_cache=3).recall("a", 0) == []
    assert filled("all", [1.0, 2.0]).recall("b", 0) == []


def test_a_buffer_that_could_never_replay_is_refused():
    with pytest.raises(ValueError, match="nothing would ever be replayed"):
        ReplayConfig(strategy="all", min_cache=16, max_cache=8)


def replaying(**more):
    return make_config(
        task={"name": "arithmetic", "train_size": 4, "validation_size": 6, "test_size": 6},
        replay={"strategy": "recent_k", "num_replays": 3, "min_cache": 4, "max_cache": 8},
        **{"objective": {"name": "repo"}, **more},
    )


def three_iterations(config):
    run = free_run(config)
    found = []
    for _ in range(3):
        found.append(roll(run))
        if config.replay.strategy != "none":
            run.replay.push(found[-1][0], found[-1][2])
        update(run, found[-1])
        run.iteration += 1
        run.cursor = found[-1][0].cursor
    return run, found


def test_replays_join_the_rollout_with_what_they_were_drawn_with(tiny):
    _, (first, second, _) = three_iterations(replaying())
    assert (first[0].origin == Origin.FRESH).all()
    experience, plan, rollout, targets = second
    replayed = experience.origin == Origin.REPLAY
    assert int(replayed.sum()) == 4 * 3
    for row in replayed.nonzero()[:, 0].tolist():
        length = experience.lengths[row]
        sources = [
            r for r, example in enumerate(first[0].examples)
            if example == experience.examples[row]
            and first[0].ids[r, :length].tolist() == experience.ids[row, :length].tolist()
            and first[0].lengths[r] == length
        ]  # fmt: skip
        assert sources
        kept = [first[2].old_logprobs[r, :length] for r in sources]
        assert any(torch.equal(rollout.old_logprobs[row, :length], one) for one in kept)
    fresh_groups = set(experience.group[~replayed].tolist())
    assert fresh_groups.isdisjoint(experience.group[replayed].tolist())
    for part in plan.minibatches:
        rows = torch.cat(part)
        prompts = set(experience.prompt_of_row[rows].tolist())
        assert sorted(rows.tolist()) == [
            r for r, p in enumerate(experience.prompt_of_row.tolist()) if p in prompts
        ]  # fmt: skip
    assert targets.loss_mask[replayed].any()


def test_only_fresh_rows_are_charged_and_remembered(tiny):
    run, (first, second, _) = three_iterations(replaying())
    fresh = int((second[0].origin == Origin.FRESH).sum())
    assert fresh == len(first[0].prompts) == 16
    assert all(len(held) == 8 for held in run.replay.memories.values())
    assert set(run.replay.memories) == set(first[0].examples)


def test_without_replays_repo_is_grpo(tiny):
    plain = make_config(objective={"name": "grpo", "std_eps": 1e-4})
    runs = [free_run(config) for config in (plain, make_config(objective={"name": "repo"}))]
    for run in runs:
        update(run, roll(run))
    pairs = zip(runs[0].policy.model.parameters(), runs[1].policy.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("objective", ["grpo", "gspo", "ppo", "remax"])
def test_any_objective_can_use_it(tiny, objective):
    run, found = three_iterations(replaying(objective={"name": objective}))
    assert run.updates == 6
    experience = found[-1][0]
    assert (experience.origin == Origin.REPLAY).any()
    assert experience.greedy_tally.total() == (4 if objective == "remax" else 0)


def test_a_checkpoint_holds_the_buffer(tiny):
    config = replaying()
    run, _ = three_iterations(config)
    other = build_run(config)
    restore_run(other, save_run(run, {}))
    assert list(other.replay.memories) == list(run.replay.memories)
    for name, held in run.replay.memories.items():
        for ours, theirs in zip(held, other.replay.memories[name], strict=True):
            assert (ours.reward, ours.correct, ours.finish) == (theirs.reward, theirs.correct, theirs.finish)
            assert all(torch.equal(ours.tensors[key], theirs.tensors[key]) for key in ours.tensors)


def test_two_runs_with_replay_write_the_same_bytes(tiny, tmp_path):
    config = replaying(budget={"axis": "updates", "amount": 6}, eval={"points": 1})
    for name in ("a", "b"):
        cell(config, tmp_path / name)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    shares = [json.loads(line)["replayed_frac"] for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert shares[0] == 0
    assert 0 < shares[-1] < 1


def test_unknown_strategies_are_refused():
    with pytest.raises(UserError, match="strategy"):
        make_config(replay={"strategy": "best"})
