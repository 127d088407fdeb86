"""T-PPO: PPO on responses that are still being written (Fan et al. 2025, "Truncated PPO", arXiv:2506.15050).

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t)
    A_t     = sum_{k=0}^{l-t-1} (gamma lam)^k delta_{t+k};   cut off after l tokens: V(s_l) := V(s_{l-1})     eq. 2-3, 6
    policy  = mean_t -min(r_t A_t, clip(r_t, 1 - low, 1 + high) A_t) over the tokens of this iteration's window
    value   = mean_t (V - R)^2 over the tokens of responses that have ended, R their discounted reward
    c_t     = r_t A_t, 0 where clipped

Weights: 1 / tokens of the step, of each term's own mask.
Differs from PPO: a response cut off by the window neither bootstraps with V(s_l) nor waits for its end; the critic
learns from ended responses only, and from their real returns; no entropy bonus, no value clip. With gamma 1 the last
token of a cut-off response has raw advantage 0, and a constant critic gives none to the whole response.
Reduces to: PPO with lam 1 for the critic where no response is cut off.
Advantages are whitened over the policy's tokens, as PPO's are. Group comparisons need an end, so there is no group.
Read from summaries that quote eq. 6; whether the policy loss covers the newest window or all tokens so far is not
settled: ``policy_tokens``. The window is ``rollout.window_tokens`` of the run.
Defaults: none of the paper's could be read; clip 0.2, gamma 1 and lam 0.95 are PPO's.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from objectives.advantages import generalised_advantages, last_token_rewards, whiten
from objectives.aggregation import token_mean
from objectives.base import Batch, Finish, Rollout, Step, Targets, TokenLoss
from objectives.checks import require_between
from objectives.families import TokenClip
from objectives.ops import masked
from objectives.surrogates import clipped_surrogate


@dataclass(frozen=True)
class TPPO(TokenClip):
    """Truncated proximal policy optimisation.

    Attributes:
        gamma: discount per token, in [0, 1].
        lam: decay of the advantage estimate per token, in [0, 1].
        policy_tokens: the policy's loss is over the newest "window" or over "all" tokens so far.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"values", "old_values", "window_mask"})
    windows: ClassVar[bool] = True

    gamma: float = 1.0
    lam: float = 0.95
    policy_tokens: Literal["window", "all"] = "window"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between(0, 1, gamma=self.gamma, lam=self.lam)

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def targets(self, rollout: Rollout) -> Targets:
        if rollout.old_values is None or rollout.window_mask is None:
            raise ValueError("tppo reads Rollout.old_values and Rollout.window_mask; one of them is None")
        mask, cut = rollout.scored, (rollout.finish == Finish.WINDOW)[:, None]
        columns = torch.arange(mask.shape[1] + 1, device=mask.device)
        ends = (mask * columns[1:]).amax(1, keepdim=True)
        last = masked(rollout.old_values[:, :-1], mask).gather(1, (ends - 1).clamp(min=0))
        values = torch.where(columns >= ends, torch.where(cut, last, 0.0), rollout.old_values)
        rewards = torch.where(cut, 0.0, last_token_rewards(rollout))
        advantages, _ = generalised_advantages(rewards, values, mask, gamma=self.gamma, lam=self.lam)
        returns, _ = generalised_advantages(rewards, torch.zeros_like(values), mask, gamma=self.gamma, lam=1.0)
        policy = mask & rollout.window_mask if self.policy_tokens == "window" else mask
        valued = mask & ~cut
        return Targets(whiten(advantages, policy), policy, returns, valued, extras={"valued": valued})

    def token_loss(self, batch: Batch) -> TokenLoss:
        if batch.values is None or batch.returns is None:
            raise ValueError("tppo reads values and returns of the Batch; one of them is None")
        values, returns = (masked(x, batch.extras["valued"]) for x in (batch.values, batch.returns))
        return replace(clipped_surrogate(batch, self.clip_low, self.clip_high), value=(values - returns).square())
