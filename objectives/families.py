"""What objectives of one kind have in common: settings, their checks, advantages, and the loss of a token.

A member names its weights (``aggregation``) and what else is its own, and its defaults where they differ.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from objectives.advantages import group_advantages, row_targets
from objectives.base import Batch, Objective, Rollout, Targets, TokenLoss
from objectives.checks import require_at_least, require_between
from objectives.surrogates import clipped_surrogate, sequence_surrogate

__all__ = ["GroupRatio", "GroupTokenClip", "SequenceClip", "TokenClip"]


@dataclass(frozen=True)
class GroupRatio(Objective):
    """Acts through a ratio, on GRPO's advantages: (R - mean) / (std + std_eps) of the response's group.

    Attributes:
        std_eps: added to the group's standard deviation, reward units.
    """

    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "several"
    min_group_size: ClassVar[int] = 2

    std_eps: float = 1e-6

    def __post_init__(self) -> None:
        require_at_least(0, std_eps=self.std_eps)

    def targets(self, rollout: Rollout) -> Targets:
        advantages = group_advantages(rollout.rewards, rollout.group, scale="group", std_eps=self.std_eps)
        return row_targets(rollout, advantages)


@dataclass(frozen=True)
class TokenClip(Objective):
    """PPO's clip of token ratios: -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A).

    Attributes:
        clip_low: ratio is clipped to >= 1 - clip_low where the advantage is negative; in [0, 1].
        clip_high: ratio is clipped to <= 1 + clip_high where the advantage is positive; at least 0.
    """

    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "several"

    clip_low: float = 0.2
    clip_high: float = 0.2

    def __post_init__(self) -> None:
        require_between(0, 1, clip_low=self.clip_low)
        require_at_least(0, clip_high=self.clip_high)

    def token_loss(self, batch: Batch) -> TokenLoss:
        return clipped_surrogate(batch, self.clip_low, self.clip_high)


@dataclass(frozen=True)
class GroupTokenClip(TokenClip, GroupRatio):
    """PPO's clip on GRPO's advantages."""

    def __post_init__(self) -> None:
        TokenClip.__post_init__(self)
        GroupRatio.__post_init__(self)


@dataclass(frozen=True)
class SequenceClip(GroupRatio):
    """One length-normalised ratio a response, clipped as a whole.

    Attributes:
        clip_low: the response's ratio is clipped to >= 1 - clip_low where its advantage is negative; in [0, 1].
        clip_high: the response's ratio is clipped to <= 1 + clip_high where its advantage is positive; at least 0.
    """

    clip_low: float = 3e-4
    clip_high: float = 4e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between(0, 1, clip_low=self.clip_low)
        require_at_least(0, clip_high=self.clip_high)

    def token_loss(self, batch: Batch) -> TokenLoss:
        return sequence_surrogate(batch, self.clip_low, self.clip_high)
