"""Adaptive penalty on KL(pi_old || pi_theta) (Schulman et al. 2017, PPO, arXiv:1707.06347, section 4).

    after a rollout's updates:  d < target / 1.5: coef / 2;   d > 1.5 target: coef * 2

Defaults: target 0.01 nats a token, one of {0.003, 0.01, 0.03} of table 1; coef 1 at the start, which the paper says
hardly matters; factors 1.5 and 2 from section 4.
"""

from dataclasses import dataclass
from typing import ClassVar

from objectives.checks import require_at_least, require_positive
from objectives.trust_region.base import Measured, Verdict
from objectives.trust_region.measured import KLRegion


@dataclass(frozen=True)
class AdaptivePenalty(KLRegion):
    """Double or halve the penalty to stay near a target divergence.

    Attributes:
        target: divergence aimed at, nats of ``unit``, above 0.
        coef: factor at the start, above 0.
        tolerance: the factor is left alone for a divergence within [target / tolerance, target * tolerance].
        rate: what the factor is multiplied or divided by.
    """

    measured: ClassVar[Measured] = "after_rollout"

    target: float = 0.01
    coef: float = 1.0
    tolerance: float = 1.5
    rate: float = 2.0

    def __post_init__(self) -> None:
        self.refuse_negative_estimates()
        require_positive(target=self.target, coef=self.coef)
        require_at_least(1, tolerance=self.tolerance, rate=self.rate)

    def init(self) -> float:
        """Return ``coef``."""
        return self.coef

    def update(self, coef: float, kl: float) -> Verdict:
        """Halve the coefficient below the band, double it above."""
        if kl < self.target / self.tolerance:
            return Verdict(coef / self.rate)
        if kl > self.target * self.tolerance:
            return Verdict(coef * self.rate)
        return Verdict(coef)
