"""What objectives with the same clip have in common: settings, their checks, and the loss of a token.

A member names its advantages (``targets``) and its weights (``aggregation``), and its defaults where they differ.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from objectives.advantages import group_advantages
from objectives.base import Batch, Objective, Rollout, TokenLoss
from objectives.checks import require_at_least, require_between
from objectives.surrogates import clipped_surrogate, sequence_surrogate

__all__ = ["SequenceClip", "TokenClip"]


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
class SequenceClip(Objective):
    """One length-normalised ratio a response, clipped as a whole, with advantages divided by the group's deviation.

    Attributes:
        clip_low: the response's ratio is clipped to >= 1 - clip_low where its advantage is negative; in [0, 1].
        clip_high: the response's ratio is clipped to <= 1 + clip_high where its advantage is positive; at least 0.
        std_eps: added to the group's standard deviation, reward units.
    """

    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "several"
    min_group_size: ClassVar[int] = 2

    clip_low: float = 3e-4
    clip_high: float = 4e-4
    std_eps: float = 1e-6

    def __post_init__(self) -> None:
        require_between(0, 1, clip_low=self.clip_low)
        require_at_least(0, clip_high=self.clip_high, std_eps=self.std_eps)

    def advantages(self, rollout: Rollout) -> Tensor:
        """Return (R - mean) / (std + std_eps) of each response's group, [N]."""
        return group_advantages(rollout.rewards, rollout.group, scale="group", std_eps=self.std_eps)

    def token_loss(self, batch: Batch) -> TokenLoss:
        return sequence_surrogate(batch, self.clip_low, self.clip_high)
