"""Rollouts that lag: which weights sample them, what pi_old is then, and what is charged and discarded."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from test_regions import distributions
from test_train import lines, small, status
from tiny_engine import cell, digests, double, exact_norms, free_run, make_config, plugin, roll, update

import objectives
from harness.compatibility import check_run
from harness.config.errors import RunFailed, UserError
from harness.engine import backtrack, train
from harness.engine import update as update_module
from harness.engine.estimate import estimate_cell
from harness.engine.identity import identity
from harness.engine.infra import TooManyUnscored
from harness.engine.ledger import Ledger
from harness.engine.metrics import StepMetrics
from harness.engine.passes import forward_work, old_logprobs, pass_rows, score_rows
from harness.engine.rollout import collect
from harness.engine.run import build_run
from objectives import Origin
from tasks.base import Score

ANCHORS = ("behaviour", "proximal")
FEW = {"name": "arithmetic", "train_size": 4, "validation_size": 6, "test_size": 6}
REPLAY = {"strategy": "recent_k", "num_replays": 3, "min_cache": 4, "max_cache": 8}
EXACT = {"name": "fixed_penalty", "estimator": "exact", "anchor": "old", "direction": "forward"}
STEEP = {"learning_rate": 0.02, "warmup_updates": 0, "max_grad_norm": 10.0}


def lagged(lag=2, anchor="behaviour", **tables):
    rollout = {"lag": lag, "anchor": anchor, **tables.pop("rollout", {})}
    return make_config(rollout=rollout, **{"update": STEEP, **tables})


def weights(run):
    return {name: value.clone() for name, value in run.policy.model.state_dict().items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def iterations(run, count):
    """Make iterations; return the parts of each and the weights that stood before it."""
    found = []
    for _ in range(count):
        before = weights(run)
        parts = roll(run)
        found.append((parts, before))
        if run.config.replay.strategy != "none":
            run.replay.push(parts[0], parts[2])
        update(run, parts)
        run.iteration, run.cursor = run.iteration + 1, max(run.cursor, parts[0].cursor)
    return found


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_a_rollout_is_that_of_the_weights_of_so_many_iterations_before(tiny, monkeypatch, lag):
    sampled = {}

    def spy(*arguments, iteration, **named):
        sampled[iteration] = weights(run)
        return collect(*arguments, iteration=iteration, **named)

    monkeypatch.setattr(train, "collect", spy)
    run = free_run(lagged(lag))
    found = iterations(run, 5)
    versions = [before for _, before in found]
    assert sampled.keys() == set(range(5 + lag))
    assert not any(same(a, b) for a, b in itertools.pairwise(versions))
    for number, held in sampled.items():
        assert same(held, versions[max(0, number - lag)])
    other = free_run(run.config)
    for i, ((experience, *_), _) in enumerate(found):
        other.policy.model.load_state_dict(versions[max(0, i - lag)])
        alone = collect(
            other.policy, other.sampler, other.task, other.objective, run.config.rollout, other.ledger,
            seed=0, iteration=i, cursor=4 * i,
        )  # fmt: skip
        assert torch.equal(alone.ids, experience.ids)
        assert torch.equal(alone.logprobs, experience.logprobs)
        assert experience.lag == min(i, lag)


def test_rollouts_have_the_same_prompts_and_noise_whatever_the_lag(tiny):
    runs = [iterations(free_run(lagged(lag)), 4) for lag in (0, 2)]
    for (plain, _), (late, _) in zip(*runs, strict=True):
        assert plain[0].prompts == late[0].prompts
        assert plain[0].draws == late[0].draws
    assert torch.equal(runs[0][0][0][0].ids, runs[1][0][0][0].ids)


def test_without_a_lag_the_anchor_changes_no_byte(tiny, tmp_path):
    for anchor in ANCHORS:
        cell(small(rollout={"anchor": anchor}), tmp_path / anchor)
    ours, theirs = digests(tmp_path / "behaviour"), digests(tmp_path / "proximal")
    assert {name for name in ours if ours[name] != theirs[name]} == {"run.json"}  # the settings as they were given
    assert identity(lagged(1)) != identity(lagged(1, "proximal")) != identity(lagged(2, "proximal"))


def test_old_log_probabilities_are_the_behaviour_policys_or_those_of_before_the_updates(tiny, monkeypatch):
    exact_norms(monkeypatch)
    for anchor in ANCHORS:
        run = double(free_run(lagged(2, anchor)))
        found = iterations(run, 3)
        versions = [before for _, before in found] + [weights(run)]
        parts = roll(run)
        experience, _, rollout, targets = parts
        mask, rows = experience.mask, torch.arange(len(experience.mask))
        now = distributions(run.policy, experience, rows).detach()
        run.policy.model.load_state_dict(versions[1])
        then = distributions(run.policy, experience, rows).detach()
        run.policy.model.load_state_dict(versions[3])
        chosen = [d.gather(2, experience.ids[..., None])[..., 0][mask] for d in (now, then)]
        old = chosen[1] if anchor == "behaviour" else chosen[0]
        torch.testing.assert_close(rollout.old_logprobs[mask], old)
        entropies = -(then if anchor == "behaviour" else now).exp().mul(then if anchor == "behaviour" else now).sum(-1)
        torch.testing.assert_close(rollout.old_entropy[mask], entropies[mask])

        metrics = StepMetrics()
        with monkeypatch.context() as patch:
            patch.setattr("harness.engine.optimizer.Optimizer.step", lambda self: None)
            update(run, parts, metrics)
        ratios = (chosen[0] - old)[targets.loss_mask[mask]].exp()
        assert metrics.summary()["ratio_min"] == pytest.approx(float(ratios.min()), rel=1e-9)
        assert metrics.summary()["ratio_max"] == pytest.approx(float(ratios.max()), rel=1e-9)
        spread = float((ratios - 1).abs().max())
        assert spread > 0.05 if anchor == "behaviour" else spread < 1e-9


@pytest.mark.parametrize("anchor", ANCHORS)
def test_the_old_pass_is_cut_as_the_updates_are(tiny, monkeypatch, anchor):
    plans = []

    def spy(run, experience, plan):
        plans.append(plan)
        return old_logprobs(run, experience, plan)

    monkeypatch.setattr("harness.engine.passes.old_logprobs", spy)
    run = free_run(lagged(2, anchor))
    cuts = [parts[1].micro_batches for parts, _ in iterations(run, 3)]
    assert len(plans) == (5 if anchor == "behaviour" else 3)
    for ours, theirs in zip(cuts, [plan.micro_batches for plan in plans][:3], strict=True):
        assert [part.tolist() for part in ours] == [part.tolist() for part in theirs]


@pytest.mark.parametrize("replay", [False, True])
def test_exact_divergences_are_to_the_policy_that_sampled(tiny, monkeypatch, replay):
    tables = {"task": FEW, "replay": REPLAY} if replay else {}
    run = double(free_run(lagged(1, trust_region=EXACT, **tables)))
    exact_norms(monkeypatch)
    before = iterations(run, 2)[1][1]
    experience, *_ = roll(run)
    fresh = experience.origin == Origin.FRESH
    rows = torch.arange(len(fresh))
    now, here = distributions(run.policy, experience, rows).detach(), weights(run)
    found = score_rows(run, run.policy, experience, rows, exact=True).exact["exact_kl_old"].detach()
    run.policy.model.load_state_dict(before)
    old = distributions(run.policy, experience, rows).detach()
    run.policy.model.load_state_dict(here)
    mask = experience.mask & fresh[:, None]
    expected = (old.exp() * (old - now)).sum(-1)
    torch.testing.assert_close(found[mask], expected[mask])
    assert float(found[mask].mean()) > 1e-4
    assert (found[~fresh] == 0).all()
    assert bool((~fresh).any()) == replay


@pytest.mark.parametrize("anchor", ANCHORS)
def test_a_correction_weighs_pi_old_over_the_sampler(tiny, anchor):
    """Staleness is in it with the proximal anchor alone (the decoupled objective)."""
    run = free_run(lagged(2, anchor, correction={"level": "token", "high": 1e9}))
    iterations(run, 3)
    parts = roll(run)
    experience, _, rollout, targets = parts
    assert torch.equal(rollout.rollout_logprobs, experience.logprobs)
    with torch.no_grad():
        now = score_rows(run, run.policy, experience, torch.arange(len(experience.mask))).logprobs
    factors = (now - experience.logprobs)[targets.loss_mask].exp() if anchor == "proximal" else torch.ones(1)
    metrics = StepMetrics()
    update(run, parts, metrics)
    assert metrics.summary()["correction_mean"] == pytest.approx(float(factors.mean()), abs=1e-4)
    if anchor == "proximal":
        assert float((factors - 1).abs().max()) > 0.05


@pytest.mark.parametrize("anchor", ANCHORS)
def test_values_are_those_of_the_critic_as_the_updates_begin(tiny, anchor):
    run = free_run(lagged(2, anchor, objective={"name": "ppo"}))
    iterations(run, 3)
    experience, _, rollout, _ = roll(run)
    with torch.no_grad():
        values = run.critic.values(experience.prompts, experience.ids, experience.mask, bootstrap=True)
    torch.testing.assert_close(rollout.old_values, values)
    assert values.abs().max() > 1e-2


def test_a_region_measures_from_the_anchor(tiny):
    """The divergence before the first step is that of the lag with the behaviour anchor, and none with the proximal."""
    for anchor in ANCHORS:
        run = free_run(
            lagged(2, anchor, trust_region={"name": "dual"}, update={**STEEP, "minibatches": 1, "epochs": 2})
        )
        iterations(run, 3)
        parts = roll(run)
        experience, _, rollout, targets = parts
        seen = []
        original = run.region.divergence

        def divergence(batch, original=original, seen=seen):
            found = original(batch)
            seen.append(found.detach())
            return found

        object.__setattr__(run.region, "divergence", divergence)
        with torch.no_grad():
            now = score_rows(run, run.policy, experience, torch.arange(len(experience.mask))).logprobs
        update(run, parts)
        first = torch.cat([part.flatten() for part in seen[: len(parts[1].micro_batches)]]).sum()
        gap = torch.where(targets.loss_mask, now - rollout.old_logprobs, 0.0).double()
        k3 = (gap.exp() - 1 - gap).sum()
        assert float(first) == pytest.approx(float(k3), rel=1e-3, abs=1e-5)
        assert float(k3) > 1e-2 if anchor == "behaviour" else float(k3) < 1e-6


def test_backtracking_from_the_behaviour_policy_bounds_what_the_lag_adds_up_to(tiny, monkeypatch):
    run = free_run(lagged(2, trust_region={"name": "backtrack", "delta": 0.01}, update={"learning_rate": 3e-3}))
    seen = []
    original = backtrack.hold

    def hold(run, undo, measure, metrics):
        with undo.before():
            before = measure()["divergence"]
        stop = original(run, undo, measure, metrics)
        seen.append((before, measure()["divergence"]))
        return stop

    monkeypatch.setattr(update_module, "hold", hold)
    found = iterations(run, 8)
    for before, after in seen:
        assert after <= 0.01 or after == before  # undone: the rollout was out of the region already
    assert any(before > 0.01 for before, _ in seen)
    moved = [not same(a, b) for (_, a), (_, b) in itertools.pairwise(found)]
    assert moved[0]
    assert not all(moved)
    assert any(moved[moved.index(False) :])  # it goes on once the queue has caught up


def test_replayed_responses_keep_what_they_were_trained_with(tiny):
    for anchor in ANCHORS:
        run = free_run(lagged(1, anchor, objective={"name": "repo"}, task=FEW, replay=REPLAY))
        found = [parts for parts, _ in iterations(run, 3)]
        assert (found[0][0].origin == Origin.FRESH).all()
        (then, _, earlier, _), (now, _, rollout, _) = found[:2]
        replayed = (now.origin == Origin.REPLAY).nonzero()[:, 0].tolist()
        assert len(replayed) == 12
        assert (now.lag, sum(now.verdicts.values())) == (1, 16)
        for row in replayed:
            length = now.lengths[row]
            pairs = [
                torch.equal(rollout.old_logprobs[row, :length], earlier.old_logprobs[source, :length])
                and torch.equal(rollout.rollout_logprobs[row, :length], earlier.rollout_logprobs[source, :length])
                for source, example in enumerate(then.examples)
                if (example, then.lengths[source]) == (now.examples[row], length)
            ]
            assert any(pairs)


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize(("axis", "amount"), [("updates", 6), ("flops", 5e7), ("tokens", 130)])
def test_what_is_left_in_the_queue_is_spent_and_discarded(tiny, tmp_path, monkeypatch, axis, amount, anchor):
    runs, costs, committed = [], {}, []
    sample, commit, build = train._sample, Ledger.commit, train.build_run

    def build_and_keep(*arguments):
        runs.append(build(*arguments))
        return runs[-1]

    def cost(run, number):
        before = run.ledger.spent.flops
        experience = sample(run, number)
        old = forward_work(run.policy.shape, pass_rows(experience, torch.arange(len(experience.mask)))).flops
        costs[number] = run.ledger.spent.flops - before + (old if anchor == "behaviour" else 0)
        return experience

    def note(self):
        commit(self)
        committed.append((self.spent.flops, runs[-1].iteration))

    monkeypatch.setattr(train, "_sample", cost)
    monkeypatch.setattr(train, "build_run", build_and_keep)
    monkeypatch.setattr(Ledger, "commit", note)
    config = lagged(2, anchor, rollout={"num_prompts": 2, "group_size": 2, "max_response_tokens": 5},
                    budget={"axis": axis, "amount": amount}, engine={"micro_batch_tokens": 10**6},
                    eval={"points": 1, "num_prompts": 2, "test_prompts": 2})  # fmt: skip
    cell(config, tmp_path)
    totals = status(tmp_path)["totals"]
    spent, last = committed[-1]
    waiting = sum(costs[number] for number in (last + 1, last + 2))
    assert totals["discarded_flops"] == totals["spent_flops"] - spent + waiting
    assert 0 < totals["discarded_flops"] < totals["spent_flops"]
    charged = {name: w["flops"] for name, w in totals["phases"].items() if name not in ("evaluation", "diagnostic")}
    assert sum(charged.values()) == totals["spent_flops"]
    assert axis != "updates" or totals["discarded_flops"] == waiting


def test_the_log_says_how_late_a_rollout_is(tiny, tmp_path):
    cell(small(rollout={"lag": 2}, budget={"amount": 8}), tmp_path / "late")
    assert [row["rollout_lag"] for row in lines(tmp_path / "late", "metrics")] == [0, 1, 2, 2]
    cell(small(), tmp_path / "plain")
    assert [row["rollout_lag"] for row in lines(tmp_path / "plain", "metrics")] == [0, 0]


@pytest.mark.parametrize("name", objectives.names())
def test_every_objective_trains_on_rollouts_that_lag(tiny, name):
    run = free_run(lagged(2, objective={"name": name}))
    seen = []
    log = SimpleNamespace(iteration=lambda *row: seen.append(row))
    for _ in range(3):
        train.iterate(run, log)
    assert [experience.lag for experience, *_ in seen] == [0, 1, 2]
    assert run.updates == 3 * run.config.update.minibatches
    assert all(metrics.summary()["policy_grad_norm"] is not None for _, metrics, *_ in seen)
    gap = max(abs(metrics.summary()["ratio_max"] - 1) for _, metrics, *_ in seen)
    assert gap > 1e-4


def test_one_update_on_a_rollout_is_enough_for_a_ratio_that_lags(tiny):
    once = {"update": {"minibatches": 1, **STEEP}}
    with pytest.raises(UserError, match=r"every ratio is 1 in the first update; set one of them to 2 or more$"):
        check_run(lagged(0, **once))
    with pytest.raises(UserError, match=r"2 or more, or rollout\.anchor to 'behaviour'$"):
        check_run(lagged(1, "proximal", **once))
    run = free_run(lagged(1, **once))
    iterations(run, 1)
    metrics = StepMetrics()
    update(run, roll(run), metrics)
    assert metrics.summary()["ratio_min"] < 0.9
    assert metrics.summary()["ratio_max"] > 1.1


def test_windows_and_a_lag_are_refused_together(tiny):
    config = lagged(1, objective={"name": "tppo"}, rollout={"window_tokens": 2})
    with pytest.raises(UserError, match=r"rollout\.lag = 1 and rollout\.window_tokens exclude each other"):
        build_run(config)


def test_too_many_unscored_responses_stop_a_run_when_they_are_sampled(tiny):
    run = free_run(lagged(3))
    iterations(run, 1)
    run.task = dataclasses.replace(run.task)
    object.__setattr__(run.task, "score", lambda *_: Score(math.nan, "infra", "down"))
    with pytest.raises(TooManyUnscored, match=r"16 of 16 responses of the rollout could not be scored.*down"):
        train.iterate(run, SimpleNamespace())
    assert (run.iteration, len(run.queue)) == (1, 3)  # rollouts 1 to 3 had been scored before


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("objective", ["grpo", "remax"])
def test_an_estimate_counts_the_rollouts_that_wait(tiny, tmp_path, anchor, objective):
    """It is exact for responses of one token to prompts of one length."""

    def config(amount, axis="flops"):
        return lagged(
            3, anchor, objective={"name": objective}, budget={"axis": axis, "amount": amount},
            task=plugin("EvenAnswer", operands=[2], max_operand=9, train_size=20, validation_size=2, test_size=2),
            rollout={"num_prompts": 2, "group_size": 2, "max_response_tokens": 1},
            eval={"points": 1, "num_prompts": 2, "test_prompts": 2},
        )  # fmt: skip

    least = estimate_cell(config(1e12)).smallest_update_flops
    cell(config(least), tmp_path / "enough")
    totals = status(tmp_path / "enough")["totals"]
    assert (totals["updates"], totals["spent_flops"]) == (1, least)
    with pytest.raises(RunFailed, match="too small for one update"):
        cell(config(least - 1), tmp_path / "short")
    with pytest.raises(UserError, match=r"2 prompts x 2 responses, 4 times for rollout\.lag = 3$"):
        estimate_cell(config(least - 1))
    tokens = totals["generated_tokens"]
    assert tokens == 4 * (2 * 2 + 2 * (objective == "remax"))
    assert estimate_cell(config(tokens, "tokens")).iterations == pytest.approx(1)
    with pytest.raises(UserError, match="is too small"):
        estimate_cell(config(tokens - 1, "tokens"))
    updates = estimate_cell(config(6, "updates"))
    assert updates.iterations == 3
    assert updates.flops > 3 * (1e12 / estimate_cell(config(1e12)).iterations)
