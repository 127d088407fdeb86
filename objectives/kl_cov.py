"""KL-Cov: a KL penalty on the few tokens of highest covariance (Cui et al. 2025, arXiv:2505.22617).

    cov_t = (log pi_theta - mean)(A_t - mean), means over the tokens of the step
    loss  = -r_t A_i,  plus kl_coef |log(pi_theta / pi_old)| at the tokens of largest cov_t: int(fraction * tokens) of
            them, at least one
    c_t   = r_t A_i - kl_coef sign(log r_t) at those

Weights: 1 / tokens of the step.
Differs from GRPO: no clip; the penalty holds back what would drive the entropy down, and acts without any advantage too
(``TokenLoss.penalty``). From Clip-Cov: those tokens keep their gradient.
The covariance is that of the whole optimizer step under the current policy, which costs one forward pass a step
(phase "prepass"); libraries take it by micro-batch.
Defaults: fraction 2e-3 (2e-4 for a larger model) and kl_coef 1 are the paper's as far as it could be checked; libraries
differ by a thousand in the fraction and by ten in the factor; std_eps 1e-6 is ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from objectives.aggregation import token_mean
from objectives.base import Batch, Step, TokenLoss
from objectives.checks import require_at_least, require_between
from objectives.covariance import token_covariance
from objectives.families import GroupRatio
from objectives.ops import log_ratio
from objectives.surrogates import kept_surrogate


@dataclass(frozen=True)
class KLCov(GroupRatio):
    """Policy gradient with a penalty on tokens of high covariance.

    Attributes:
        fraction: share of the step's tokens to penalise, in [0, 1]; at least one unless it is 0.
        kl_coef: factor of |log r| there, at least 0.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"step_logprobs"})

    fraction: float = 2e-3
    kl_coef: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between(0, 1, fraction=self.fraction)
        require_at_least(0, kl_coef=self.kl_coef)

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def prepare(self, step: Step) -> Mapping[str, Tensor]:
        """Return "held" [M, T] bool: the tokens of largest covariance."""
        mask = step.loss_mask
        covariance = torch.where(mask, token_covariance(step), -torch.inf).flatten()
        wanted = max(1, int(self.fraction * int(mask.sum()))) if self.fraction else 0
        largest = covariance.argsort(descending=True, stable=True)[:wanted]
        held = torch.zeros_like(covariance, dtype=torch.bool).index_fill(0, largest, value=True)
        return {"held": held.reshape(mask.shape) & mask}

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask, held = batch.loss_mask, batch.extras["held"]
        distance = log_ratio(batch.logprobs, batch.old_logprobs, mask).abs()
        return replace(
            kept_surrogate(batch, torch.ones_like(mask)), penalty=self.kl_coef * torch.where(held, distance, 0.0)
        )
