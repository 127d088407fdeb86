"""Masked arithmetic shared by the objectives: ratios, group statistics, advantages. Shapes: see ``objectives.base``."""

import torch
from torch import Tensor

__all__ = [
    "MAX_LOG_RATIO",
    "broadcast_rows",
    "clip_ratio_pessimistic",
    "generalised_advantages",
    "group_advantages",
    "log_ratio",
    "masked",
    "row_mean",
    "saturated",
    "whiten",
]

# exp(20) is 4.9e8: large enough never to bind in training, small enough that float32 products stay finite.
MAX_LOG_RATIO = 20.0

# Rewards that differ by less than this share of their size are one value that float32 wrote in two ways.
_SPREAD_TOLERANCE = 1e-6


def log_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """Return log(pi_theta / pi_old) per token, in nats, 0 outside ``mask``.

    Clamped to +-20: beyond that a token's ratio no longer moves and passes no gradient. Entries outside the mask
    may be NaN or infinite; they reach neither value nor gradient.

    Args:
        logprobs: [B, T] float, nats; carries gradients.
        old_logprobs: [B, T] float, nats.
        mask: [B, T] bool.

    Returns:
        [B, T] float.
    """
    difference = masked(logprobs, mask) - masked(old_logprobs, mask)
    return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def saturated(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """Return [B, T] bool, tokens that the bound of ``log_ratio`` leaves without gradient; they count as clipped."""
    return (masked(logprobs, mask) - masked(old_logprobs, mask)).abs() > MAX_LOG_RATIO


def clip_ratio_pessimistic(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """Clip ``ratio`` on the side where its advantage would push it further out; equals PPO's minimum.

    A > 0: min(ratio, 1 + high); A < 0: max(ratio, 1 - low); so advantage times the result is
    min(ratio A, clip(ratio, 1 - low, 1 + high) A). The gradient is 0 strictly outside the bound.
    """
    return torch.where(advantages >= 0, ratio.clamp(max=1 + high), ratio.clamp(min=1 - low))


def masked(x: Tensor, mask: Tensor) -> Tensor:
    """Return ``x`` with 0 outside ``mask``; what stands there, NaN too, reaches neither value nor gradient."""
    return torch.where(mask, x, 0.0)


def row_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of every row of ``x`` [B, T] over ``mask`` as [B, 1]; 0 for an empty row."""
    return masked(x, mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


def broadcast_rows(per_row: Tensor, mask: Tensor) -> Tensor:
    """Return ``per_row`` [N] as [N, T], 0 outside ``mask``."""
    return masked(per_row[:, None], mask)


def group_advantages(rewards: Tensor, group: Tensor, *, scale_by_std: bool, std_eps: float = 1e-6) -> Tensor:
    """Return R - mean(R of its group), divided by the group's standard deviation if ``scale_by_std``.

    The deviation is the sample one (ddof 1). A NaN reward (infrastructure) is left out of its group's statistics and
    gets 0. A group whose known rewards are all alike, or that has fewer than two of them, gets exactly 0: float noise
    over a tiny deviation would otherwise be a signal.

    Args:
        rewards: [N] float, may be NaN.
        group: [N] int64 in [0, P).
        scale_by_std: divide by (standard deviation + ``std_eps``).
        std_eps: in units of the reward.

    Returns:
        [N] float, the dtype of ``rewards``; computed in float64.
    """
    if rewards.numel() == 0:
        return rewards.clone()
    num_groups = int(group.max()) + 1
    known = ~torch.isnan(rewards)
    values = torch.where(known, rewards, 0.0).double()
    zeros = torch.zeros(num_groups, dtype=torch.float64, device=rewards.device)
    count = zeros.scatter_add(0, group, known.double())
    mean = zeros.scatter_add(0, group, values) / count.clamp(min=1)
    centred = torch.where(known, values - mean[group], 0.0)
    largest = zeros.scatter_reduce(0, group, torch.where(known, centred.abs(), 0.0), "amax")
    size = zeros.scatter_reduce(0, group, values.abs(), "amax")
    if scale_by_std:
        variance = zeros.scatter_add(0, group, centred.square()) / (count - 1).clamp(min=1)
        centred = centred / (variance.sqrt()[group] + std_eps)
    informative = (largest > _SPREAD_TOLERANCE * size) & (count > 1)
    return torch.where(informative[group], centred, 0.0).to(rewards.dtype)


def whiten(x: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """Shift and scale ``x`` [N, T] to mean 0 and sample variance 1 over ``mask``; 0 outside it.

    With fewer than two entries there is no variance: ``x`` is returned as it is.
    """
    count = mask.sum()
    values = masked(x, mask)
    if count <= 1:
        return values
    centred = masked(values - values.sum() / count, mask)
    variance = centred.square().sum() / (count - 1)
    return centred * torch.rsqrt(variance + eps)


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
