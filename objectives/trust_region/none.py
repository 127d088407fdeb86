"""No trust region; KL(pi_old || pi_theta) is still measured for the log."""

from dataclasses import dataclass

from objectives.trust_region.base import Unit
from objectives.trust_region.measured import KLRegion


@dataclass(frozen=True)
class Unconstrained(KLRegion):
    """Leave the policy free: the coefficient is 0 and stays 0."""

    unit: Unit = "per_sequence"

    def init(self) -> float:
        """Return 0."""
        return 0.0
