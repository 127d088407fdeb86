"""Measure how far the policy has moved on some rows of a rollout."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from harness.engine.experience import Experience
from harness.engine.passes import anchor_work, forward_work, pass_rows, score_rows
from harness.engine.plan import Plan
from harness.engine.run import Run
from harness.engine.terms import divergence_weights, make_batch
from objectives import Origin, Rollout, Targets
from objectives.kl import k3, kl_from_old

__all__ = ["measure", "probe"]


def probe(run: Run, experience: Experience, rollout: Rollout, targets: Targets, plan: Plan) -> dict[str, float]:
    """Measure how far the updates have moved the policy, on the rows of the rollout's first minibatch."""
    return measure(run, experience, rollout, targets, plan.minibatches[0], free=run.region.measured != "after_rollout")


@torch.no_grad()
def measure(
    run: Run,
    experience: Experience,
    rollout: Rollout,
    targets: Targets,
    parts: tuple[Tensor, ...],
    *,
    free: bool = False,
) -> dict[str, float]:
    """Measure how far the policy has moved from the one that made the rollout, on the rows of ``parts``.

    Args:
        run: the run.
        experience: the rollout before any pass.
        rollout: the rollout.
        targets: of the objective.
        parts: micro-batches of rows.
        free: book the forward pass as "diagnostic" instead of charging it as "probe".

    Returns:
        "divergence": the trust region's aggregate; over fresh rows, by k3, "kl_old_per_token_nats" and
        "kl_old_per_sequence_nats": KL(pi_old || pi_theta), and, if the rollout has ``ref_logprobs``,
        "kl_ref_per_token_nats" and "kl_ref_per_sequence_nats": KL(pi_theta || pi_ref). NaN without a fresh row.
    """
    parts = Plan((parts,)).of(rollout.origin == Origin.FRESH).minibatches[0] or parts[:1]  # others weigh nothing
    rows = torch.cat(parts)
    weights = divergence_weights(run.region, targets.loss_mask[rows], rollout.origin[rows])
    fresh = targets.loss_mask[rows] & (rollout.origin[rows] == Origin.FRESH)[:, None]
    for part in parts:
        work = forward_work(run.policy.shape, pass_rows(experience, part))
        work.add(anchor_work(run, experience, part))
        run.ledger.book("diagnostic", work) if free else run.ledger.charge({"probe": work})
    mine: list[dict[str, float]] = []
    for (part, weight, mask), _ in run.world.deal(_split(parts, weights, fresh)):
        scored = score_rows(run, run.policy, experience, part, exact=True)
        leaves = {"logprobs": scored.logprobs, "entropy": scored.entropy, **scored.exact}
        batch = make_batch(rollout, targets, part, leaves, {})
        old = batch.old_logprobs
        mine.append({"divergence": float((run.region.divergence(batch) * weight).sum())})
        mine[-1]["kl_old"] = float(k3(batch.logprobs, old, mask).sum())
        if batch.ref_logprobs is not None:
            mine[-1]["kl_ref"] = float(kl_from_old("k3", batch.ref_logprobs, batch.logprobs, old, mask).sum())
    found = run.world.undeal(mine, len(parts))
    totals = {name: sum(one[name] for one in found) for name in found[0]}
    divergence = totals.pop("divergence")
    counts = {"per_token_nats": int(fresh.sum()), "per_sequence_nats": int(fresh.any(1).sum())}
    means = {f"{of}_{unit}": t / n if n else math.nan for of, t in totals.items() for unit, n in counts.items()}
    return {"divergence": divergence, **means}


def _split(parts: Sequence[Tensor], *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Return each of ``parts`` with its rows of ``tensors``, whose rows are theirs one after the other."""
    sizes = [len(part) for part in parts]
    return list(zip(parts, *(tensor.split(sizes) for tensor in tensors), strict=True))
