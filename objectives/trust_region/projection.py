"""Project every state's distribution into the region before the objective sees it (TROLL, arXiv:2510.03817).

    pi~ = argmin_p KL(p || pi_theta)  subject to  KL(p || pi_old) <= delta   in every state
        = (pi_old^w pi_theta^(1 - w)) / Z,  w in [0, 1) the smallest that holds; 0 inside the region
    the objective's ratio is pi~ / pi_old;   loss + coef mean_t KL(pi_theta || sg(pi~))

Differs from clipping: the bound holds for the whole distribution of a state and the gradient goes on through it; the
last term brings the policy itself back, so that it may be used without the projection. Differs from TROLL: over the
whole vocabulary, not a sparse part of it, so it is meant for small ones; w by bisection, with the exact derivative of
the constraint (implicit differentiation).
The divergence that is penalised and measured is KL(pi_theta || pi~), 0 inside the region.
Defaults: delta 0.05 nats a state and coef 1 are ours: the paper's numbers could not be checked. Costs the old policy's
head on every token of every update.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from objectives.base import Batch
from objectives.checks import require_at_least, require_positive
from objectives.ops import masked
from objectives.trust_region.base import TrustRegion, Unit

_BISECTIONS = 60
_SMALLEST = 1e-6
"""Below this float32 cannot tell a distribution on the boundary from pi_old."""


@dataclass(frozen=True)
class Projection(TrustRegion):
    """Hold KL(pi~ || pi_old) <= delta in every state by a projection that is differentiated through.

    Attributes:
        delta: the bound, nats a state, at least 1e-6.
        coef: factor of KL(pi_theta || pi~), above 0.
        unit: how that divergence is aggregated.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"projection_gap"})

    delta: float = 0.05
    coef: float = 1.0
    unit: Unit = "per_token"

    def __post_init__(self) -> None:
        require_positive(coef=self.coef)
        require_at_least(_SMALLEST, delta=self.delta)

    @property
    def bounds_kl_old(self) -> bool:
        """Its bound is on something else: see delta."""
        return False

    def init(self) -> float:
        """Return ``coef``."""
        return self.coef

    def divergence(self, batch: Batch) -> Tensor:
        """Return KL(pi_theta || pi~) of every token's state [B, T], nats."""
        if batch.projection_gap is None:
            raise ValueError("projection reads Batch.projection_gap, which is None")
        return masked(batch.projection_gap, batch.loss_mask)

    def project(self, logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
        """Return log pi~ [K, V] of distributions [K, V]; carries the gradient of ``logprobs``."""
        outside = _divergence(logprobs.detach(), old_logprobs) > self.delta
        if not bool(outside.any()):
            return logprobs
        new, old = logprobs[outside], old_logprobs[outside]
        weight = self._weight(new.detach(), old)
        inner = _mix(new, old, weight)
        violation = _divergence(inner, old) - self.delta
        # d violation / d weight = -(1 - weight) Var(log pi_old - log pi_theta) under pi~
        gap, chances = old - new.detach(), inner.detach().exp()
        mean = (chances * gap).sum(-1, keepdim=True)
        slope = -(1 - weight) * (chances * (gap - mean).square()).sum(-1)
        return logprobs.index_put((outside.nonzero()[:, 0],), _mix(new, old, weight - violation / slope))

    def _weight(self, new: Tensor, old: Tensor) -> Tensor:
        """Return w [K] by bisection."""
        low, high = torch.zeros_like(new[:, 0]), torch.ones_like(new[:, 0])
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            holds = _divergence(_mix(new, old, middle), old) <= self.delta
            low, high = torch.where(holds, low, middle), torch.where(holds, middle, high)
        return high


def _mix(new: Tensor, old: Tensor, weight: Tensor) -> Tensor:
    """Return the logarithm of the normalised geometric mixture [K, V]."""
    share = weight[:, None]
    return torch.log_softmax(share * old + (1 - share) * new, dim=-1)


def _divergence(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """Return KL(pi || pi_old) of distributions [K, V] as [K]."""
    return (logprobs.exp() * (logprobs - old_logprobs)).sum(-1)
