"""Fixed penalty on KL(pi_old || pi_theta) (Schulman et al. 2017, PPO, arXiv:1707.06347, section 4).

    loss + coef * mean_t KL_t(pi_old || pi_theta),   KL_t by k3 from samples of pi_old: exact gradient in expectation

Default coef 1: one of the fixed values {0.3, 1, 3, 10} of the paper's table 1.
"""

from dataclasses import dataclass

from objectives.checks import require_positive
from objectives.trust_region.measured import KLRegion


@dataclass(frozen=True)
class FixedPenalty(KLRegion):
    """Penalise the distance to the policy that made the rollout, always by the same factor.

    Attributes:
        coef: factor of the divergence, advantage units per nat, above 0.
    """

    coef: float = 1.0

    def __post_init__(self) -> None:
        require_positive(coef=self.coef)

    def init(self) -> float:
        """Return ``coef``."""
        return self.coef
