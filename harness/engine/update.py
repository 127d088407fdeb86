"""Turn a rollout into optimizer steps: the only place that asks an objective for its loss.

A step's gradient is that of one sum over all its tokens, with weights computed over the whole step before any
micro-batch. Micro-batches, padding and row order only change the order of additions.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from harness.engine.anchors import PROJECTION
from harness.engine.annotations import keyed_uniforms
from harness.engine.backtrack import Undo, hold
from harness.engine.correction import correction_weights
from harness.engine.experience import Experience
from harness.engine.ledger import BudgetExhausted, Work
from harness.engine.memory import enough_memory
from harness.engine.metrics import StepMetrics
from harness.engine.optimizer import NonFinite
from harness.engine.passes import anchor_work, chunk_tokens, forward_work, pass_rows, score_rows, value_work
from harness.engine.plan import Plan
from harness.engine.probe import measure
from harness.engine.run import Run
from harness.engine.streams import key
from harness.engine.terms import StepWeights, Sums, backward, divergence_weights, make_batch
from objectives import Rollout, Step, Targets

__all__ = ["update_policy"]


def update_policy(
    run: Run, experience: Experience, rollout: Rollout, targets: Targets, plan: Plan, metrics: StepMetrics
) -> None:
    """Make all updates of a rollout, or as many as the budget and the trust region allow.

    Raises:
        BudgetExhausted: the next step does not fit; the policy is the last one within the budget.
        NonFinite: a loss or gradient is NaN or infinite; the policy is that of before the step.
    """
    for epoch in range(run.config.update.epochs):
        for minibatch in _epoch_order(plan, run.config.seed, run.iteration, epoch):
            if _step(run, experience, rollout, targets, minibatch, metrics):
                return


def _epoch_order(plan: Plan, seed: int, iteration: int, epoch: int) -> list[tuple[Tensor, ...]]:
    """Return the minibatches in their order of the epoch: as dealt in the first one, reshuffled after it."""
    if epoch == 0:
        return list(plan.minibatches)
    generator = torch.Generator().manual_seed(key(seed, "epoch", iteration, epoch) % 2**63)
    return [plan.minibatches[i] for i in torch.randperm(len(plan.minibatches), generator=generator)]


def _step(
    run: Run,
    experience: Experience,
    rollout: Rollout,
    targets: Targets,
    parts: tuple[Tensor, ...],
    metrics: StepMetrics,
) -> bool:
    """Make one optimizer step; return True if the trust region ends the rollout's updates."""
    rows = torch.cat(parts)
    weights, extras = _step_weights(run, experience, rollout, targets, parts, rows)
    if run.config.correction.level != "none":
        factors = weights.correction[rows][targets.loss_mask[rows]]
        metrics.add("correction_mean", float(factors.sum()), len(factors))
        metrics.add("correction_zero_frac", float((factors == 0).sum()), len(factors))
    run.ledger.charge(_step_work(run, experience, targets, parts))
    optimizers = [o for o in (run.optimizer, run.critic_optimizer) if o is not None]
    for optimizer in optimizers:
        optimizer.zero_grad()
    sums = Sums()
    for part, counts in run.world.deal(parts):
        mine, seen = (weights, metrics) if counts else (weights.none(), StepMetrics())
        _micro_batch(run, experience, rollout, targets, part, mine, extras, sums, seen)
    sums = Sums.of(run.world.gather(sums))
    if not math.isfinite(sums.loss):
        raise NonFinite(f"loss is {sums.loss} at update {run.updates + 1}")
    metrics.add("policy_loss", sums.policy)
    metrics.add("divergence_before_step", sums.divergence)
    if run.critic is not None:
        metrics.add("value_loss", sums.value)

    if run.region.measured == "before_step" and run.settle(run.region.update(run.coef, sums.divergence)):
        run.ledger.cancel_update()
        return True
    before = [optimizer.snapshot() for optimizer in optimizers] if run.ledger.axis == "seconds" else []
    undo = Undo(run.optimizer) if run.region.measured == "after_step" else None
    for optimizer in optimizers:  # all of them, before any steps: one bad gradient must not move the other model
        metrics.add(f"{optimizer.what}_grad_norm", optimizer.clip())
    run.ledger.look_at_clock()
    for optimizer in optimizers:
        optimizer.step()
    if run.ledger.overdrawn:  # only a clock can say so: a counted step was checked before it was made
        for optimizer, snapshot in zip(optimizers, before, strict=True):
            optimizer.put_back(snapshot)
        run.ledger.cancel_update()
        raise BudgetExhausted
    stop = undo is not None and hold(run, undo, lambda: measure(run, experience, rollout, targets, parts), metrics)
    run.ledger.commit()
    return stop


def _micro_batch(
    run: Run,
    experience: Experience,
    rollout: Rollout,
    targets: Targets,
    rows: Tensor,
    weights: StepWeights,
    extras: Mapping[str, Tensor],
    sums: Sums,
    metrics: StepMetrics,
) -> None:
    """Add the gradient of one micro-batch to the models', and its share of each term to ``sums``."""
    entropy_gradient = "entropy" in run.requires
    scored = score_rows(run, run.policy, experience, rows, entropy_gradient=entropy_gradient, exact=True, project=True)
    values = None
    if run.critic is not None:
        prompts = [experience.prompts[i] for i in rows.tolist()]
        values = run.critic.values(prompts, experience.ids[rows], experience.mask[rows], bootstrap=False)
    outputs = {"logprobs": scored.logprobs, "entropy": scored.entropy, "values": values, **scored.exact}
    # The loss is differentiated down to these few [B, T] leaves first: their gradient is what the log wants to see, and
    # one backward pass through the models follows with it.
    leaves = {
        name: output.detach().requires_grad_(output.requires_grad)
        for name, output in outputs.items()
        if output is not None
    }
    batch = make_batch(rollout, targets, rows, leaves, extras)
    backward(run, batch, weights.of(rows), sums, metrics)
    tensors = [outputs[name] for name, leaf in leaves.items() if leaf.grad is not None]
    gradients = [leaf.grad for leaf in leaves.values() if leaf.grad is not None]
    with enough_memory(len(rows)):
        torch.autograd.backward(tensors, gradients)  # pyright: ignore[reportArgumentType]


def _step_weights(
    run: Run, experience: Experience, rollout: Rollout, targets: Targets, parts: tuple[Tensor, ...], rows: Tensor
) -> tuple[StepWeights, dict[str, Tensor]]:
    """Return the weights over the step and the objective's statistics of it, laid out like the rollout."""
    step = Step(
        loss_mask=targets.loss_mask[rows],
        group=rollout.group[rows],
        origin=rollout.origin[rows],
        max_response_tokens=run.config.rollout.max_response_tokens,
        index=run.updates,
        advantages=targets.advantages[rows],
        old_logprobs=rollout.old_logprobs[rows],
        logprobs=_step_logprobs(run, experience, parts, rows) if "step_logprobs" in run.requires else None,
        uniforms=keyed_uniforms(run, experience, "step", run.updates)[rows]
        if "step_uniforms" in run.requires
        else None,
    )
    value_mask = targets.loss_mask if targets.value_mask is None else targets.value_mask

    def laid_out(tensor: Tensor) -> Tensor:
        return tensor.new_zeros(rollout.response_mask.shape).index_copy(0, rows, tensor)

    weights = StepWeights(
        policy=laid_out(run.objective.aggregation(step)),
        value=laid_out(value_mask[rows].float() / value_mask[rows].sum().clamp(min=1)),
        divergence=laid_out(divergence_weights(run.region, step.loss_mask, step.origin)),
        correction=correction_weights(
            run.config.correction, rollout.old_logprobs, rollout.rollout_logprobs, targets.loss_mask
        ),
    )
    return weights, {name: laid_out(tensor) for name, tensor in run.objective.prepare(step).items()}


@torch.no_grad()
def _step_logprobs(run: Run, experience: Experience, parts: tuple[Tensor, ...], rows: Tensor) -> Tensor:
    """Return the log-probabilities of the step's rows that the objective will read, a pass charged as "prepass"."""
    projected = PROJECTION in run.requires
    for part in parts:
        work = forward_work(run.policy.shape, pass_rows(experience, part))
        if projected:
            work.add(anchor_work(run, experience, part))
        run.ledger.charge({"prepass": work})
    mine = [
        score_rows(run, run.policy, experience, part, exact=projected, project=projected).logprobs
        for part, _ in run.world.deal(parts)
    ]
    scored = run.world.undeal(mine, len(parts))
    assert sum(map(len, scored)) == len(rows)
    return torch.cat(scored).to(run.policy.device)


def _step_work(run: Run, experience: Experience, targets: Targets, parts: tuple[Tensor, ...]) -> dict[str, Work]:
    """Return the work of one optimizer step by phase."""
    shape, chunk = run.policy.shape, chunk_tokens(run, run.policy)
    policy, critic = Work(updates=1), Work()
    for part in parts:
        lengths = pass_rows(experience, part)
        policy.add(forward_work(shape, lengths, backward=True))
        anchors = anchor_work(run, experience, part)
        policy.add(anchors)
        if sum(lengths.responses) > chunk:  # the heads' forward passes are made again in the backward one
            policy.executed_flops += shape.head(sum(lengths.responses)) + anchors.flops
        if run.critic is not None:
            critic.add(value_work(shape, lengths, bootstrap=False, backward=True))
        if run.config.engine.recompute:  # the layers' forward passes likewise
            for work in (policy, critic) if run.critic is not None else (policy,):
                work.executed_flops += shape.recomputed_body(lengths)
    policy.trained_tokens = int(targets.loss_mask[torch.cat(parts)].sum())
    return {"update": policy, "critic": critic} if run.critic is not None else {"update": policy}
