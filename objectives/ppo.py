"""PPO: clipped token ratios with a learned critic (Schulman et al. 2017, arXiv:1707.06347).

    A_t    = GAE(gamma, lam) of the response's reward at its last token, whitened over the rollout
    policy = mean_t -min(r_t A_t, clip(r_t, 1 - low, 1 + high) A_t)          eq. 7
             and, with dual_clip, where A_t < 0 at most -dual_clip A_t (Ye et al. 2019, arXiv:1912.09729)
    value  = mean_t max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2
    bonus  = -entropy_coef * mean_t H(pi_theta)                              eq. 9
    c_t    = r_t A_t, 0 where clipped

Weights: 1 / tokens of the step.
Differs from GRPO: the baseline is a critic, so advantages vary along a response and no group is needed; means are over
all tokens of the step. A response that reached the length limit ends there (no bootstrap); only one cut off by the
window bootstraps. Invalid with one update a rollout (every ratio is 1).
Defaults: clip 0.2 (section 6.1), lam 0.95 (table 3), entropy_coef 0.01 (table 5); gamma 1, as is usual for responses
rewarded at the end; value_clip 0.2 from the authors' code (openai/baselines ppo2), not in the paper; no dual clip
(its paper uses 3).
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from objectives.advantages import generalised_advantages, last_token_rewards, whiten
from objectives.aggregation import token_mean
from objectives.base import Batch, Finish, Rollout, Step, Targets, TokenLoss
from objectives.checks import require_at_least, require_between, require_positive
from objectives.families import TokenClip
from objectives.ops import masked
from objectives.surrogates import clipped_surrogate


@dataclass(frozen=True)
class PPO(TokenClip):
    """Proximal policy optimisation with a critic.

    Attributes:
        dual_clip: the ratio is clipped to <= dual_clip where the advantage is negative; above 1; None leaves it free.
        value_clip: the value moves at most this far from the old one before its loss is clipped; above 0, reward units.
        gamma: discount per token, in [0, 1].
        lam: decay of the advantage estimate per token, in [0, 1].
        entropy_coef: factor of the entropy bonus, at least 0.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"values", "old_values", "entropy"})
    windows: ClassVar[bool] = True

    dual_clip: float | None = None
    value_clip: float = 0.2
    gamma: float = 1.0
    lam: float = 0.95
    entropy_coef: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between(0, 1, gamma=self.gamma, lam=self.lam)
        require_at_least(0, entropy_coef=self.entropy_coef)
        require_positive(value_clip=self.value_clip)
        if self.dual_clip is not None and not 1 < self.dual_clip < math.inf:
            raise ValueError(f"dual_clip = {self.dual_clip!r} must be above 1 and finite; leave it out for none")

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def targets(self, rollout: Rollout) -> Targets:
        if rollout.old_values is None:
            raise ValueError("ppo reads Rollout.old_values, which is None")
        mask = rollout.scored
        columns = torch.arange(mask.shape[1] + 1, device=mask.device)
        ends = (mask * columns[1:]).amax(1, keepdim=True)  # after the last token, whatever is masked before it
        ended = (rollout.finish != Finish.WINDOW)[:, None] & (columns >= ends)
        values = torch.where(ended, 0.0, rollout.old_values)
        rewards = last_token_rewards(rollout)
        advantages, returns = generalised_advantages(rewards, values, mask, gamma=self.gamma, lam=self.lam)
        return Targets(whiten(advantages, mask), mask, returns=returns, value_mask=mask)

    def token_loss(self, batch: Batch) -> TokenLoss:
        if batch.values is None or batch.old_values is None or batch.returns is None or batch.entropy is None:
            raise ValueError("ppo reads values, old_values, returns and entropy of the Batch; one of them is None")
        mask = batch.loss_mask
        values, old_values, returns = (masked(x, mask) for x in (batch.values, batch.old_values, batch.returns))
        near = values.clamp(old_values - self.value_clip, old_values + self.value_clip)
        dual = math.inf if self.dual_clip is None else self.dual_clip
        return replace(
            clipped_surrogate(batch, self.clip_low, self.clip_high, dual),
            value=torch.maximum((values - returns).square(), (near - returns).square()) / 2,
            entropy=-self.entropy_coef * batch.entropy,
        )
