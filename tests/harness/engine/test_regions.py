"""Exact divergences in chunks, and steps that are shrunk or undone to stay in a region."""

import pytest
import torch
from tiny_engine import double, free_run, make_config, roll, update

from harness.compatibility import exact_fields
from harness.engine import backtrack
from harness.engine import update as update_module
from harness.engine.checkpoint import restore_run, save_run
from harness.engine.ledger import BudgetExhausted, Ledger
from harness.engine.metrics import StepMetrics
from harness.engine.passes import score_rows
from harness.engine.probe import measure
from harness.engine.run import build_run
from objectives.trust_region.measured import EXACT_FIELDS

CASES = [(anchor, direction) for anchor, direction in EXACT_FIELDS]


def exact_run(anchor, direction, **more):
    region = {"name": "fixed_penalty", "estimator": "exact", "anchor": anchor, "direction": direction}
    return double(free_run(make_config(trust_region=region, **more)))


def distributions(policy, experience, rows):
    """Return log-softmax [B, T, V] of ``rows``, one token sequence at a time, without any of the engine's passes."""
    found = torch.full((len(rows), experience.ids.shape[1], policy.model.config.vocab_size), torch.nan).double()
    for place, row in enumerate(rows.tolist()):
        prompt, length = experience.prompts[row], experience.lengths[row]
        tokens = torch.tensor([[*prompt, *experience.ids[row, :length].tolist()]])
        logits = policy.model(input_ids=tokens).logits[0, len(prompt) - 1 : -1]
        found[place, :length] = torch.log_softmax(logits, -1)
    return found


def nudge(run):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in run.policy.model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * parameter.std()


@pytest.mark.parametrize(("anchor", "direction"), CASES)
@pytest.mark.parametrize("chunk", [4096, 5])
def test_an_exact_divergence_is_the_sum_over_the_vocabulary(tiny, anchor, direction, chunk):
    run = exact_run(anchor, direction, engine={"logits_mib": chunk * 98 * 4 / 2**20})
    if anchor == "reference":
        nudge(run)  # before the rollout: pi_old is not the reference
    experience, plan, _, _ = roll(run)
    rows = plan.minibatches[0][0]
    old = distributions(run.policy if anchor == "old" else run.reference, experience, rows).detach()
    nudge(run)
    scored = score_rows(run, run.policy, experience, rows, exact=True)
    new = distributions(run.policy, experience, rows)
    first, second = (new, old) if direction == "reverse" else (old, new)
    expected = (first.exp() * (first - second)).sum(-1)
    mask = experience.mask[rows]
    found = scored.exact[EXACT_FIELDS[anchor, direction]]
    torch.testing.assert_close(found[mask], expected[mask])
    assert (found[~mask] == 0).all()
    assert found[mask].min() > 0

    weight = next(run.policy.model.parameters())
    (ours,) = torch.autograd.grad(found.sum(), weight)
    (theirs,) = torch.autograd.grad(expected[mask].sum(), weight)
    torch.testing.assert_close(ours, theirs)


def test_an_exact_divergence_of_the_same_policy_is_zero(tiny):
    run = exact_run("old", "forward")
    experience, plan, _, _ = roll(run)
    scored = score_rows(run, run.policy, experience, plan.minibatches[0][0], exact=True)
    assert scored.exact["exact_kl_old"].abs().max() < 1e-12


def test_the_snapshot_of_the_old_head_does_not_move_with_the_policy(tiny):
    run = exact_run("old", "forward")
    experience, _, _, _ = roll(run)
    head = experience.anchors["old"].head.weight.clone()
    nudge(run)
    assert torch.equal(experience.anchors["old"].head.weight, head)
    assert not torch.equal(run.policy.head.weight, head)


def test_exact_divergences_are_charged(tiny):
    plain, exact = free_run(make_config()), exact_run("old", "forward")
    head = 2 * exact.policy.shape.head_weights
    for run in (plain, exact):
        parts = roll(run)
        update(run, parts)
        run.tokens = int(parts[3].loss_mask.sum())
    assert plain.tokens == exact.tokens
    difference = exact.ledger.phases["update"].flops - plain.ledger.phases["update"].flops
    assert difference == plain.tokens * head
    assert exact_fields(exact.requires) == ["exact_kl_old"]


def backtracking(**settings):
    return make_config(
        trust_region={"name": "backtrack", **settings},
        update={"learning_rate": 0.1, "warmup_updates": 0, "max_grad_norm": 10.0},
    )


def test_backtracking_never_leaves_the_region_on_the_rows_of_the_step(tiny, monkeypatch):
    """U30."""
    run = free_run(backtracking(delta=1e-3))
    seen = []
    original = backtrack.hold

    def hold(run, undo, measured, metrics):
        stop = original(run, undo, measured, metrics)
        seen.append(measured()["divergence"])
        return stop

    monkeypatch.setattr(update_module, "hold", hold)
    metrics = StepMetrics()
    for _ in range(2):
        update(run, roll(run), metrics)
        run.iteration += 1
    assert len(seen) == 4
    assert max(seen) <= 1e-3
    assert metrics.summary()["backtracks"] > 1
    assert 0 <= metrics.summary()["step_kept_frac"] < 1


def test_a_step_that_no_shrinking_helps_is_undone(tiny):
    run = free_run(backtracking(delta=1e-12, shrink=0.99))
    before = [p.detach().clone() for p in run.policy.model.parameters()]
    update(run, roll(run))
    assert run.updates == 2
    assert all(torch.equal(a, b) for a, b in zip(before, run.policy.model.parameters(), strict=True))
    assert not [name for name, _ in run.optimizer.tensors() if name.startswith("exp_avg")]
    assert run.optimizer.moment_steps == 0


def test_a_region_that_holds_keeps_whole_steps(tiny):
    free, held = (
        free_run(backtracking(delta=1e6)),
        free_run(make_config(update={"learning_rate": 0.1, "warmup_updates": 0, "max_grad_norm": 10.0})),
    )
    for run in (free, held):
        update(run, roll(run))
    pairs = zip(free.policy.model.parameters(), held.policy.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert free.ledger.phases["probe"].flops > 0
    assert "probe" not in held.ledger.phases


def test_a_step_that_the_budget_cannot_verify_is_undone(tiny):
    run = build_run(backtracking(delta=1e-3))
    parts = roll(run)
    before = [p.detach().clone() for p in run.policy.model.parameters()]
    work = update_module._step_work(run, parts[0], parts[3], parts[1].minibatches[0])["update"]
    run.ledger = Ledger("flops", work.flops + 1)
    with pytest.raises(BudgetExhausted):
        update(run, parts)
    assert all(torch.equal(a, b) for a, b in zip(before, run.policy.model.parameters(), strict=True))
    assert run.ledger.spent.updates == 0


def test_clipping_alone_leaves_the_region_and_enforcement_does_not(tiny):
    """U31: KL(old, new) after a rollout's updates passes delta under GRPO's clip and stays below it with a region."""
    settings = {"learning_rate": 0.02, "warmup_updates": 0, "max_grad_norm": 10.0}
    found = {}
    for name, region in {"clip": {"name": "none"}, "held": {"name": "backtrack", "delta": 0.02}}.items():
        run = free_run(make_config(trust_region=region, update=settings))
        parts = roll(run)
        update(run, parts)
        last = parts[1].minibatches[-1]
        found[name] = measure(run, parts[0], parts[2], parts[3], last, free=True)["divergence"]
    assert found["clip"] > 0.02
    assert found["held"] <= 0.02


def projecting(delta):
    return double(free_run(make_config(trust_region={"name": "projection", "delta": delta})))


def test_the_objective_reads_projected_log_probabilities(tiny):
    run = projecting(1e-3)
    experience, plan, _, _ = roll(run)
    rows = plan.minibatches[0][0]
    old = distributions(run.policy, experience, rows).detach()
    nudge(run)
    new = distributions(run.policy, experience, rows)
    mask, ids = experience.mask[rows], experience.ids[rows]
    scored = score_rows(run, run.policy, experience, rows, exact=True, project=True)
    expected = run.region.project(new[mask], old[mask])
    torch.testing.assert_close(scored.logprobs[mask], expected.gather(1, ids[mask][:, None])[:, 0])
    assert not torch.allclose(expected, new[mask])
    assert float((expected.exp() * (expected - old[mask])).sum(-1).detach().max()) < 1e-3 + 1e-9
    gap = (new[mask].exp() * (new[mask] - expected)).sum(-1)
    torch.testing.assert_close(scored.exact["projection_gap"][mask], gap)
    plain = score_rows(run, run.policy, experience, rows, exact=True)
    torch.testing.assert_close(plain.logprobs[mask], new[mask].gather(1, ids[mask][:, None])[:, 0])
    torch.testing.assert_close(plain.exact["projection_gap"], scored.exact["projection_gap"])


def test_a_wide_region_projects_nothing(tiny):
    wide, free = projecting(1e6), double(free_run(make_config()))
    for run in (wide, free):
        update(run, roll(run))
    pairs = zip(wide.policy.model.parameters(), free.policy.model.parameters(), strict=True)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in pairs)


def test_moments_after_an_undone_step_are_those_of_before_it(tiny):
    """A kept step, an undone one, a kept one again: as if the undone one had not been, but for its count."""
    kept, undone = free_run(backtracking(delta=1e6)), free_run(backtracking(delta=1e6))
    parts = [roll(run) for run in (kept, undone)]
    for run, part in zip((kept, undone), parts, strict=True):
        update(run, part)
    state = {name: value.clone() for name, value in undone.optimizer.tensors()}
    undo = backtrack.Undo(undone.optimizer)
    undone.optimizer.step()
    undo.undo(counted=True)
    assert undone.updates == 3
    assert undone.optimizer.moment_steps == 2
    assert all(torch.equal(value, state[name]) for name, value in undone.optimizer.tensors())
    other = build_run(undone.config)
    restore_run(other, save_run(undone, {}))
    assert (other.optimizer.steps, other.optimizer.moment_steps) == (3, 2)
    for run in (kept, undone, other):
        for parameter in run.policy.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        run.optimizer.step()
    rows = zip(*(run.policy.model.parameters() for run in (kept, undone, other)), strict=True)
    assert all(torch.equal(a, b) and torch.equal(b, c) for a, b, c in rows)


def budgeted(run, parts, amount, points=()):
    """Let a run's ledger be one of ``amount`` FLOPs; return the policies that its points see."""
    seen = []

    def look(point):
        seen.append((point, [p.detach().clone() for p in run.policy.model.parameters()]))

    run.ledger = Ledger("flops", amount, points)
    run.ledger.on_point = look
    return seen


def first_step_work(run, parts):
    return update_module._step_work(run, parts[0], parts[3], parts[1].minibatches[0])["update"].flops


def test_a_point_within_the_measurements_of_a_step_sees_the_policy_before_it(tiny):
    run = build_run(backtracking(delta=1e-3))
    parts = roll(run)
    before = [p.detach().clone() for p in run.policy.model.parameters()]
    seen = budgeted(run, parts, 1e15, (first_step_work(run, parts) + 1.0,))
    update(run, parts)
    assert [point for point, _ in seen] == [0]
    assert all(torch.equal(a, b) for a, b in zip(before, seen[0][1], strict=True))


def test_a_step_that_the_budget_cannot_verify_counts_nowhere(tiny):
    run = build_run(backtracking(delta=1e-3))
    parts = roll(run)
    before = [p.detach().clone() for p in run.policy.model.parameters()]
    work = first_step_work(run, parts)
    seen = budgeted(run, parts, work + 1, (work + 0.5,))
    with pytest.raises(BudgetExhausted):
        update(run, parts)
    assert run.updates == run.ledger.spent.updates == 0
    assert all(torch.equal(a, b) for a, b in zip(before, seen[0][1], strict=True))


def test_a_clock_that_runs_out_while_a_step_is_measured_undoes_it(tiny, monkeypatch):
    run = build_run(backtracking(delta=1e6))
    parts = roll(run)
    before = [p.detach().clone() for p in run.policy.model.parameters()]
    run.ledger = Ledger("seconds", 1.0)
    times = iter([0.0, 0.0, 0.0, 0.0])
    monkeypatch.setattr(Ledger, "train_seconds", lambda self: next(times, 2.0))
    with pytest.raises(BudgetExhausted):
        update(run, parts)
    assert all(torch.equal(a, b) for a, b in zip(before, run.policy.model.parameters(), strict=True))
    assert run.updates == 0


def test_replayed_rows_are_neither_projected_nor_measured(tiny):
    config = make_config(
        task={"name": "arithmetic", "train_size": 4, "validation_size": 6, "test_size": 6},
        trust_region={"name": "projection"},
        replay={"strategy": "recent_k", "num_replays": 3, "min_cache": 4, "max_cache": 8},
    )
    run = free_run(config)
    for _ in range(2):
        experience, plan, rollout, _ = roll(run)
        run.replay.push(experience, rollout)
        run.iteration += 1
    replayed = (experience.origin != 0).nonzero()[:, 0]
    assert len(replayed) == 12
    plain = score_rows(run, run.policy, experience, replayed)
    projected = score_rows(run, run.policy, experience, replayed, exact=True, project=True)
    assert torch.equal(projected.logprobs, plain.logprobs)
    assert (projected.exact["projection_gap"] == 0).all()
    assert all(len(experience.origin[part].unique()) == 1 for part in plan.micro_batches)
