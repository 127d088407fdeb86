"""Shrink a step until KL(pi_old || pi_theta) holds on its own minibatch (the line search of TRPO, arXiv:1502.05477).

    after each step: while KL > delta: theta <- theta_before + shrink (theta - theta_before); undone after ten times

Differs from TRPO: the direction is the optimizer's, no natural gradient, and the surrogate's own gain is not asked for
(appendix C checks both). The bound is exact on the rows it is measured on, and says nothing of others.
Moments of the optimizer are kept where a part of the step is, and put back where it is undone.
Defaults: shrink 0.8 and ten times as in common implementations of TRPO; delta 0.05 nats a response is ours. Costs a
forward pass over the minibatch after every step and after every shrinking.
"""

from dataclasses import dataclass
from typing import ClassVar

from objectives.checks import require_between, require_positive
from objectives.trust_region.base import Measured, Unit, Verdict
from objectives.trust_region.measured import KLRegion


@dataclass(frozen=True)
class Backtrack(KLRegion):
    """Never leave the region on the rows of the step.

    Attributes:
        delta: the bound, nats of ``unit``, above 0.
        shrink: what is kept of a step that leaves it, each time; in (0, 1).
    """

    measured: ClassVar[Measured] = "after_step"

    unit: Unit = "per_sequence"
    delta: float = 0.05
    shrink: float = 0.8

    def __post_init__(self) -> None:
        self.refuse_negative_estimates()
        require_positive(delta=self.delta, shrink=self.shrink)
        require_between(0, 1, shrink=self.shrink)

    def init(self) -> float:
        """Return 0: there is no penalty."""
        return 0.0

    def update(self, coef: float, kl: float) -> Verdict:
        """Keep the step where the bound holds, a part of it where it does not; a KL that is no number is no room."""
        return Verdict(coef, scale=1.0 if kl <= self.delta else self.shrink)
