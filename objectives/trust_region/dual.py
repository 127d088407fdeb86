"""Constraint E_s[KL(pi_old || pi_theta)] <= delta by dual ascent on its multiplier.

    min_theta max_{coef >= 0}  loss + coef (KL - delta);    coef <- coef exp(rate clip(KL / delta - 1, -1, 1))

The trust region of the subsequence proposal: s is a prompt, so KL is that of whole responses, in nats a response,
estimated by the sum of token k3 over responses of pi_old (exact gradient in expectation). Lagrangian treatment as in
constrained policy optimisation (Ray et al. 2019, "Benchmarking Safe Exploration"; for ratio constraints
arXiv:2601.03320). The ascent is the exponentiated form (mirror ascent on coef >= 0): losses of different objectives
differ in scale by the length of a response, and a step added to coef that suits one of them makes another oscillate.
The violation is clipped so that one noisy rollout cannot change coef by more than exp(rate); coef stays above a
thousandth of its start, so that it is back within seven rollouts when a bound that had room begins to bind.
Defaults are ours: delta 0.05 nats a response leaves an effective sample size above 0.9; rate 1 crosses a factor of ten
in about two rollouts. Costs one forward pass over the rows of one minibatch after the last update of a rollout.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from objectives.checks import require_positive
from objectives.trust_region.base import Measured, Unit, Verdict
from objectives.trust_region.measured import KLRegion

_FLOOR = 1e-3


@dataclass(frozen=True)
class DualAscent(KLRegion):
    """Hold the divergence at or below a bound with a multiplier that grows while it is violated.

    Attributes:
        delta: the bound, nats of ``unit``, above 0.
        coef: multiplier at the start, above 0.
        rate: step of the ascent, nats of the multiplier a rollout, above 0.
    """

    measured: ClassVar[Measured] = "after_rollout"

    delta: float = 0.05
    coef: float = 0.1
    rate: float = 1.0
    unit: Unit = "per_sequence"

    def __post_init__(self) -> None:
        self.refuse_negative_estimates()
        require_positive(delta=self.delta, coef=self.coef, rate=self.rate)

    def init(self) -> float:
        """Return ``coef``."""
        return self.coef

    def update(self, coef: float, kl: float) -> Verdict:
        """Raise the multiplier while the bound is violated, lower it while there is room; NaN stays NaN."""
        violation = min(max(kl / self.delta - 1, -1.0), 1.0)
        return Verdict(max(coef * math.exp(self.rate * violation), _FLOOR * self.coef))
