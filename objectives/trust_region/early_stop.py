"""Stop updating on a rollout once KL(pi_old || pi_theta) exceeds a bound (OpenAI Spinning Up, PPO, ``target_kl``).

    before each step: KL > tolerance * target: drop this step and the rest of the rollout's updates

Measured on every step's own minibatch, not on the last one only. Defaults: target 0.01 nats a token and tolerance 1.5
as in Spinning Up. The forward and backward pass of the dropped step is charged.
"""

from dataclasses import dataclass

from objectives.checks import require_at_least, require_positive
from objectives.trust_region.base import Verdict
from objectives.trust_region.measured import KLRegion


@dataclass(frozen=True)
class EarlyStop(KLRegion):
    """End a rollout's updates at the first violation.

    Attributes:
        target: divergence aimed at, nats of ``unit``, above 0.
        tolerance: stop above ``tolerance * target``; at least 1.
    """

    target: float = 0.01
    tolerance: float = 1.5

    def __post_init__(self) -> None:
        self.refuse_negative_estimates()
        require_positive(target=self.target)
        require_at_least(1, tolerance=self.tolerance)

    def init(self) -> float:
        """Return 0: there is no penalty."""
        return 0.0

    def update(self, coef: float, kl: float) -> Verdict:
        """Stop above the bound."""
        return Verdict(coef, stop=kl > self.tolerance * self.target)
