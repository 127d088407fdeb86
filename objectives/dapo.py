"""DAPO: clip-higher, dynamic sampling, token mean, overlong rules (Yu et al. 2025, arXiv:2503.14476).

    R_i <- R_i + punishment(n_i):  0 up to limit - buffer, falling linearly to -1 at the limit             eq. 13
    A_i  = (R_i - mean_g R) / (std_g R + std_eps)
    loss = -min(r_t A_i, clip(r_t, 1 - low, 1 + high) A_i)                                                   eq. 8
    c_t  = r_t A_i, 0 where clipped

Weights: 1 / (prompts * tokens of the prompt's group); eq. 8. Most libraries take 1 / tokens of the step instead
(``weights = "token_mean"``).
Dynamic sampling: groups whose rewards are all alike are replaced (eq. 11) as often as ``rollout.max_resamples`` allows,
all charged; what is still missing then is filled with such groups, which give no gradient.
Differs from GRPO: all of these, and no KL to the reference.
Reduces to: GRPO with token weights, if the clip is symmetric, the buffer 0 and every group is informative.
The punishment is on the scale of rewards from -1 to 1 (section 2); with 0 and 1 it weighs twice as much.
Defaults: clip 0.2 and 0.28, buffer 4096 of 20480 tokens, section 4.1; ``overlong_filter`` (leave responses at the limit
out of the loss) is the paper's first remedy of section 3.4 and off in its final recipe; std_eps 1e-6 is ours.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from objectives.advantages import group_advantages, row_targets
from objectives.aggregation import prompt_mean, token_mean
from objectives.base import Finish, Rollout, Step, Targets
from objectives.checks import require_at_least, require_between
from objectives.families import TokenClip


@dataclass(frozen=True)
class DAPO(TokenClip):
    """Decoupled clip and dynamic sampling policy optimisation.

    Attributes:
        overlong_buffer: share of the length limit over which the punishment grows, in [0, 1]; 0 punishes nothing.
        overlong_filter: leave responses that reached the limit out of the loss and its denominators.
        weights: "prompt_mean" as in the paper, or "token_mean".
        std_eps: added to the group's standard deviation, reward units.
    """

    min_group_size: ClassVar[int] = 2

    clip_high: float = 0.28
    overlong_buffer: float = 0.2
    overlong_filter: bool = False
    weights: Literal["prompt_mean", "token_mean"] = "prompt_mean"
    std_eps: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between(0, 1, overlong_buffer=self.overlong_buffer)
        require_at_least(0, std_eps=self.std_eps)

    def aggregation(self, step: Step) -> Tensor:
        return prompt_mean(step) if self.weights == "prompt_mean" else token_mean(step)

    def keep_groups(self, rewards: Tensor) -> Tensor:
        """Keep groups with two different known rewards, as they are before any punishment."""
        group = torch.arange(len(rewards), device=rewards.device).repeat_interleave(rewards.shape[1])
        return (group_advantages(rewards.flatten(), group) != 0).reshape(rewards.shape).any(1)

    def targets(self, rollout: Rollout) -> Targets:
        rewards = rollout.rewards + self.punishment(rollout)
        advantages = group_advantages(rewards, rollout.group, scale="group", std_eps=self.std_eps)
        targets = row_targets(rollout, advantages)
        if not self.overlong_filter:
            return targets
        mask = targets.loss_mask & (rollout.finish != Finish.LENGTH)[:, None]
        return Targets(torch.where(mask, targets.advantages, 0.0), mask)

    def punishment(self, rollout: Rollout) -> Tensor:
        """Return [N], what is added to each reward, from 0 to -1."""
        limit = rollout.max_response_tokens or rollout.response_mask.shape[1]
        buffer = self.overlong_buffer * limit
        excess = rollout.response_mask.sum(1).to(rollout.rewards.dtype) - (limit - buffer)
        return -(excess / buffer).clamp(0, 1) if buffer else torch.zeros_like(excess)
