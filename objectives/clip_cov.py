"""Clip-Cov: silence a few random tokens of high covariance (Cui et al. 2025, arXiv:2505.22617).

    cov_t = (log pi_theta - mean)(A_t - mean), means over the tokens of the step
    loss  = GRPO's, but 0 at a random int(fraction * tokens), at least one, of those with low < cov_t < high
    c_t   = r_t A_i, 0 where clipped or silenced

Weights: 1 / tokens of the step (denominators keep silenced tokens).
Differs from GRPO: tokens that are both probable and rewarded drive the entropy down; a few of them get no gradient.
Candidates are open tokens only. The covariance is that of the whole optimizer step under the current policy, which
costs one forward pass a step (phase "prepass"); libraries take it by micro-batch.
The draw comes from the run's keyed uniforms.
Defaults: fraction 2e-4, bounds 1 and 5, as the authors released them in verl; std_eps 1e-6 is ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from objectives.aggregation import token_mean
from objectives.base import Batch, Step, TokenLoss
from objectives.checks import require_at_least, require_between
from objectives.covariance import token_covariance
from objectives.families import GroupTokenClip
from objectives.ops import clip_ratio_pessimistic, log_ratio
from objectives.surrogates import clipped_surrogate


@dataclass(frozen=True)
class ClipCov(GroupTokenClip):
    """PPO's clip and a covariance-based one.

    Attributes:
        fraction: share of the step's tokens to silence, in [0, 1]; at least one unless it is 0.
        cov_low: candidates have a covariance above this.
        cov_high: and below this; at least cov_low.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"step_logprobs", "step_uniforms"})

    fraction: float = 2e-4
    cov_low: float = 1.0
    cov_high: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between(0, 1, fraction=self.fraction)
        require_at_least(self.cov_low, cov_high=self.cov_high)

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def prepare(self, step: Step) -> Mapping[str, Tensor]:
        """Return "silent" [M, T] bool: the tokens drawn."""
        covariance, mask = token_covariance(step), step.loss_mask
        assert step.logprobs is not None
        assert step.old_logprobs is not None
        assert step.advantages is not None
        if step.uniforms is None:
            raise ValueError('clip_cov reads Step.uniforms: name "step_uniforms" in requires')
        ratio = torch.exp(log_ratio(step.logprobs, step.old_logprobs, mask))
        open_ = clip_ratio_pessimistic(ratio, step.advantages, self.clip_low, self.clip_high) == ratio
        open_ = open_ | (step.advantages == 0)
        candidates = mask & open_ & (covariance > self.cov_low) & (covariance < self.cov_high)
        wanted = max(1, int(self.fraction * int(mask.sum()))) if self.fraction else 0
        chance = torch.where(candidates, step.uniforms, torch.inf).flatten()
        drawn = chance.argsort()[:wanted]
        silent = torch.zeros_like(chance, dtype=torch.bool).index_fill(0, drawn, value=True) & chance.isfinite()
        return {"silent": silent.reshape(mask.shape)}

    def token_loss(self, batch: Batch) -> TokenLoss:
        usual, silent = clipped_surrogate(batch, self.clip_low, self.clip_high), batch.extras["silent"]
        clipped = usual.stats["clipped"] | silent
        return TokenLoss(policy=torch.where(silent, 0.0, usual.policy), stats={"clipped": clipped})
