"""Measure what the updates on a rollout did to the routes of its tokens, and what that does to their ratios."""

import torch
from torch import Tensor

from harness.engine.experience import Experience
from harness.engine.passes import forward_work, pass_rows, score_rows
from harness.engine.plan import Plan
from harness.engine.routing import taken
from harness.engine.run import Run
from objectives import Origin, Rollout, Targets
from objectives.ops import log_ratio

__all__ = ["ROUTING_METRICS", "measure_routing"]

_SPREADS = ("log_ratio_std_free", "log_ratio_std_replayed", "log_ratio_seq_std_free", "log_ratio_seq_std_replayed")
ROUTING_METRICS = ("routed_changed_frac", "tokens_rerouted_frac", *_SPREADS, "expert_load_max_frac")


@torch.no_grad()
def measure_routing(
    run: Run, experience: Experience, rollout: Rollout, targets: Targets, plan: Plan
) -> dict[str, float]:
    """Compare the policy with the one that made the rollout, on the fresh rows of its first minibatch.

    Two passes over them, booked as "diagnostic": one in which the policy's tokens are routed freely and one in which
    they take the routes of the old policy.

    Args:
        run: the run, after the rollout's last update.
        experience: the rollout before any pass, with the old policy's routes.
        rollout: the rollout.
        targets: of the objective.
        plan: of the rollout.

    Returns:
        ``ROUTING_METRICS``, NaN without a fresh row; nothing of a dense policy.
    """
    if not experience.routes:
        return {}
    parts = Plan(plan.minibatches[:1]).of(rollout.origin == Origin.FRESH).minibatches[0]
    old: list[Tensor] = []
    new: list[Tensor] = []
    ratios: dict[bool, list[Tensor]] = {False: [], True: []}
    known: set[tuple[int, ...]] = set()
    for part in parts:
        counted = _first_met(experience, part, known)
        for replay, found in ratios.items():
            run.ledger.book("diagnostic", forward_work(run.policy.shape, pass_rows(experience, part)))
            scored = score_rows(run, run.policy, experience, part, replay=replay)
            found.append(log_ratio(scored.logprobs, rollout.old_logprobs[part], targets.loss_mask[part]))
            if not replay:
                routes = taken(run.policy.body)
                assert routes is not None
                new.append(routes[:, counted].long())
        old.append(experience.routes[tuple(part.tolist())][:, counted].long())
    mask = targets.loss_mask[torch.cat([*parts, torch.empty(0, dtype=torch.int64)])]
    spreads = [spread for found in ratios.values() for spread in _spreads(found, mask)]
    token_free, seq_free, token_replayed, seq_replayed = spreads
    return {
        **_changes(old, new),
        **dict(zip(_SPREADS, (token_free, token_replayed, seq_free, seq_replayed), strict=True)),
    }


def _first_met(experience: Experience, rows: Tensor, known: set[tuple[int, ...]]) -> Tensor:
    """Return which tokens of the packed row of ``rows`` count, [N] bool: all but those of prompts already ``known``."""
    counted: list[bool] = []
    for prompt in dict.fromkeys(tuple(experience.prompts[i]) for i in rows.tolist()):
        counted += [prompt not in known] * len(prompt)
        known.add(prompt)
    inputs = sum(pass_rows(experience, rows).inputs())
    return torch.tensor([*counted, *[True] * inputs])


def _changes(old: list[Tensor], new: list[Tensor]) -> dict[str, float]:
    """Return how many of the choices in ``old`` are not in ``new``, [L, n, k] each, and how even the new ones are."""
    if not old:
        return dict.fromkeys(("routed_changed_frac", "tokens_rerouted_frac", "expert_load_max_frac"), float("nan"))
    before, after = torch.cat(old, 1), torch.cat(new, 1)
    lost = ~(before[..., None] == after[..., None, :]).any(-1)  # [L, n, k]
    load = max(int(layer.bincount().max()) for layer in after.flatten(1))
    return {
        "routed_changed_frac": float(lost.double().mean()),
        "tokens_rerouted_frac": float(lost.any(2).any(0).double().mean()),
        "expert_load_max_frac": load / after[0].numel(),
    }


def _spreads(ratios: list[Tensor], mask: Tensor) -> tuple[float, float]:
    """Return the standard deviation of log-ratios [B, T], over masked tokens and of means over each row's, nats."""
    if not mask.any():
        return float("nan"), float("nan")
    values = torch.cat(ratios).double().where(mask, 0)
    lengths = mask.sum(1)
    means = values.sum(1)[lengths > 0] / lengths[lengths > 0]
    return float(values[mask].std(correction=0)), float(means.std(correction=0))
