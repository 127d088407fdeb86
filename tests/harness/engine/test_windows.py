"""Responses that grow by a window an iteration: what they become, what is charged, what a checkpoint holds."""

import json

import pytest
import torch
from tiny_engine import cell, digests, free_run, make_config, roll, update

from harness.config.errors import UserError
from harness.engine.checkpoint import restore_run, save_run
from harness.engine.run import build_run
from harness.engine.windows import carry_over
from objectives import Finish, Origin

ARITHMETIC = {"name": "arithmetic", "train_size": 64, "validation_size": 6, "test_size": 6}


def windowed(window=2, *, objective="tppo", **tables):
    rollout = {"window_tokens": window, "max_response_tokens": 8, **tables.pop("rollout", {})}
    return make_config(objective={"name": objective}, task=ARITHMETIC, rollout=rollout, **tables)


def iterate(run, *, learn):
    """Make one iteration of the training loop; return its parts."""
    parts = roll(run)
    carry_over(run, parts[0], parts[2])
    if learn:
        update(run, parts)
    run.iteration += 1
    run.cursor = parts[0].cursor
    return parts


def responses(run, iterations):
    """Return {draw: tokens} of every response that has ended, under a policy that does not learn."""
    found = {}
    for _ in range(iterations):
        experience = iterate(run, learn=False)[0]
        for row in (experience.finish != Finish.WINDOW).nonzero()[:, 0].tolist():
            found[experience.draws[row]] = experience.ids[row, : experience.lengths[row]].tolist()
    return found


def test_windows_change_no_response_of_a_policy_that_does_not_learn(tiny):
    whole = responses(free_run(windowed(0)), 1)
    cut = responses(free_run(windowed(2)), 4)
    assert any(len(ids) > 2 for ids in whole.values())
    assert {draw: cut[draw] for draw in whole} == whole


def test_unfinished_responses_go_on_and_ended_ones_make_room(tiny):
    run = free_run(windowed(4))
    first = iterate(run, learn=True)[0]
    pending = first.finish == Finish.WINDOW
    assert 0 < int(pending.sum()) < 16
    assert len(run.unfinished) == int(pending.sum())
    assert (first.rewards[pending] == 0).all()
    assert first.correct[pending].isnan().all()
    assert sum(first.verdicts.values()) == int((~pending).sum())
    second = iterate(run, learn=True)[0]
    continued = second.origin == Origin.CONTINUED
    assert int(continued.sum()) == int(pending.sum())
    fresh = (16 - int(pending.sum())) // 4
    assert int((second.origin == Origin.FRESH).sum()) == 4 * fresh
    assert (second.begin[continued] == 4).all()
    assert set(second.group[continued].tolist()).isdisjoint(second.group[~continued].tolist())
    old = {first.draws[row]: first.ids[row, :4].tolist() for row in pending.nonzero()[:, 0].tolist()}
    assert {second.draws[row]: second.ids[row, :4].tolist() for row in continued.nonzero()[:, 0].tolist()} == old


def test_tokens_keep_the_log_probabilities_they_were_drawn_with(tiny):
    run = free_run(windowed(2, update={"learning_rate": 0.05, "warmup_updates": 0}))
    first = iterate(run, learn=True)
    second = iterate(run, learn=False)
    experience, _, rollout, targets = second
    before = {first[0].draws[row]: first[2].old_logprobs[row, :2] for row in range(16)}
    continued = (experience.origin == Origin.CONTINUED).nonzero()[:, 0].tolist()
    for row in continued:
        assert torch.equal(rollout.old_logprobs[row, :2], before[experience.draws[row]])
        assert not targets.loss_mask[row, :2].any()
        assert targets.loss_mask[row, 2 : experience.lengths[row]].all()
    newest = experience.window_mask
    gap = (rollout.rollout_logprobs - rollout.old_logprobs)[newest].abs()
    assert gap.max() < 1e-4


def test_the_length_limit_ends_a_response(tiny):
    run = free_run(windowed(2))
    for _ in range(6):
        experience = iterate(run, learn=False)[0]
        lengths = torch.tensor(experience.lengths)
        assert int(lengths.max()) <= 8
        assert (experience.finish[lengths == 8] != Finish.WINDOW).all()
        assert (lengths[experience.finish == Finish.WINDOW] % 2 == 0).all()
    assert all(len(one.tensors["ids"]) < 8 for one in run.unfinished)


def test_sampled_tokens_are_charged_once(tiny):
    run = free_run(windowed(2))
    sampled = 0
    for _ in range(3):
        sampled += int(iterate(run, learn=False)[0].window_mask.sum())
    assert run.ledger.spent.generated_tokens == sampled


@pytest.mark.parametrize("objective", ["tppo", "ppo"])
def test_it_trains(tiny, objective, tmp_path):
    cell(windowed(2, objective=objective, budget={"axis": "updates", "amount": 8}, eval={"points": 1}), tmp_path)
    assert json.loads((tmp_path / "status.json").read_text())["status"] == "completed"
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["window_limited_frac"] > 0
    assert any(row["reward_mean"] is not None for row in rows)


def test_a_checkpoint_holds_the_unfinished_responses(tiny):
    run = free_run(windowed(2))
    for _ in range(2):
        iterate(run, learn=True)
    other = build_run(run.config)
    restore_run(other, save_run(run, {}))
    assert len(other.unfinished) == len(run.unfinished) > 0
    for ours, theirs in zip(run.unfinished, other.unfinished, strict=True):
        assert (ours.example, ours.draw) == (theirs.example, theirs.draw)
        assert all(torch.equal(ours.tensors[name], theirs.tensors[name]) for name in ours.tensors)


def test_two_windowed_runs_write_the_same_bytes(tiny, tmp_path):
    config = windowed(2, budget={"axis": "updates", "amount": 8}, eval={"points": 1})
    for name in ("a", "b"):
        cell(config, tmp_path / name)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({"objective": "grpo"}, "needs responses that have ended"),
        ({"replay": {"strategy": "all"}}, "need responses that have ended: set rollout.window_tokens to 0"),
        ({"shaping": {"name": "bingo"}}, "need responses that have ended: set rollout.window_tokens to 0"),
    ],
)
def test_what_needs_an_end_is_refused(tiny, tables, reason):
    with pytest.raises(UserError, match=reason):
        build_run(windowed(2, **tables))


def test_a_window_that_does_not_divide_the_limit_is_refused():
    with pytest.raises(UserError, match=r"does not divide rollout\.max_response_tokens"):
        windowed(3)
