"""Drop whole responses that have left the region (OPSM of DeepSeek-V3.2, 2025; TRM, arXiv:2512.23075).

    statistic "mean_k1": mean_t log(pi_old / pi_theta);  "mean_k3": mean_t k3;  "max_k3": max_t k3 of a response
    response out: statistic > delta (and, if only_negative, A < 0): its policy loss is 0, denominators stay

With "mean_k1" and only_negative this is DeepSeek's off-policy sequence mask; with "max_k3" or "mean_k3" and both signs
the trust-region mask of arXiv:2512.23075. Differs from GSPO's clip: no ratio, and symmetric in its direction.
Defaults: OPSM with delta 0.5 nats a token, what TRL's documentation suggests; libraries differ by a factor of 5000.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from objectives.base import Batch
from objectives.checks import require_positive
from objectives.kl import k1, k3
from objectives.ops import masked, row_mean
from objectives.trust_region.base import Unit
from objectives.trust_region.measured import KLRegion


@dataclass(frozen=True)
class MaskSequence(KLRegion):
    """Mask the policy loss of responses that the policy has moved away from.

    Attributes:
        delta: largest value of the statistic, nats a token, above 0.
        statistic: "mean_k1", "mean_k3" or "max_k3" over the response's tokens.
        only_negative: mask responses with a negative advantage only.
    """

    unit: Unit = "per_sequence"
    delta: float = 0.5
    statistic: Literal["mean_k1", "mean_k3", "max_k3"] = "mean_k1"
    only_negative: bool = True

    def __post_init__(self) -> None:
        require_positive(delta=self.delta)

    @property
    def bounds_kl_old(self) -> bool:
        """Its bound is on something else: see delta."""
        return False

    def init(self) -> float:
        """Return 0: there is no penalty."""
        return 0.0

    def keep(self, batch: Batch) -> Tensor:
        """Return [B, T] bool: whole responses."""
        mask = batch.loss_mask
        estimate = k1 if self.statistic == "mean_k1" else k3
        values = estimate(batch.logprobs.detach(), batch.old_logprobs, mask)
        statistic = values.amax(1, keepdim=True) if self.statistic == "max_k3" else row_mean(values, mask)
        out = statistic > self.delta
        if self.only_negative:
            out = out & (masked(batch.advantages, mask).sum(1, keepdim=True) < 0)
        return (~out).expand_as(mask) & torch.ones_like(mask)
