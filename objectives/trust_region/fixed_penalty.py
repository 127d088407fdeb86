"""Fixed penalty on KL(pi_old || pi_theta) (Schulman et al. 2017, PPO, arXiv:1707.06347, section 4).

    loss + coef * mean_t KL_t(pi_old || pi_theta),   KL_t by k3 from samples of pi_old: exact gradient in expectation

Default coef 1: one of the fixed values {0.3, 1, 3, 10} of the paper's table 1.
"""

from dataclasses import dataclass

from torch import Tensor

from objectives.base import Batch
from objectives.checks import require_positive
from objectives.kl import k3
from objectives.trust_region.base import TrustRegion, Unit


@dataclass(frozen=True)
class FixedPenalty(TrustRegion):
    """Penalise the distance to the policy that made the rollout, always by the same factor.

    Attributes:
        coef: factor of the divergence, advantage units per nat, above 0.
        unit: how the divergence is aggregated.
    """

    coef: float = 1.0
    unit: Unit = "per_token"

    def __post_init__(self) -> None:
        require_positive(coef=self.coef)

    def init(self) -> float:
        """Return ``coef``."""
        return self.coef

    def divergence(self, batch: Batch) -> Tensor:
        """Return k3 of KL(pi_old || pi_theta)."""
        return k3(batch.logprobs, batch.old_logprobs, batch.loss_mask)
