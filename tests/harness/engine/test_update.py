"""One optimizer step is one sum: how it is cut, padded and ordered changes nothing; what is charged is what is made."""

import dataclasses
import math

import pytest
import torch
from tiny_engine import double, exact_norms, free_run, make_config, plugin, roll, update

import objectives
from harness.config.errors import UserError
from harness.engine import train
from harness.engine import update as update_module
from harness.engine.anchors import AnchorStates
from harness.engine.ledger import BudgetExhausted, Ledger
from harness.engine.metrics import StepMetrics
from harness.engine.optimizer import NonFinite
from harness.engine.passes import score_rows
from harness.engine.plan import Plan
from harness.engine.probe import probe
from harness.engine.run import build_run
from harness.engine.terms import divergence_weights
from objectives import Origin, trust_region
from objectives.trust_region import Verdict

PAIRS = [(o, "none") for o in objectives.names()] + [(o, r) for o in ("grpo", "ppo") for r in trust_region.names()]


class CaughtError(Exception):
    """Raised in place of an optimizer step."""


def gradient(run, parts, monkeypatch, which="policy"):
    """Return the gradient of the first optimizer step as one vector, before it is clipped; no step is made."""

    def stop(self):
        raise CaughtError

    with monkeypatch.context() as patch:
        patch.setattr("harness.engine.optimizer.Optimizer.clip", stop)
        with pytest.raises(CaughtError):
            update(run, parts)
    model = run.policy.model if which == "policy" else run.critic
    return torch.cat([p.grad.flatten().clone() for p in model.parameters()])


def moved(run, parts):
    """Move the policy (and the critic) off the rollout's, so that ratios are not 1 and a coefficient matters."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for model in (run.policy.model, run.critic):
            for parameter in () if model is None else model.parameters():
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter.dtype)
                parameter += 0.02 * noise * (parameter.std() if parameter.numel() > 1 else 1)
    run.coef = run.coef or 0.0
    return parts


def distance(first, second):
    assert second.norm() > 0
    return float((first - second).norm() / second.norm())


def recut(parts, rows):
    """Return the same minibatches in micro-batches of ``rows``."""
    experience, plan, rollout, targets = parts
    cut = tuple(tuple(torch.cat(minibatch).split(rows)) for minibatch in plan.minibatches)
    return experience, Plan(cut), rollout, targets


def shuffled(parts):
    """Return the same minibatches with their rows in another order, in micro-batches of 3."""
    experience, plan, rollout, targets = parts
    generator = torch.Generator().manual_seed(1)
    rows = [torch.cat(minibatch) for minibatch in plan.minibatches]
    mixed = tuple(tuple(r[torch.randperm(len(r), generator=generator)].split(3)) for r in rows)
    return experience, Plan(mixed), rollout, targets


def wider(parts, fill):
    """Return everything with five more columns, ``fill`` in every float slot outside the masks."""
    experience, plan, rollout, targets = parts
    mask = torch.nn.functional.pad(rollout.response_mask, (0, 5))

    def pad(name, tensor):
        if not isinstance(tensor, torch.Tensor) or tensor.ndim == 1:
            return tensor
        padded = torch.nn.functional.pad(tensor, (0, 5), value=0)
        if not padded.is_floating_point() or name in ("advantages",):
            return padded
        if name == "old_values":  # the entry after the last token is a value too
            states = torch.cat([torch.ones_like(mask[:, :1]), mask], 1)
            return torch.where(states, padded, fill)
        return torch.where(mask, padded, fill)

    def widen(record):
        changed = {f.name: pad(f.name, getattr(record, f.name)) for f in dataclasses.fields(record)}
        if "extras" in changed:
            changed["extras"] = {name: pad("advantages", value) for name, value in record.extras.items()}
        return dataclasses.replace(record, **changed)

    anchors = {
        name: AnchorStates(torch.nn.functional.pad(anchor.states, (0, 0, 0, 5)), anchor.head)
        for name, anchor in experience.anchors.items()
    }
    wide = dataclasses.replace(
        experience,
        ids=pad("ids", experience.ids),
        mask=torch.nn.functional.pad(experience.mask, (0, 5)),
        anchors=anchors,
    )
    return wide, plan, widen(rollout), widen(targets)


def config_for(objective, region, **more):
    extra = {"segment_rule": "fixed_length", "segment_tokens": 2} if objective == "gspo_subsequence" else {}
    return make_config(objective={"name": objective, **extra}, trust_region={"name": region}, **more)


@pytest.mark.parametrize(
    ("objective", "region", "precision"),
    [(*pair, 1e-12) for pair in PAIRS] + [(*pair, 1e-6) for pair in PAIRS if pair[1] in ("none", "dual")],
)
def test_the_gradient_of_a_step_does_not_depend_on_how_it_is_computed(tiny, monkeypatch, objective, region, precision):
    run = free_run(config_for(objective, region))
    if precision < 1e-9:
        exact_norms(monkeypatch)
        double(run)
    elif objective == "reg_grpo":
        precision *= 100  # its weight is a difference of log-ratios over std_eps = 0.01 nats
    elif run.coef:
        # a divergence's gradient is ratio - 1: log-probabilities that differ by 1e-2 keep 5 digits of it in float32
        precision *= 10
    parts = moved(run, roll(run))
    whole = gradient(run, recut(parts, 64), monkeypatch)
    for rows in (1, 3) if precision < 1e-9 else (3,):
        assert distance(gradient(run, recut(parts, rows), monkeypatch), whole) < precision
    assert distance(gradient(run, shuffled(parts), monkeypatch), whole) < precision
    assert distance(gradient(run, wider(recut(parts, 16), torch.nan), monkeypatch), whole) < precision


def test_the_critics_gradient_does_not_depend_on_micro_batches_either(tiny, monkeypatch):
    exact_norms(monkeypatch)
    run = free_run(config_for("ppo", "none"))
    double(run)
    parts = moved(run, roll(run))
    whole = gradient(run, recut(parts, 64), monkeypatch, "critic")
    for other in (recut(parts, 1), recut(parts, 3), shuffled(parts), wider(parts, torch.nan)):
        assert distance(gradient(run, other, monkeypatch, "critic"), whole) < 1e-12


@pytest.mark.parametrize("objective", objectives.names())
def test_ratios_before_the_first_update_are_one(tiny, objective):
    run = build_run(config_for(objective, "none"))
    experience, plan, rollout, _ = roll(run)
    worst = 0.0
    for rows in plan.micro_batches:
        scored = score_rows(run, run.policy, experience, rows, entropy_gradient=True)
        gap = (scored.logprobs.detach() - rollout.old_logprobs[rows]).abs()
        worst = max(worst, float(gap[experience.mask[rows]].max()))
    assert worst < 1e-6
    assert (rollout.old_logprobs[experience.mask] < 0).all()


def test_the_rollout_of_another_policy_has_other_log_probabilities(tiny):
    run = build_run(make_config())
    experience, plan, rollout, _ = moved(run, roll(run))
    scored = score_rows(run, run.policy, experience, plan.micro_batches[0])
    assert (scored.logprobs - rollout.old_logprobs[plan.micro_batches[0]]).abs().max() > 1e-3


def test_statistics_of_the_step_reach_the_loss_and_their_pass_is_charged(tiny, monkeypatch):
    run = free_run(make_config(objective=plugin("Prepared")))
    parts = moved(run, roll(run))
    first = gradient(run, recut(parts, 64), monkeypatch)
    assert distance(gradient(run, recut(parts, 3), monkeypatch), first) < 1e-6
    plain = free_run(make_config())
    assert distance(gradient(plain, moved(plain, roll(plain)), monkeypatch), first) > 1e-2

    run = free_run(make_config(objective=plugin("Prepared")))
    parts = roll(run)
    metrics = StepMetrics()
    update(run, parts, metrics)
    phases = run.ledger.phases
    assert 3 * phases["prepass"].flops == phases["update"].flops > 0
    assert metrics.summary()["objective/gap"] < 1e-6  # the pre-pass sees the very weights of the step


def test_replayed_rows_are_left_out_of_the_divergence(tiny):
    run = free_run(make_config(trust_region={"name": "none", "unit": "per_sequence"}))
    experience, plan, rollout, targets = moved(run, roll(run))
    rows = torch.cat(plan.minibatches[0])
    origin = rollout.origin.clone()
    origin[rows[::2]] = int(Origin.REPLAY)
    spoilt = rollout.old_logprobs.clone()
    spoilt[rows[::2]] -= 3.0
    mixed = dataclasses.replace(rollout, origin=origin, old_logprobs=spoilt)
    found = probe(run, experience, mixed, targets, plan)
    per_row = []
    for row in rows[1::2]:
        gap = score_rows(run, run.policy, experience, row[None]).logprobs[0].detach() - rollout.old_logprobs[row]
        gap = gap[experience.mask[row]]
        per_row.append(float((gap.exp() - 1 - gap).sum()))
    assert found["divergence"] == pytest.approx(sum(per_row) / len(per_row), rel=1e-3)
    assert found["kl_old_per_sequence_nats"] == pytest.approx(sum(per_row) / len(per_row), rel=1e-3)


def test_divergence_weights_by_hand():
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0]]).bool()
    origin = torch.tensor([0, 0, 1, 0], dtype=torch.int8)
    per_token = divergence_weights(trust_region.make("none", unit="per_token"), mask, origin)
    per_sequence = divergence_weights(trust_region.make("none", unit="per_sequence"), mask, origin)
    assert per_token.tolist() == [[0.25] * 3, [0.25, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert per_sequence.tolist() == [[0.5] * 3, [0.5, 0, 0], [0, 0, 0], [0, 0, 0]]


def state(run):
    return {name: value.clone() for name, value in run.optimizer.tensors()}


@pytest.mark.parametrize("silent", [False, True], ids=["loss", "gradient"])
def test_a_number_that_is_not_finite_stops_before_the_step(tiny, silent):
    run = free_run(make_config(objective=plugin("Poisoned", at=1, silent=silent), update={"minibatches": 4}))
    parts = roll(run)
    one = (parts[0], Plan(parts[1].minibatches[:1]), *parts[2:])
    update(run, one)
    before = state(run)
    with pytest.raises(NonFinite, match="gradient norm of the policy" if silent else "loss is nan at update 2"):
        update(run, parts)
    after = state(run)
    assert before.keys() == after.keys()
    assert any(name.startswith("exp_avg") for name in before)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_bad_gradient_of_the_critic_stops_the_policy_too(tiny):
    run = free_run(make_config(objective=plugin("BadCritic")))
    parts = roll(run)
    before = state(run)
    with pytest.raises(NonFinite, match="gradient norm of the critic"):
        update(run, parts)
    assert all(torch.equal(before[name], value) for name, value in state(run).items())
    assert run.updates == 0


def test_an_early_stop_drops_the_step_and_the_rest_of_the_rollout(tiny):
    settings = {"minibatches": 4, "epochs": 2, "learning_rate": 0.05, "warmup_updates": 0}
    run = free_run(make_config(trust_region={"name": "early_stop", "target": 1e-4}, update=settings))
    parts = roll(run)
    states = []
    original = update_module._step

    def step(*arguments):
        stop = original(*arguments)
        states.append((stop, state(run)))
        return stop

    update_module._step, saved = step, update_module._step
    try:
        update(run, parts)
    finally:
        update_module._step = saved
    assert [stop for stop, _ in states] == [False, True]
    assert all(torch.equal(states[0][1][name], value) for name, value in states[1][1].items())
    assert run.updates == run.ledger.spent.updates == 1
    assert run.ledger.phases["update"].flops > 0


def test_the_dropped_step_of_an_early_stop_is_charged(tiny):
    settings = {"minibatches": 4, "learning_rate": 0.05, "warmup_updates": 0}
    flops = {}
    for target in (1e-4, 1e9):
        run = free_run(make_config(trust_region={"name": "early_stop", "target": target}, update=settings))
        parts = roll(run)
        two = (parts[0], Plan(parts[1].minibatches[:2]), *parts[2:])
        update(run, two)
        flops[target] = (run.updates, run.ledger.phases["update"].flops)
    assert flops[1e-4] == (1, flops[1e9][1])
    assert flops[1e9][0] == 2


def test_the_dual_coefficient_follows_its_formula_and_its_probe_is_charged(tiny):
    region = {"name": "dual", "delta": 0.01, "coef": 0.7, "rate": 0.5}
    run = free_run(make_config(trust_region=region))
    parts = roll(run)
    update(run, parts)
    before = run.ledger.spent.flops
    found = train._measure(run, *parts[:1], *parts[2:], parts[1])
    violation = min(found["divergence"] / 0.01 - 1, 1.0)
    assert run.coef == pytest.approx(0.7 * math.exp(0.5 * violation), abs=1e-12)
    assert run.coef != 0.7
    assert run.ledger.spent.flops - before == run.ledger.phases["probe"].flops > 0


def test_the_probe_of_a_region_that_does_not_ask_is_booked_and_not_charged(tiny):
    run = free_run(make_config())
    parts = roll(run)
    update(run, parts)
    before = run.ledger.spent.flops
    train._measure(run, *parts[:1], *parts[2:], parts[1])
    assert run.ledger.spent.flops == before
    assert run.ledger.phases["diagnostic"].flops > 0


def test_dual_ascent_ends_near_its_bound_where_no_region_exceeds_it(tiny):
    delta, found = 0.05, {}
    for region in ({"name": "none"}, {"name": "dual", "delta": delta}):
        settings = {"learning_rate": 3e-3, "warmup_updates": 0, "epochs": 2}
        run = free_run(make_config(trust_region=region, update=settings, rollout={"group_size": 8}))
        divergences = []
        for iteration in range(14):
            run.iteration = iteration
            parts = roll(run)
            update(run, parts)
            divergences.append(train._measure(run, *parts[:1], *parts[2:], parts[1])["kl_old_per_sequence_nats"])
            run.cursor = parts[0].cursor
        found[region["name"]] = sum(divergences[-7:]) / 7
    assert found["none"] > 2 * delta
    assert 0.3 * delta < found["dual"] < 1.7 * delta


def test_entropy_that_nobody_uses_changes_no_gradient(tiny, monkeypatch):
    vectors = []
    for objective in (plugin("EntropyWatcher"), {"name": "grpo"}):
        run = free_run(make_config(objective=objective))
        vectors.append(gradient(run, moved(run, roll(run)), monkeypatch))
    assert torch.equal(*vectors)


def test_every_epoch_visits_every_minibatch_once_and_the_order_is_keyed(tiny):
    run = build_run(make_config(update={"minibatches": 4, "epochs": 3}))
    plan = roll(run)[1]
    orders = [[id(m) for m in update_module._epoch_order(plan, 0, 0, epoch)] for epoch in range(6)]
    assert orders[0] == [id(m) for m in plan.minibatches]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert orders[1] == [id(m) for m in update_module._epoch_order(plan, 0, 0, 1)]


def test_minibatches_are_made_of_whole_groups(tiny):
    run = build_run(make_config(rollout={"num_prompts": 6}, update={"minibatches": 3}))
    experience, plan, *_ = roll(run)
    groups = [set(experience.group[torch.cat(m)].tolist()) for m in plan.minibatches]
    assert [len(g) for g in groups] == [2, 2, 2]
    assert set.union(*groups) == set(range(6))
    assert sorted(torch.cat(plan.micro_batches).tolist()) == list(range(24))


def test_a_step_that_does_not_fit_is_not_made(tiny):
    run = build_run(make_config())
    parts = roll(run)
    run.ledger = Ledger("updates", 1)
    with pytest.raises(BudgetExhausted):
        update(run, parts)
    assert run.updates == run.ledger.spent.updates == 1


def test_all_rows_without_a_reward_give_a_finite_step_of_zero(tiny, monkeypatch):
    run = free_run(make_config())
    experience, plan, rollout, _ = roll(run)
    unknown = dataclasses.replace(rollout, rewards=torch.full_like(rollout.rewards, torch.nan))
    found = gradient(run, (experience, plan, unknown, run.objective.targets(unknown)), monkeypatch)
    assert (found == 0).all()


def test_a_region_that_scales_the_last_step_is_refused_and_not_ignored(tiny):
    run = free_run(make_config())
    with pytest.raises(UserError, match="that takes measured"):
        run.settle(Verdict(0.1, scale=0.5))
    assert run.coef == 0
    assert run.settle(Verdict(0.1, stop=True))
    assert run.coef == 0.1
