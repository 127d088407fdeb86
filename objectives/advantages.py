"""Advantage estimators and group statistics, shared by the objectives. Shapes: see ``objectives.base``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from objectives.base import Rollout, Targets
from objectives.ops import masked

__all__ = [
    "Scale",
    "broadcast_rows",
    "generalised_advantages",
    "group_advantages",
    "last_token_rewards",
    "leave_one_out_advantages",
    "length_weighted_advantages",
    "row_targets",
    "whiten",
]

Scale = Literal["none", "group", "batch"]
"""What centred rewards are divided by: nothing, their group's standard deviation, or that of all rewards."""

# Rewards that differ by less than this share of their size are one value that float32 wrote in two ways.
_SPREAD_TOLERANCE = 1e-6


def broadcast_rows(per_row: Tensor, mask: Tensor) -> Tensor:
    """Return ``per_row`` [N] as [N, T], 0 outside ``mask``."""
    return masked(per_row[:, None], mask)


def row_targets(rollout: Rollout, advantages: Tensor, extras: Mapping[str, Tensor] | None = None) -> Targets:
    """Return targets in which every scored token of a response has the response's advantage.

    Args:
        rollout: the responses; rows with an unknown reward leave the loss.
        advantages: [N] float.
        extras: of ``Targets``.
    """
    mask = rollout.scored
    return Targets(broadcast_rows(advantages, mask).to(rollout.old_logprobs.dtype), mask, extras=dict(extras or {}))


def last_token_rewards(rollout: Rollout) -> Tensor:
    """Return [N, T], each known reward at the last token of its response, 0 elsewhere."""
    mask = rollout.scored
    columns = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    last = columns == (mask * columns).amax(1, keepdim=True)
    return torch.where(last, rollout.rewards[:, None], 0.0).to(rollout.old_logprobs.dtype)


@dataclass(frozen=True)
class _Groups:
    """Known rewards by group, in float64."""

    group: Tensor  # [N] int64
    known: Tensor  # [N] bool
    values: Tensor  # [N], 0 where unknown
    count: Tensor  # [P] known rewards

    @property
    def informative(self) -> Tensor:
        """[N] bool: the row's group has two known rewards that differ by more than rounding."""
        mean = self.sum(self.values) / self.count.clamp(min=1)
        centred = torch.where(self.known, self.values - mean[self.group], 0.0)
        largest, size = self.largest(centred), self.largest(self.values)
        return ((largest > _SPREAD_TOLERANCE * size) & (self.count > 1))[self.group]

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum of ``x`` [N] over each group's known rows, [P]."""
        return torch.zeros_like(self.count).scatter_add(0, self.group, torch.where(self.known, x, 0.0))

    def largest(self, x: Tensor) -> Tensor:
        """Return the largest size of ``x`` [N] in each group, [P]."""
        return torch.zeros_like(self.count).scatter_reduce(0, self.group, x.abs(), "amax")

    def settle(self, advantages: Tensor, like: Tensor) -> Tensor:
        """Return ``advantages`` [N] in the dtype of ``like``; exactly 0 for unknown rewards and groups all alike."""
        return torch.where(self.known & self.informative, advantages, 0.0).to(like.dtype)


def _groups(rewards: Tensor, group: Tensor) -> _Groups:
    known = ~torch.isnan(rewards)
    num_groups = int(group.max()) + 1 if group.numel() else 0
    zeros = torch.zeros(num_groups, dtype=torch.float64, device=rewards.device)
    values = torch.where(known, rewards, 0.0).double()
    return _Groups(group, known, values, zeros.scatter_add(0, group, known.double()))


def group_advantages(rewards: Tensor, group: Tensor, *, scale: Scale = "none", std_eps: float = 1e-6) -> Tensor:
    """Return R - mean(R of its group), divided by a standard deviation if asked.

    Deviations are sample ones (ddof 1). A NaN reward (infrastructure) is left out of all statistics and gets 0. A
    group whose known rewards are all alike, or that has fewer than two of them, gets exactly 0: float noise over a
    tiny deviation would otherwise be a signal.

    Args:
        rewards: [N] float, may be NaN.
        group: [N] int64 in [0, P).
        scale: divide by the deviation of the "group" or of the whole "batch", plus ``std_eps``; or by nothing.
        std_eps: in units of the reward.

    Returns:
        [N] float, the dtype of ``rewards``; computed in float64.
    """
    groups = _groups(rewards, group)
    mean = groups.sum(groups.values) / groups.count.clamp(min=1)
    centred = groups.values - mean[group]
    if scale == "group":
        variance = groups.sum(centred.square()) / (groups.count - 1).clamp(min=1)
        centred = centred / (variance.sqrt()[group] + std_eps)
    elif scale == "batch":
        values = groups.values[groups.known]
        deviation = values.std() if len(values) > 1 else values.new_zeros(())
        centred = centred / (deviation + std_eps)
    return groups.settle(centred, rewards)


def leave_one_out_advantages(rewards: Tensor, group: Tensor) -> Tensor:
    """Return R - mean(R of the others of its group) = G/(G-1) (R - mean), [N]; NaN and equal rewards as above."""
    groups = _groups(rewards, group)
    others = (groups.sum(groups.values)[group] - groups.values) / (groups.count[group] - 1).clamp(min=1)
    return groups.settle(groups.values - others, rewards)


def length_weighted_advantages(rewards: Tensor, group: Tensor, lengths: Tensor) -> Tensor:
    """Return R - sum(n R) / sum(n) over its group, [N]: weighted by tokens, the group's advantages sum to 0.

    NaN and equal rewards as in ``group_advantages``. A group without tokens gets R itself.

    Args:
        rewards: [N] float, may be NaN.
        group: [N] int64.
        lengths: [N], tokens of each response.
    """
    groups = _groups(rewards, group)
    weights = lengths.double()
    baseline = groups.sum(weights * groups.values) / groups.sum(weights).clamp(min=1)
    return groups.settle(groups.values - baseline[group], rewards)


def whiten(x: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """Shift and scale ``x`` [N, T] to mean 0 and sample variance 1 over ``mask``; 0 outside it.

    With fewer than two entries there is no variance: ``x`` is returned as it is.
    """
    count = mask.sum()
    values = masked(x, mask).double()
    if count <= 1:
        return values.to(x.dtype)
    centred = masked(values - values.sum() / count, mask)
    if centred.abs().max() <= _SPREAD_TOLERANCE * values.abs().max():
        return torch.zeros_like(x)
    variance = centred.square().sum() / (count - 1)
    return (centred * torch.rsqrt(variance + eps)).to(x.dtype)


def generalised_advantages(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Return generalised advantage estimates and returns (Schulman et al. 2016, arXiv:1506.02438, eq. 16).

        delta_t = r_t + gamma V_{t+1} - V_t,   A_t = delta_t + gamma lam A_{t+1},   returns = A + V

    Tokens outside ``mask`` are no transitions: value and advantage of the next masked token are carried through them.

    Args:
        rewards: [N, T] float.
        values: [N, T+1] float; the entry after a row's last token is its bootstrap value (0 where it ended).
        mask: [N, T] bool.
        gamma: discount per token.
        lam: decay of the estimate per token.

    Returns:
        advantages [N, T], returns [N, T]; both 0 outside ``mask``.
    """
    length = mask.shape[1]
    ends = (mask * torch.arange(1, length + 1, device=mask.device)).amax(1, keepdim=True)
    next_value = torch.nan_to_num(values).gather(1, ends)[:, 0]
    advantage = torch.zeros_like(next_value)
    advantages = torch.zeros_like(rewards)
    for t in reversed(range(length)):
        here = mask[:, t]
        value = torch.where(here, values[:, t], next_value)
        delta = torch.where(here, rewards[:, t], 0.0) + gamma * next_value - value
        advantage = torch.where(here, delta + gamma * lam * advantage, advantage)
        next_value = value
        advantages[:, t] = torch.where(here, advantage, 0.0)
    returns = advantages + masked(values[:, :length], mask)
    return advantages, returns
