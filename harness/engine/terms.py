"""The loss of a micro-batch: an objective's terms and a region's divergence, each with its own mask and weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from harness.compatibility import exact_fields
from harness.engine.metrics import StepMetrics, Tokens
from harness.engine.run import Run
from objectives import Batch, Origin, Rollout, Targets
from objectives.ops import log_ratio, masked
from objectives.trust_region import TrustRegion

__all__ = ["StepWeights", "Sums", "backward", "divergence_weights", "make_batch"]


@dataclass(frozen=True)
class StepWeights:
    """Weights of each term over one optimizer step, [N, T] and 0 outside the step's rows.

    Attributes:
        policy: the objective's aggregation; of its entropy and penalty terms as well.
        value: mean over the tokens of ``Targets.value_mask``.
        divergence: the trust region's own aggregate over fresh rows.
        correction: factor of the policy term alone (``correction.correction_weights``); not limited to the step's rows.
    """

    policy: Tensor
    value: Tensor
    divergence: Tensor
    correction: Tensor

    def none(self) -> "StepWeights":
        """Return weights of 0, for a micro-batch that does not count."""
        return StepWeights(self.policy * 0, self.value * 0, self.divergence * 0, self.correction)

    def of(self, rows: Tensor) -> "StepWeights":
        """Return the weights of some rows, [B, T]."""
        return StepWeights(self.policy[rows], self.value[rows], self.divergence[rows], self.correction[rows])


def divergence_weights(region: TrustRegion, mask: Tensor, origin: Tensor) -> Tensor:
    """Return weights [M, T] that make ``region``'s aggregate of a divergence over the fresh rows of ``mask``."""
    fresh = mask & (origin == Origin.FRESH)[:, None]
    count = fresh.sum() if region.unit == "per_token" else fresh.any(1).sum()
    return fresh.float() / count.clamp(min=1)


@dataclass
class Sums:
    """What the micro-batches of a step add up to.

    Attributes:
        loss: all of it.
        policy: policy loss.
        value: value loss.
        divergence: the trust region's aggregate, nats.
    """

    loss: float = 0.0
    policy: float = 0.0
    value: float = 0.0
    divergence: float = 0.0

    @classmethod
    def of(cls, parts: Sequence["Sums"]) -> "Sums":
        """Return the sums of all ``parts``."""
        return cls(*(sum(getattr(part, item.name) for part in parts) for item in fields(cls)))


def make_batch(
    rollout: Rollout, targets: Targets, rows: Tensor, leaves: Mapping[str, Tensor], extras: Mapping[str, Tensor]
) -> Batch:
    """Return the micro-batch of ``rows`` with the current policy's outputs ``leaves``."""

    def pick(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[rows]

    width = rollout.response_mask.shape[1]
    old_values = None if rollout.old_values is None else rollout.old_values[rows, :width]
    return Batch(
        logprobs=leaves["logprobs"],
        old_logprobs=rollout.old_logprobs[rows],
        advantages=targets.advantages[rows],
        loss_mask=targets.loss_mask[rows],
        response_ids=rollout.response_ids[rows],
        rollout_logprobs=pick(rollout.rollout_logprobs),
        ref_logprobs=pick(rollout.ref_logprobs),
        teacher_logprobs=pick(rollout.teacher_logprobs),
        values=leaves.get("values"),
        old_values=old_values,
        returns=pick(targets.returns),
        entropy=leaves.get("entropy"),
        old_entropy=pick(rollout.old_entropy),
        **{name: leaves[name] for name in exact_fields(frozenset(leaves))},
        extras={name: tensor[rows] for name, tensor in {**targets.extras, **extras}.items()},
    )


def backward(run: Run, batch: Batch, weights: StepWeights, sums: Sums, metrics: StepMetrics) -> None:
    """Differentiate the loss of a micro-batch down to the leaves of ``batch`` and add its parts to ``sums``."""
    terms = run.objective.token_loss(batch)
    kept = batch.loss_mask & run.region.keep(batch)
    policy = (masked(terms.policy, kept) * weights.correction * weights.policy).sum()
    policy_gradient = torch.autograd.grad(policy, batch.logprobs, retain_graph=True)[0]
    gradient = policy_gradient + _penalty_gradient(terms.penalty, batch, weights.policy)
    divergence = (masked(run.region.divergence(batch), batch.loss_mask) * weights.divergence).sum()
    loss = policy + run.coef * divergence
    if terms.value is not None:
        value = (masked(terms.value, weights.value > 0) * weights.value).sum()
        sums.value += value.item()
        loss = loss + value
    for term in (terms.entropy, terms.penalty):
        if term is not None:
            loss = loss + (masked(term, batch.loss_mask) * weights.policy).sum()
    loss.backward()
    sums.loss += loss.item()
    sums.policy += policy.item()
    sums.divergence += divergence.item()
    with run.ledger.timed("log"):
        _log(metrics, batch, policy_gradient, gradient, weights.policy, terms.stats)


def _penalty_gradient(penalty: Tensor | None, batch: Batch, weights: Tensor) -> Tensor:
    """Return the gradient [B, T] of an objective's own penalty with respect to the log-probabilities."""
    if penalty is None or not penalty.requires_grad:
        return torch.zeros_like(batch.logprobs)
    total = (masked(penalty, batch.loss_mask) * weights).sum()
    found = torch.autograd.grad(total, batch.logprobs, retain_graph=True, allow_unused=True)[0]
    return torch.zeros_like(batch.logprobs) if found is None else found


@torch.no_grad()
def _log(
    metrics: StepMetrics,
    batch: Batch,
    policy_gradient: Tensor,
    gradient: Tensor,
    weights: Tensor,
    stats: Mapping[str, Tensor],
) -> None:
    """Add a micro-batch to ``metrics``; gradients [B, T] of the policy term and of it plus the objective's penalty."""
    mask = batch.loss_mask
    tokens = int(mask.sum())
    metrics.add_tokens(
        Tokens(
            mask=mask,
            log_ratio=log_ratio(batch.logprobs, batch.old_logprobs, mask),
            advantages=batch.advantages,
            policy_gradient=policy_gradient,
            gradient=gradient,
            weights=weights,
            clipped=stats.get("clipped"),
            segment=batch.extras.get("segment"),
            old_logprobs=batch.old_logprobs,
            sampler_logprobs=batch.rollout_logprobs,
        )
    )
    if batch.entropy is not None:
        metrics.add("entropy_nats", float(batch.entropy[mask].sum()), tokens)
    for name, values in stats.items():
        if name != "clipped":
            metrics.add(f"objective/{name}", float(values[mask].float().sum()), tokens)
