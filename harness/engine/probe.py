"""Measure how far a rollout's updates have moved the policy."""

import torch

from harness.engine.passes import Plan, forward_work, row_lengths, score_rows
from harness.engine.rollout import Experience
from harness.engine.run import Run
from harness.engine.terms import divergence_weights, make_batch
from objectives import Origin, Rollout, Targets
from objectives.kl import k3

__all__ = ["probe"]


@torch.no_grad()
def probe(run: Run, experience: Experience, rollout: Rollout, targets: Targets, plan: Plan) -> dict[str, float]:
    """Measure how far the updates have moved the policy, on the rows of the rollout's first minibatch.

    Returns:
        "divergence": the trust region's aggregate; "kl_old_per_token_nats" and "kl_old_per_sequence_nats":
        KL(pi_old || pi_theta) by k3 over fresh rows.
    """
    charged = run.region.measured == "after_rollout"
    parts = plan.minibatches[0]
    rows = torch.cat(parts)
    weights = divergence_weights(run.region, targets.loss_mask[rows], rollout.origin[rows])
    fresh = targets.loss_mask[rows] & (rollout.origin[rows] == Origin.FRESH)[:, None]
    divergence, total = 0.0, 0.0
    begin = 0
    for part in parts:
        work = {"probe": forward_work(run.policy.shape, *row_lengths(experience, part))}
        run.ledger.charge(work) if charged else run.ledger.book("diagnostic", work["probe"])
        scored = score_rows(run, run.policy, experience, part)
        leaves = {"logprobs": scored.logprobs, "entropy": scored.entropy}
        batch = make_batch(rollout, targets, part, leaves, {})
        window = slice(begin, begin + len(part))
        begin += len(part)
        divergence += float((run.region.divergence(batch) * weights[window]).sum())
        total += float(k3(batch.logprobs, batch.old_logprobs, fresh[window]).sum())
    return {
        "divergence": divergence,
        "kl_old_per_token_nats": total / max(1, int(fresh.sum())),
        "kl_old_per_sequence_nats": total / max(1, int(fresh.any(1).sum())),
    }
