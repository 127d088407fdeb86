"""Constraint E_s[KL(pi_old || pi_theta)] <= delta by dual ascent on its multiplier.

    min_theta max_{coef >= 0}  loss + coef (KL - delta);    coef <- max(0, coef + rate (KL / delta - 1))

The trust region of the subsequence proposal: s is a prompt, so KL is that of whole responses, in nats a response,
estimated by the sum of token k3 over responses of pi_old (exact gradient in expectation). Lagrangian treatment as in
constrained policy optimisation (Ray et al. 2019, "Benchmarking Safe Exploration"; for ratio constraints
arXiv:2601.03320). Dividing by delta makes the rate free of the bound's size.
Defaults are ours: delta 0.05 nats a response leaves an effective sample size above 0.9; coef 1 and rate 0.5 find the
multiplier within about ten rollouts. Costs one forward pass over part of the rollout after its last update.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from objectives.base import Batch
from objectives.checks import require_at_least, require_positive
from objectives.kl import k3
from objectives.trust_region.base import TrustRegion, Unit, Verdict


@dataclass(frozen=True)
class DualAscent(TrustRegion):
    """Hold the divergence at or below a bound with a multiplier that grows while it is violated.

    Attributes:
        delta: the bound, nats of ``unit``, above 0.
        coef: multiplier at the start, at least 0.
        rate: step of the ascent, above 0.
        unit: how the divergence is aggregated.
    """

    measured: ClassVar[Literal["before_step", "after_rollout"]] = "after_rollout"

    delta: float = 0.05
    coef: float = 1.0
    rate: float = 0.5
    unit: Unit = "per_sequence"

    def __post_init__(self) -> None:
        require_positive(delta=self.delta, rate=self.rate)
        require_at_least(0, coef=self.coef)

    def init(self) -> float:
        """Return ``coef``."""
        return self.coef

    def divergence(self, batch: Batch) -> Tensor:
        """Return k3 of KL(pi_old || pi_theta)."""
        return k3(batch.logprobs, batch.old_logprobs, batch.loss_mask)

    def update(self, coef: float, kl: float) -> Verdict:
        """Raise the multiplier while the bound is violated, lower it while there is room, never below 0.

        NaN stays NaN (it must be the first argument of ``max``): the run then stops instead of losing its bound.
        """
        return Verdict(max(coef + self.rate * (kl / self.delta - 1), 0.0))
