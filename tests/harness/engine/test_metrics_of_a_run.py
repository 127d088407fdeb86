"""What a run logs: every name of the glossary, and numbers that do not depend on how the work was cut."""

import dataclasses
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from test_update import config_for, moved, recut, shuffled, wider
from tiny_engine import cell, double, exact_norms, free_run, make_config, plugin, roll, update

from harness.engine.ledger import Ledger
from harness.engine.metrics import StepMetrics
from harness.engine.passes import score_rows
from harness.engine.probe import probe
from harness.engine.recorder import _rollout_metrics
from harness.engine.routing_probe import ROUTING_METRICS
from harness.engine.terms import StepWeights, Sums, backward
from harness.reports.study import SCHEMA
from objectives import Batch, Origin, trust_region
from objectives.kl import k3

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
ONE = 20  # the bin of c_t / A_t that holds 1


def glossary():
    section = README.split("## Metrics\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def rows_of(folder, **tables):
    cell(make_config(**tables), folder)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def own(row):
    """Return a row without what the objective reports of its own."""
    return {name: value for name, value in row.items() if not name.startswith("objective/")}


def test_a_run_logs_every_name_of_the_glossary_and_no_other(tiny, tmp_path):
    rows = rows_of(tmp_path, objective={"name": "ppo"}, trust_region={"name": "reference_penalty"})
    assert len(rows) >= 2
    for row in rows:
        assert own(row).keys() == glossary()
        numbers = {name for name, value in own(row).items() if isinstance(value, int | float)}
        assert numbers <= set(SCHEMA["metrics.csv"])
    missing = {name for name in glossary() if all(row[name] is None for row in rows)}
    elsewhere = {"greedy_reward_mean", "step_kept_frac", "backtracks", "correction_mean", "correction_zero_frac"}
    elsewhere |= {"shaped_reward_mean", "competence", "open_prompts_frac", "waiting_prompts_frac"}
    elsewhere |= {*ROUTING_METRICS}
    assert missing == elsewhere


def test_what_a_run_does_not_have_is_missing_and_not_zero(tiny, tmp_path):
    rows = rows_of(tmp_path, objective={"name": "remax"})
    assert all(own(row).keys() == glossary() for row in rows)
    absent = ("kl_ref_per_token_nats", "kl_ref_per_sequence_nats", "critic_grad_norm", "value_loss", "clip_frac")
    assert all(row[name] is None for row in rows for name in absent)
    assert all(0 <= row["greedy_reward_mean"] <= 1 for row in rows)
    assert all(row["c_abs_mean"] > 0 for row in rows)


def logged(run, parts, monkeypatch):
    """Return the metrics of all updates of a rollout, none of which moves a model."""
    metrics = StepMetrics()
    with monkeypatch.context() as patch:
        patch.setattr("harness.engine.optimizer.Optimizer.step", lambda self: None)
        update(run, parts, metrics)
    return metrics.summary()


def test_rewards_and_lengths_are_those_of_fresh_rows(tiny):
    run = free_run(make_config(objective={"name": "remax"}))
    experience = roll(run)[0]
    fresh = torch.arange(len(experience.group)) % 2 == 0
    experience = dataclasses.replace(
        experience,
        origin=torch.where(fresh, int(Origin.FRESH), int(Origin.REPLAY)).to(torch.int8),
        rewards=torch.where(fresh, experience.rewards, 50.0),
        greedy_rewards=torch.where(fresh, experience.group.float(), 50.0),
        correct=torch.where(fresh, experience.rewards, 1.0),
    )
    found = _rollout_metrics(experience)
    rewards, lengths = experience.rewards[fresh], experience.mask.sum(1)[fresh].float()
    assert found["reward_mean"] == pytest.approx(float(rewards[~rewards.isnan()].mean()))
    assert found["greedy_reward_mean"] == pytest.approx(1.5)  # groups 0 to 3
    assert found["response_tokens_mean"] == pytest.approx(float(lengths.mean()))
    assert found["response_tokens_right_mean"] == pytest.approx(float(lengths[rewards == 1].mean()), nan_ok=True)
    assert found["response_tokens_wrong_mean"] == pytest.approx(float(lengths[rewards == 0].mean()), nan_ok=True)


@pytest.mark.parametrize("objective", ["grpo", "gspo", "gspo_subsequence", "cispo", "cpgd", "reinforce"])
def test_where_the_policy_has_not_moved_every_objective_is_reinforce(tiny, monkeypatch, objective):
    run = free_run(config_for(objective, "none"))
    found = logged(run, roll(run), monkeypatch)
    counts = found["c_per_advantage_hist"]["counts"]
    assert counts[ONE] == sum(counts) > 0
    assert found["ess_token_frac"] == pytest.approx(1, abs=1e-9)
    assert found["ratio_seq_max"] == pytest.approx(1, abs=1e-5)
    assert found["dead_frac"] == 0
    assert found["clip_frac"] in (0, None)


@pytest.mark.parametrize("objective", ["ppo", "gspo", "gspo_subsequence", "cpgd", "kdrl", "reinforce", "vespo"])
def test_metrics_do_not_depend_on_how_the_work_is_cut(tiny, monkeypatch, objective):
    config = config_for(objective, "none")
    exact_norms(monkeypatch)
    run = free_run(config)
    double(run)
    parts = moved(run, roll(run))
    whole = logged(run, recut(parts, 64), monkeypatch)
    assert whole["ratio_seq_max"] > 1.01
    assert whole["ess_seq_frac"] < 1
    assert objective != "gspo" or whole["clip_seq_frac"] > whole["clip_seq_pos_high_frac"] > 0
    for other in (recut(parts, 1), recut(parts, 3), shuffled(parts), wider(recut(parts, 16), torch.nan)):
        found = logged(run, other, monkeypatch)
        assert found.keys() == whole.keys()
        for name, value in whole.items():
            same = pytest.approx(value, rel=1e-9, abs=1e-13) if isinstance(value, float) else value
            assert found[name] == same, name


def hand_batch():
    """Return the batch and what ``backward`` differentiates: -A r, and as a penalty half the squared log-ratio."""
    log_ratio = torch.tensor([[0.2, -0.3, 0.4], [-0.5, 0.1, 7.0]], dtype=torch.float64)
    old = torch.tensor([[-1.0, -2.0, -3.0], [-1.5, -0.5, -9.0]], dtype=torch.float64)
    return Batch(
        logprobs=(old + log_ratio).requires_grad_(),
        old_logprobs=old,
        advantages=torch.tensor([[1.0, 1.0, -2.0], [-2.0, 0.0, 0.0]], dtype=torch.float64),
        loss_mask=torch.tensor([[True, True, True], [True, True, False]]),
        response_ids=torch.zeros(2, 3, dtype=torch.int64),
        extras={"segment": torch.tensor([[0, 1, 1], [0, 0, 0]])},
    )


def test_a_token_weight_holds_the_policy_loss_and_the_penalty_and_no_region(tiny):
    batch = hand_batch()
    run = SimpleNamespace(
        objective=make_objective("Penalised"),
        region=trust_region.make("fixed_penalty"),
        coef=5.0,
        updates=0,
        ledger=Ledger("updates", 1),
    )
    weights = torch.tensor([[1 / 6] * 3, [1 / 4] * 3], dtype=torch.float64) * batch.loss_mask
    metrics = StepMetrics()
    kinds = {"policy": weights, "value": weights, "divergence": weights, "correction": torch.ones_like(weights)}
    backward(run, batch, StepWeights(**kinds), Sums(), metrics)
    found = metrics.summary()
    # c = r A - l
    expected = [
        math.exp(0.2) - 0.2, math.exp(-0.3) + 0.3, -2 * math.exp(0.4) - 0.4, -2 * math.exp(-0.5) + 0.5, -0.1
    ]  # fmt: skip
    assert found["c_abs_mean"] == pytest.approx(sum(map(abs, expected)) / 5, rel=1e-12)
    # c / A: 1.021, 1.041, 1.692, 0.356
    counts = found["c_per_advantage_hist"]["counts"]
    assert {i: n for i, n in enumerate(counts) if n} == {20: 2, 27: 1, 14: 1}
    assert found["alive_frac"] == 4 / 5  # the penalty alone does not keep a token alive
    assert found["dead_frac"] == 0
    # the objective's segments: 0.2; -0.3 + 0.4; -0.5 + 0.1
    assert found["ratio_segment_max"] == pytest.approx(math.exp(0.2))
    assert found["ratio_segment_min"] == pytest.approx(math.exp(-0.4))


def make_objective(name):
    from harness import plugins
    from harness.config.schema import Plugin

    return plugins.objective(Plugin(**plugin(name)))


def test_gradient_norms_are_those_before_clipping(tiny, monkeypatch):
    norms = []
    for bound in (1e-3, 1e12):
        tables = {"update": {"max_grad_norm": bound}, "critic": {"max_grad_norm": bound}}
        run = free_run(make_config(objective={"name": "ppo"}, **tables))
        found = logged(run, roll(run), monkeypatch)
        norms.append((found["policy_grad_norm"], found["critic_grad_norm"]))
    assert norms[0] == norms[1]
    assert min(norms[0]) > 1e-3


def test_the_divergence_from_the_reference_is_that_of_the_updated_policy(tiny):
    run = free_run(make_config(trust_region={"name": "reference_penalty"}))
    with torch.no_grad():
        for parameter in run.reference.model.parameters():
            parameter += 0.05 * parameter.std()
    experience, plan, rollout, targets = moved(run, roll(run))
    found = probe(run, experience, rollout, targets, plan)
    total, tokens = 0.0, 0
    rows = torch.cat(plan.minibatches[0])
    for row in rows:
        mask = experience.mask[row]
        now = score_rows(run, run.policy, experience, row[None]).logprobs[0].detach()[mask].double()
        gap = rollout.ref_logprobs[row][mask].double() - now
        ratio = (now - rollout.old_logprobs[row][mask].double()).exp()
        total += float((ratio * (gap.exp() - 1 - gap)).sum())
        tokens += int(mask.sum())
    assert found["kl_ref_per_token_nats"] == pytest.approx(total / tokens, rel=1e-3)
    assert found["kl_ref_per_sequence_nats"] == pytest.approx(total / len(rows), rel=1e-3)
    assert total > 1e-3

    replayed = dataclasses.replace(rollout, origin=torch.full_like(rollout.origin, int(Origin.REPLAY)))
    found = probe(run, experience, replayed, targets, plan)
    for of in ("old", "ref"):
        assert math.isnan(found[f"kl_{of}_per_token_nats"])
        assert math.isnan(found[f"kl_{of}_per_sequence_nats"])


def test_the_estimate_from_old_samples_averages_to_the_divergence_from_the_reference():
    old, now, ref = (torch.tensor(p, dtype=torch.float64).log() for p in ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.1] * 3))
    ref = torch.log_softmax(ref + torch.tensor([0.3, 0.0, -0.4]), 0)
    exactly = float((now.exp() * (now - ref)).sum())
    mask = torch.ones(1, 3, dtype=torch.bool)
    estimate = (now - old).exp() * k3(ref[None], now[None], mask)[0]
    assert float((old.exp() * estimate).sum()) == pytest.approx(exactly, rel=1e-12)


def test_a_rollout_without_a_known_reward_has_no_metric_of_the_loss(tiny):
    run = free_run(make_config(trust_region={"name": "reference_penalty"}))
    experience, plan, rollout, _ = roll(run)
    unknown = dataclasses.replace(rollout, rewards=torch.full_like(rollout.rewards, torch.nan))
    metrics = StepMetrics()
    targets = run.objective.targets(unknown)
    update(run, (experience, plan, unknown, targets), metrics)
    found = metrics.summary()
    for name in ("alive_frac", "dead_frac", "c_abs_mean", "clip_frac", "clip_seq_frac", "ratio_min", "ess_seq_frac"):
        assert found[name] is None, name
    assert math.isnan(probe(run, experience, unknown, targets, plan)["kl_ref_per_token_nats"])
