"""One optimizer step on made-up data, as plain as can be: what the contract and the tests hold objectives against.

It does what the real engine does in the fewest lines (weights over the whole step, micro-batches, one mask a term)
and provides just the fields that ``requires`` names, so that an objective that reads more is found out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from objectives.base import Batch, Objective, Rollout, Step, Targets, select_rows
from objectives.cases import CARRIES_GRADIENT, Case, far, padded, random_case, with_logprobs
from objectives.data import Record
from objectives.trust_region.base import TrustRegion

__all__ = ["Case", "Outcome", "divergence", "far", "one_step", "padded", "random_case", "with_logprobs"]


@dataclass(frozen=True)
class Outcome:
    """What one step gives.

    Attributes:
        loss: scalar, all terms.
        gradients: [N, T] by the names of ``Case.current``; 0 where nothing depends on it.
        weights: [N, T], from ``Objective.aggregation``.
        targets: from ``Objective.targets``.
        stats: [N, T] by name, from ``Objective.token_loss``.
    """

    loss: Tensor
    gradients: Mapping[str, Tensor]
    weights: Tensor
    targets: Targets
    stats: Mapping[str, Tensor]


def one_step(
    objective: Objective,
    case: Case,
    *,
    micro_batch: int | None = None,
    poison: float | None = None,
    edit: Callable[[Targets], Targets] = lambda targets: targets,
    penalty: bool = True,
) -> Outcome:
    """Return loss and gradients of one optimizer step over all rows of ``case``.

    Args:
        objective: what to run.
        case: the data.
        micro_batch: rows a micro-batch; all if None.
        poison: written into every masked slot of every input first.
        edit: what to change of the targets.
        penalty: whether ``TokenLoss.penalty`` is part of the loss.
    """
    rollout = case.rollout if poison is None else _poisoned(case.rollout, case.rollout.response_mask, poison)
    targets = edit(objective.targets(rollout))
    batch = _batch(objective.requires, rollout, case, poison, targets)
    step = _step(objective, rollout, targets, batch)
    weights = objective.aggregation(step)
    batch = replace(batch, extras={**targets.extras, **objective.prepare(step)})
    value_mask = targets.loss_mask if targets.value_mask is None else targets.value_mask
    loss = torch.zeros((), dtype=rollout.old_logprobs.dtype)
    stats: list[Mapping[str, Tensor]] = []
    rows = rollout.rewards.shape[0]
    for start in range(0, rows, micro_batch or rows):
        part = torch.arange(start, min(start + (micro_batch or rows), rows))
        terms = objective.token_loss(select_rows(batch, part))
        mask = targets.loss_mask[part]
        share = (torch.where(mask, terms.policy, 0) * weights[part]).sum()
        for term in (terms.entropy, terms.penalty if penalty else None):
            if term is not None:
                share = share + (torch.where(mask, term, 0) * weights[part]).sum()
        if terms.value is not None:
            share = share + torch.where(value_mask[part], terms.value, 0).sum() / value_mask.sum().clamp(min=1)
        if share.requires_grad:
            torch.autograd.backward(share)
        loss = loss + share.detach()
        stats.append(terms.stats)
    joined = {name: torch.cat([one[name] for one in stats]) for name in stats[0]}
    return Outcome(loss, _gradients(batch, case), weights, targets, joined)


def divergence(region: TrustRegion, case: Case, *, poison: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the region's divergence [N, T], the gradient of its masked sum to logprobs, and its ``keep``."""
    mask = case.rollout.response_mask
    targets = Targets(torch.ones_like(case.rollout.old_logprobs), mask)
    batch = _batch(region.requires, case.rollout, case, poison, targets)
    value = region.divergence(batch)
    torch.autograd.backward(torch.where(mask, value, 0).sum())
    return value.detach(), _gradients(batch, case)["logprobs"], region.keep(batch)


def _step(objective: Objective, rollout: Rollout, targets: Targets, batch: Batch) -> Step:
    """Return the view of the whole step, poisoned where ``batch`` is."""
    uniforms = (rollout.old_logprobs * 1e4).remainder(1)  # a token's own, wherever its row and column stand
    return Step(
        loss_mask=targets.loss_mask,
        group=rollout.group,
        origin=rollout.origin,
        max_response_tokens=rollout.max_response_tokens or targets.loss_mask.shape[1],
        advantages=batch.advantages,
        old_logprobs=batch.old_logprobs,
        logprobs=batch.logprobs.detach() if "step_logprobs" in objective.requires else None,
        uniforms=uniforms if "step_uniforms" in objective.requires else None,
    )


def _batch(requires: frozenset[str], rollout: Rollout, case: Case, poison: float | None, targets: Targets) -> Batch:
    """Return all rows as one Batch with fresh leaves, holding just the fields that ``requires`` names."""
    mask, valued = targets.loss_mask, targets.loss_mask if targets.value_mask is None else targets.value_mask
    used = {"values": mask | valued}
    leaves = {
        name: (value.clone() if poison is None else torch.where(used.get(name, mask), value, poison)).requires_grad_()
        for name, value in case.current.items()
        if name == "logprobs" or name in requires
    }
    known = {item.name for item in fields(Batch)} - {*CARRIES_GRADIENT, "old_values"}
    given = {name: getattr(rollout, name) for name in requires & known}
    old_values = None if rollout.old_values is None else rollout.old_values[:, :-1]
    batch = Batch(
        old_logprobs=rollout.old_logprobs,
        advantages=targets.advantages,
        loss_mask=mask,
        response_ids=rollout.response_ids,
        returns=targets.returns,
        old_values=old_values,
        **leaves,
        **given,
    )
    if poison is None:
        return batch
    critics = {"returns": batch.returns, "old_values": batch.old_values}
    kept = {name: None if x is None else torch.where(mask | valued, x, poison) for name, x in critics.items()}
    return replace(_poisoned(batch, mask, poison), **kept)


def _gradients(batch: Batch, case: Case) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, value in case.current.items():
        leaf: Tensor | None = getattr(batch, name)
        found[name] = torch.zeros_like(value) if leaf is None or leaf.grad is None else leaf.grad
    return found


def _poisoned(record: Record, mask: Tensor, poison: float) -> Record:
    """Return ``record`` with ``poison`` (-100 in token ids) in every constant outside ``mask``."""
    changed: dict[str, object] = {}
    ends = (mask * torch.arange(1, mask.shape[1] + 1)).amax(1, keepdim=True)
    wide = torch.cat([mask, torch.zeros_like(mask[:, :1])], 1) | (torch.arange(mask.shape[1] + 1) == ends)
    for item in fields(record):
        value = getattr(record, item.name)
        if not isinstance(value, Tensor) or value.ndim == 1 or value.dtype == torch.bool or value.requires_grad:
            continue
        keep = mask if value.shape == mask.shape else wide
        changed[item.name] = torch.where(keep, value, poison if value.is_floating_point() else -100)
    return replace(record, **changed)  # pyright: ignore[reportArgumentType]
