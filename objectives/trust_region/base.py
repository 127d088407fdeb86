"""The contract between a trust region and the engine."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from objectives.base import Batch

__all__ = ["Measured", "TrustRegion", "Unit", "Verdict"]

Unit = Literal["per_token", "per_sequence"]
Measured = Literal["before_step", "after_step", "after_rollout"]


@dataclass(frozen=True)
class Verdict:
    """What a region decides from a measured divergence.

    Attributes:
        coef: the coefficient from here on.
        stop: make no further update on this rollout.
        scale: what to keep of the last step, of "after_step" regions: 1 all of it, 0 none.
    """

    coef: float
    stop: bool = False
    scale: float = 1.0


class TrustRegion(ABC):
    """Keep the policy near another one, by a penalty, a mask, or a control. A subclass is a frozen dataclass.

    Its only state is one float, the coefficient, which the engine holds and writes to the checkpoint. The engine adds
    coef times the aggregate of ``divergence`` to the loss, and gives ``update`` the aggregate of its value, both over
    fresh rows. The aggregate is the region's own (``unit``), whatever the objective's weights, so that a bound means
    the same beside every objective:

        per_token:    mean over tokens, nats a token
        per_sequence: sum over tokens, mean over responses, nats a response: E_s[KL(pi_old(.|s) || pi_theta(.|s))]

    Attributes:
        requires: optional fields of ``Batch`` that it reads.
        measured: when ``update`` is called. "before_step": with the divergence of the step's own forward pass, free;
            ``stop`` then cancels this step too. "after_step": with a forward pass over the step's rows after each step;
            while ``scale`` is below 1 that much of the step is kept and it is measured again, ten times at most, then
            the step is undone. "after_rollout": with a forward pass made for it after the last update of a rollout.
            Passes made for it are charged to the budget.
        unit: how ``divergence`` is aggregated; a field where a user may choose.
    """

    requires: ClassVar[frozenset[str]] = frozenset()
    measured: ClassVar[Measured] = "before_step"
    unit: Unit

    @abstractmethod
    def init(self) -> float:
        """Return the coefficient of a new run."""

    @abstractmethod
    def divergence(self, batch: Batch) -> Tensor:
        """Return the divergence of every token [B, T], nats, 0 outside ``batch.loss_mask``; carries gradients."""

    def keep(self, batch: Batch) -> Tensor:
        """Return [B, T] bool, tokens whose policy loss stays; the denominators do not change."""
        return torch.ones_like(batch.loss_mask)

    @property
    def bounds_kl_old(self) -> bool:
        """Whether its bound is one of KL(pi_old || pi_theta) in ``unit``, so that it may be drawn beside it."""
        return True

    @property
    def reads_extras(self) -> frozenset[str]:
        """Names of ``Batch.extras`` that it reads, which not every objective gives (``Objective.gives``)."""
        return frozenset()

    def project(self, logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
        """Return the log-probabilities [K, V] that the objective reads in place of ``logprobs`` [K, V].

        Called chunk by chunk, for regions that require "projection_gap"; both arguments are whole distributions.
        """
        del old_logprobs
        return logprobs

    def update(self, coef: float, kl: float) -> Verdict:
        """Return the verdict on ``kl``, the aggregate divergence in nats of ``unit``."""
        del kl
        return Verdict(coef)
