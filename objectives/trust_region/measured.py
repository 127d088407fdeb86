"""A region that measures KL to a fixed policy: to which one, in which direction, and how it is estimated."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from objectives.base import Batch
from objectives.kl import Estimator, kl_from_old
from objectives.ops import masked
from objectives.trust_region.base import TrustRegion, Unit, Verdict

__all__ = ["EXACT_FIELDS", "Anchor", "Direction", "KLRegion", "Verdict"]

Anchor = Literal["old", "reference"]
Direction = Literal["forward", "reverse"]

EXACT_FIELDS: dict[tuple[Anchor, Direction], str] = {
    ("old", "forward"): "exact_kl_old",
    ("old", "reverse"): "exact_kl_new_old",
    ("reference", "forward"): "exact_kl_ref",
    ("reference", "reverse"): "exact_kl_new_ref",
}
"""The field of ``Batch`` that holds the exact divergence."""


@dataclass(frozen=True)
class KLRegion(TrustRegion):
    """Measure a KL divergence between the policy and an anchor.

    Attributes:
        unit: how the divergence is aggregated.
        estimator: "k1", "k2" or "k3" from the sampled tokens (``objectives.kl``), or "exact" over the vocabulary.
        anchor: the policy to stay near: "old", which made the rollout, or "reference", the frozen start.
        direction: "forward" for KL(anchor || pi_theta), "reverse" for KL(pi_theta || anchor).
    """

    unit: Unit = "per_token"
    estimator: Estimator | Literal["exact"] = "k3"
    anchor: Anchor = "old"
    direction: Direction = "forward"

    @property
    def requires(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the divergence is computed from."""
        needed = {"ref_logprobs"} if self.anchor == "reference" else set[str]()
        return frozenset(needed | {EXACT_FIELDS[self.anchor, self.direction]} if self.estimator == "exact" else needed)

    def divergence(self, batch: Batch) -> Tensor:
        """Return the divergence of every token [B, T], nats."""
        mask = batch.loss_mask
        if self.estimator == "exact":
            return masked(_given(batch, EXACT_FIELDS[self.anchor, self.direction]), mask)
        anchor = batch.old_logprobs if self.anchor == "old" else _given(batch, "ref_logprobs")
        pair = (batch.logprobs, anchor) if self.direction == "forward" else (anchor, batch.logprobs)
        return kl_from_old(self.estimator, *pair, batch.old_logprobs, mask)

    @property
    def bounds_kl_old(self) -> bool:
        """Only a forward divergence to the old policy is KL(pi_old || pi_theta)."""
        return self.anchor == "old" and self.direction == "forward"

    def refuse_negative_estimates(self) -> None:
        """Raise ValueError for k1: a control must not read a noisy negative estimate as room."""
        if self.estimator == "k1":
            raise ValueError("estimator 'k1' can be negative, which a control would take for room; use 'k3' or 'exact'")


def _given(batch: Batch, name: str) -> Tensor:
    value: Tensor | None = getattr(batch, name)
    if value is None:
        raise ValueError(f"the trust region reads Batch.{name}, which is None")
    return value
