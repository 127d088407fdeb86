"""No trust region; KL(pi_old || pi_theta) is still measured for the log."""

from dataclasses import dataclass

from torch import Tensor

from objectives.base import Batch
from objectives.kl import k3
from objectives.trust_region.base import TrustRegion, Unit


@dataclass(frozen=True)
class Unconstrained(TrustRegion):
    """Leave the policy free: the coefficient is 0 and stays 0.

    Attributes:
        unit: how the measured divergence is aggregated.
    """

    unit: Unit = "per_sequence"

    def init(self) -> float:
        """Return 0."""
        return 0.0

    def divergence(self, batch: Batch) -> Tensor:
        """Return k3 of KL(pi_old || pi_theta)."""
        return k3(batch.logprobs, batch.old_logprobs, batch.loss_mask)
