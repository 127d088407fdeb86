"""A checkpoint holds the rollouts that wait: every field of them, and a killed run ends with the same bytes."""

import dataclasses
from collections import Counter

import pytest
import torch
from test_lag import ANCHORS, EXACT, FEW, REPLAY, iterations, lagged
from test_train import Killed, kill_at
from tiny_engine import cell, digests, free_run

from harness.engine.anchors import AnchorStates
from harness.engine.checkpoint import restore_run, save_run
from harness.engine.experience import Experience
from harness.engine.judging import Judged
from harness.engine.run import build_run


def alike(first, second):
    """Whether two values of an experience's field are the same, types and all."""
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first.nan_to_num(-7), second.nan_to_num(-7))
    if isinstance(first, AnchorStates):
        heads = zip(first.head.parameters(), second.head.parameters(), strict=True)
        return torch.equal(first.states, second.states) and all(torch.equal(a, b) for a, b in heads)
    if isinstance(first, Judged):
        return all(alike(getattr(first, f.name), getattr(second, f.name)) for f in dataclasses.fields(Judged))
    if isinstance(first, dict) and not isinstance(first, Counter):
        return first.keys() == second.keys() and all(alike(first[name], second[name]) for name in first)
    return type(first) is type(second) and first == second


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("objective", ["grpo", "remax"])
def test_every_field_of_a_rollout_that_waits_is_kept(tiny, anchor, objective):
    tables = {"objective": {"name": objective}, "trust_region": EXACT, "prompts": {"max_pass_rate": 0.9}}
    run = free_run(lagged(2, anchor, **tables))
    iterations(run, 2)
    run.queue[0].experience.rewards[3] = torch.nan
    other = build_run(run.config)
    payload = save_run(run, {})
    restore_run(other, payload)
    assert save_run(other, {}) == payload
    assert other.ledger.waiting_flops == run.ledger.waiting_flops == sum(one.flops for one in run.queue) > 0
    assert [one.version for one in other.queue] == [one.version for one in run.queue] == [0, 1]
    for ours, theirs in zip(run.queue, other.queue, strict=True):
        assert ours.flops == theirs.flops
        for field in dataclasses.fields(Experience):
            name = field.name
            assert alike(getattr(ours.experience, name), getattr(theirs.experience, name)), name
        assert ("old" in ours.experience.anchors) == (anchor == "behaviour")
        assert not any(p.requires_grad for a in theirs.experience.anchors.values() for p in a.head.parameters())


RESUMED = {
    "grpo": ("behaviour", {}),
    "ppo": ("proximal", {"objective": {"name": "ppo"}, "trust_region": {"name": "dual"}}),
    "projection": ("behaviour", {"objective": {"name": "gspo"}, "trust_region": {"name": "projection"}}),
    "backtrack": ("behaviour", {"trust_region": {"name": "backtrack", "delta": 1e-3}}),
    "replay": ("behaviour", {"trust_region": EXACT, "task": FEW, "replay": REPLAY}),
    "replay-proximal": ("proximal", {"correction": {"level": "token"}, "task": FEW, "replay": REPLAY}),
    "bingo": ("behaviour", {"shaping": {"name": "bingo", "slope_start": 1, "slope_rollouts": 2}}),
    "greedy": ("behaviour", {"objective": {"name": "remax"}, "prompts": {"max_pass_rate": 0.5}}),
}


@pytest.mark.parametrize("case", RESUMED)
def test_a_run_killed_after_every_checkpoint_ends_byte_equal(tiny, tmp_path, monkeypatch, case):
    anchor, tables = RESUMED[case]
    config = lagged(
        1, anchor, rollout={"num_prompts": 4 if "replay" in case else 2, "group_size": 2, "max_response_tokens": 5},
        budget={"amount": 6}, eval={"points": 1, "num_prompts": 1, "test_prompts": 1}, **tables,
    )  # fmt: skip
    cell(config, tmp_path / "whole")
    for kills in range(4):
        try:
            with monkeypatch.context() as patch:
                kill_at(patch, "write_checked", 2 if kills else 1)
                cell(config, tmp_path / "cut")
        except Killed:
            continue
        break
    assert kills == 3
    assert digests(tmp_path / "cut") == digests(tmp_path / "whole")


@pytest.mark.parametrize("instant", [4, 8, 12])
def test_a_run_killed_between_two_checkpoints_ends_byte_equal(tiny, tmp_path, monkeypatch, instant):
    config = lagged(
        3, rollout={"num_prompts": 2, "group_size": 2, "max_response_tokens": 5},
        budget={"axis": "flops", "amount": 6e7}, eval={"points": 2, "num_prompts": 1, "test_prompts": 1},
        engine={"checkpoint_every": 2},
    )  # fmt: skip
    cell(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_at(patch, "append", instant)
        with pytest.raises(Killed):
            cell(config, tmp_path / "cut")
    cell(config, tmp_path / "cut")
    assert digests(tmp_path / "cut") == digests(tmp_path / "whole")
