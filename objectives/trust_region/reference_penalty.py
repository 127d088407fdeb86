"""Fixed penalty on KL(pi_theta || pi_ref), the frozen start (Shao et al. 2024, GRPO, arXiv:2402.03300, eq. 3-4).

    loss + coef * mean_t (pi_theta / pi_old) * k3_t,   k3 = pi_ref/pi_theta - 1 - log(pi_ref/pi_theta)

Differs from the paper's bare k3: responses come from pi_old, so k3 alone has the gradient of the reversed divergence;
times the differentiable ratio its gradient is that of KL(pi_theta || pi_ref) token by token (arXiv:2512.21852).
Default coef 0.04: section 4.2 of the paper. Costs one reference forward pass a rollout.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from objectives.base import Batch
from objectives.checks import require_positive
from objectives.kl import k3
from objectives.ops import log_ratio
from objectives.trust_region.base import TrustRegion, Unit


@dataclass(frozen=True)
class ReferencePenalty(TrustRegion):
    """Penalise the distance to the reference policy.

    Attributes:
        coef: factor of the divergence, advantage units per nat, above 0.
        unit: how the divergence is aggregated.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"ref_logprobs"})

    coef: float = 0.04
    unit: Unit = "per_token"

    def __post_init__(self) -> None:
        require_positive(coef=self.coef)

    def init(self) -> float:
        """Return ``coef``."""
        return self.coef

    def divergence(self, batch: Batch) -> Tensor:
        """Return (pi_theta / pi_old) k3 of KL(pi_theta || pi_ref)."""
        if batch.ref_logprobs is None:
            raise ValueError("reference_penalty reads Batch.ref_logprobs, which is None")
        ratio = torch.exp(log_ratio(batch.logprobs, batch.old_logprobs, batch.loss_mask))
        return ratio * k3(batch.ref_logprobs, batch.logprobs, batch.loss_mask)
