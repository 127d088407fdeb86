"""Token losses that more than one objective has in common. Shapes: see ``objectives.base``."""

import math

import torch
from torch import Tensor

from objectives.base import Batch, TokenLoss
from objectives.ops import clip_ratio_pessimistic, log_ratio, masked, row_mean, saturated

__all__ = ["clipped_surrogate", "kept_surrogate", "score_function", "sequence_surrogate"]


def clipped_surrogate(batch: Batch, low: float, high: float, dual: float = math.inf) -> TokenLoss:
    """Return PPO's loss of every token, -min(r A, clip(r, 1 - low, 1 + high) A), and where the clip is active.

    Args:
        batch: the micro-batch.
        low: offset of the lower bound, which holds where A < 0.
        high: offset of the upper bound, which holds where A > 0.
        dual: upper bound of the ratio where A < 0 (dual clip); infinite leaves it free.
    """
    pair = batch.logprobs, batch.old_logprobs, batch.loss_mask
    ratio = torch.exp(log_ratio(*pair))
    clipped = clip_ratio_pessimistic(ratio, batch.advantages, low, high, dual)
    active = (clipped != ratio) & (batch.advantages != 0)
    return TokenLoss(policy=-clipped * batch.advantages, stats={"clipped": active | saturated(*pair)})


def kept_surrogate(batch: Batch, keep: Tensor) -> TokenLoss:
    """Return -r A at the tokens of ``keep`` [B, T] bool and 0 elsewhere: a mask in place of a clip."""
    pair = batch.logprobs, batch.old_logprobs, batch.loss_mask
    ratio = torch.where(keep, torch.exp(log_ratio(*pair)), 0.0)
    return TokenLoss(policy=-ratio * batch.advantages, stats={"clipped": ~keep | saturated(*pair)})


def sequence_surrogate(batch: Batch, low: float, high: float) -> TokenLoss:
    """Return -min(s A, clip(s, 1 - low, 1 + high) A) at every token, s = exp(mean_t log r_t) of its response."""
    mask = batch.loss_mask
    pair = batch.logprobs, batch.old_logprobs, mask
    ratio = torch.exp(row_mean(log_ratio(*pair), mask))  # [B, 1]
    advantages = row_mean(batch.advantages, mask)
    clipped = clip_ratio_pessimistic(ratio, advantages, low, high)
    stats = {"clipped": ((clipped != ratio) & (advantages != 0)) | saturated(*pair)}
    return TokenLoss(policy=(-clipped * advantages).expand_as(mask), stats=stats)


def score_function(batch: Batch, weight: Tensor | float, clipped: Tensor | None = None) -> TokenLoss:
    """Return -sg(weight) A log pi_theta: every token keeps its gradient, times a weight that has none.

    Args:
        batch: the micro-batch.
        weight: [B, T], [B, 1] or a number; detached here.
        clipped: [B, T] bool, where the weight is at a bound; None if it has none.
    """
    weight = weight.detach() if isinstance(weight, Tensor) else weight
    policy = -weight * batch.advantages * masked(batch.logprobs, batch.loss_mask)
    return TokenLoss(policy=policy, stats={} if clipped is None else {"clipped": clipped.expand_as(batch.loss_mask)})
