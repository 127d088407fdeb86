"""REINFORCE++: PPO's clip without a critic, advantages whitened over the batch (Hu et al. 2025, arXiv:2501.03262).

    A_t  = sum_{s >= t} gamma^(s-t) (R 1[s last] - kl_coef log(pi_old / pi_ref)_s)        eq. 8-9
    A_t <- (A_t - mean) / std over all tokens of the rollout                              eq. 10
    loss = -min(r_t A_t, clip(r_t, 1 - low, 1 + high) A_t)
    c_t  = r_t A_t, 0 where clipped

Weights: 1 / tokens of the step.
Differs from GRPO: no group, deviation and mean are the whole batch's, and the KL to the reference stands in the reward
and is discounted back along the response. From PPO: no critic.
Tokens outside the loss (a tool's) are no steps: no discount is spent on them and their KL does not count.
Defaults: gamma 1; clip 0.2 as in PPO; kl_coef 0.01 is what the authors' OpenRLHF ships, not a number of
the paper's text.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from objectives.advantages import generalised_advantages, last_token_rewards, whiten
from objectives.aggregation import token_mean
from objectives.base import Rollout, Step, Targets
from objectives.checks import require_at_least, require_between
from objectives.families import TokenClip
from objectives.ops import log_ratio


@dataclass(frozen=True)
class ReinforcePP(TokenClip):
    """REINFORCE++ without a group baseline.

    Attributes:
        kl_coef: factor of log(pi_old / pi_ref) in each token's reward, at least 0.
        gamma: discount per token, in [0, 1].
    """

    requires: ClassVar[frozenset[str]] = frozenset({"ref_logprobs"})

    kl_coef: float = 0.01
    gamma: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between(0, 1, gamma=self.gamma)
        require_at_least(0, kl_coef=self.kl_coef)

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def targets(self, rollout: Rollout) -> Targets:
        if rollout.ref_logprobs is None:
            raise ValueError("reinforce_pp reads Rollout.ref_logprobs, which is None")
        mask = rollout.scored
        rewards = last_token_rewards(rollout) - self.kl_coef * log_ratio(
            rollout.old_logprobs, rollout.ref_logprobs, mask
        )
        no_values = rewards.new_zeros(mask.shape[0], mask.shape[1] + 1)
        returns, _ = generalised_advantages(rewards, no_values, mask, gamma=self.gamma, lam=1.0)
        return Targets(whiten(returns, mask), mask)
