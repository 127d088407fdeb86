"""What updates do to routes and ratios, against passes over each sequence alone and a plain count."""

import dataclasses
import json
import math
import statistics

import pytest
import torch
from test_routing import alone, config_for, moved_run, responses
from tiny_engine import cell, exact_norms, free_run, make_config, roll, update

from harness.engine.passes import pass_rows
from harness.engine.routing_probe import ROUTING_METRICS, measure_routing
from objectives import Origin


def counted(experience, rows, old, new):
    """Return (changed, all) choices, (rerouted, all) tokens and the largest load, each prompt counted once."""
    whole, seen, tokens = responses(experience), set(), []
    for row in rows:
        prompt, response = whole[row]
        before, after = (alone(policy, prompt, response)[1].transpose(0, 1).tolist() for policy in (old, new))
        first = len(prompt) if tuple(prompt) in seen else 0
        seen.add(tuple(prompt))
        tokens += list(zip(before, after, strict=True))[first:]
    lost = [[[e not in now for e in then] for then, now in zip(*token, strict=True)] for token in tokens]  # [n][L][k]
    flat = [flag for token in lost for layer in token for flag in layer]
    loads = [
        sum(expert in after[layer] for _, after in tokens) / (2 * len(tokens))
        for layer in range(2)
        for expert in range(6)
    ]
    return sum(flat) / len(flat), sum(any(map(any, token)) for token in lost) / len(tokens), max(loads)


@pytest.mark.parametrize("replay", [False, True])
def test_changes_and_spreads_by_hand(tiny_moe, monkeypatch, replay):
    exact_norms(monkeypatch)
    run, (experience, plan, rollout, targets), old = moved_run(routing_replay=replay, micro_batch_tokens=25)
    rows = torch.cat(plan.minibatches[0]).tolist()
    keys = [tuple(experience.prompts[i]) for i in rows]
    assert len(plan.minibatches[0]) > len(set(keys))  # a group is cut, and its prompt met again
    mask = targets.loss_mask.clone()
    mask[rows[0]] = False
    mask[rows[1], 1] = False
    targets = dataclasses.replace(targets, loss_mask=mask)
    found = measure_routing(run, experience, rollout, targets, plan)
    assert found.keys() == set(ROUTING_METRICS)

    changed, rerouted, load = counted(experience, rows, old, run.policy)
    assert 0 < changed < rerouted < 1
    assert found["routed_changed_frac"] == pytest.approx(changed, abs=1e-12)
    assert found["tokens_rerouted_frac"] == pytest.approx(rerouted, abs=1e-12)
    assert found["expert_load_max_frac"] == pytest.approx(load, abs=1e-12)
    for name in ("free", "replayed"):
        tokens, means = [], []
        for row in rows:
            prompt, response = responses(experience)[row]
            given = alone(old, prompt, response)[1] if name == "replayed" else None
            logprobs = alone(run.policy, prompt, response, given)[0].detach()
            ratios = [float(logprobs[t] - rollout.old_logprobs[row, t]) for t in range(len(response)) if mask[row, t]]
            tokens += ratios
            means += [statistics.fmean(ratios)] if ratios else []
        assert found[f"log_ratio_std_{name}"] == pytest.approx(statistics.pstdev(tokens), abs=1e-10)
        assert found[f"log_ratio_seq_std_{name}"] == pytest.approx(statistics.pstdev(means), abs=1e-10)
    assert found["log_ratio_std_free"] != pytest.approx(found["log_ratio_std_replayed"], abs=1e-6)


def test_nothing_has_changed_before_an_update(tiny_moe):
    run = free_run(config_for())
    experience, plan, rollout, targets = roll(run)
    found = measure_routing(run, experience, rollout, targets, plan)
    assert 1 / 6 <= found.pop("expert_load_max_frac") <= 1 / 2
    assert found == dict.fromkeys(found, 0.0)


def test_it_is_booked_and_not_charged(tiny_moe):
    run = free_run(config_for())
    experience, plan, rollout, targets = roll(run)
    before = run.ledger.spent.flops
    measure_routing(run, experience, rollout, targets, plan)
    assert run.ledger.spent.flops == before
    rows = [pass_rows(experience, part) for part in plan.minibatches[0]]
    assert run.ledger.phases["diagnostic"].flops == 2 * sum(run.policy.shape.response_forward(row) for row in rows)


def test_without_a_fresh_row_there_is_nothing_to_measure(tiny_moe):
    run = free_run(config_for())
    experience, plan, rollout, targets = roll(run)
    rollout = dataclasses.replace(rollout, origin=torch.full_like(rollout.origin, int(Origin.CONTINUED)))
    found = measure_routing(run, experience, rollout, targets, plan)
    assert found.keys() == set(ROUTING_METRICS)
    assert all(math.isnan(value) for value in found.values())


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("replay", [False, True])
def test_a_run_logs_them(tiny_moe, tmp_path, replay):
    cell(config_for(engine={"routing_replay": replay}, trust_region={"name": "dual"}), tmp_path / "cell")
    rows = rows_of(tmp_path / "cell")
    assert all(0 <= row[name] <= 1 for row in rows for name in ROUTING_METRICS)
    assert any(row["routed_changed_frac"] > 0 for row in rows)


def test_of_a_dense_policy_they_are_missing(tiny, tmp_path):
    cell(make_config(budget={"amount": 2}), tmp_path / "cell")
    assert all(row[name] is None for row in rows_of(tmp_path / "cell") for name in ROUTING_METRICS)


def test_windows_and_replayed_responses_are_left_out_where_routes_are_free(tiny_moe, tmp_path):
    config = make_config(
        policy={"name": "tiny-moe"}, objective={"name": "tppo"}, rollout={"window_tokens": 4}, budget={"amount": 6}
    )
    cell(config, tmp_path / "windows")
    config = make_config(policy={"name": "tiny-moe"}, replay={"strategy": "all", "min_cache": 1}, budget={"amount": 8})
    cell(config, tmp_path / "replay")
    for name in ("windows", "replay"):
        assert any(row["tokens_rerouted_frac"] is not None for row in rows_of(tmp_path / name))


def test_an_update_changes_routes(tiny_moe):
    run = free_run(config_for(engine={"micro_batch_tokens": 1000}))
    parts = roll(run)
    update(run, parts)
    experience, plan, rollout, targets = parts
    assert measure_routing(run, experience, rollout, targets, plan)["tokens_rerouted_frac"] > 0
