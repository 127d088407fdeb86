"""The contract between an objective and the engine.

The engine makes a ``Rollout``; ``Objective.targets`` turns it into ``Targets`` once; for every micro-batch
``Objective.token_loss`` turns a ``Batch`` into a ``TokenLoss``, a loss per token and never a mean: the weights of
``Objective.aggregation`` are computed over the whole optimizer step, so that no result depends on the micro-batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from objectives.data import Batch, Finish, Origin, Rollout, Step, Targets, TokenLoss, select_rows

__all__ = ["Batch", "Finish", "Objective", "Origin", "Rollout", "Step", "Targets", "TokenLoss", "select_rows"]


class Objective(ABC):
    """A policy-gradient objective. A subclass is a frozen dataclass; its fields are its hyper-parameters.

    An objective keeps no state and never averages: it says which tokens count, with what advantage and weight, and
    what each token's loss is. ``requires`` names the optional fields of ``Rollout``, ``Step`` and ``Batch`` that it
    reads; the engine provides just those and charges their compute.

    Attributes:
        requires: see above; "step_logprobs" and "step_uniforms" ask for the optional fields of ``Step``.
        updates_per_rollout: "several" for an objective that acts through the ratio (with one update every ratio is
            1, unless pi_old lags), "one" for one that is valid on-policy only; a schedule that contradicts it is
            refused.
        min_group_size: responses a prompt that it needs; 2 if it compares within a group.
        windows: whether it can learn from responses that the window cut off, which have no reward yet.
        gives: names of ``Targets.extras`` that a trust region may read.
        presets: named settings of published or studied variants.
    """

    requires: ClassVar[frozenset[str]] = frozenset()
    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "any"
    min_group_size: ClassVar[int] = 1
    windows: ClassVar[bool] = False
    gives: ClassVar[frozenset[str]] = frozenset()
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @abstractmethod
    def aggregation(self, step: Step) -> Tensor:
        """Return the weights [M, T] of the tokens of one optimizer step; 0 outside ``step.loss_mask``."""

    @abstractmethod
    def targets(self, rollout: Rollout) -> Targets:
        """Return advantages and masks of a rollout."""

    @abstractmethod
    def token_loss(self, batch: Batch) -> TokenLoss:
        """Return the loss of every token of a micro-batch."""

    def keep_groups(self, rewards: Tensor) -> Tensor:
        """Return [P] bool, the groups of ``rewards`` [P, G] to train on; the engine samples others for the rest."""
        return torch.ones(rewards.shape[0], dtype=torch.bool, device=rewards.device)

    def prepare(self, step: Step) -> Mapping[str, Tensor]:
        """Return named [M, T] tensors that need the whole optimizer step; they join ``Batch.extras``."""
        del step
        return {}
