"""The subsequence objective on rows made of segment ratios."""

import torch
from torch import Tensor

import objectives
from objectives import Batch


def losses(ratios: Tensor, advantages: Tensor, mode: str, segment: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return each row's loss [B], summed over tokens, and gradient [B, T].

    Args:
        ratios: [B, T], one token each.
        advantages: [B].
        mode: clip mode; bounds 0.2.
        segment: [B, T] ids; one token a segment if None.
    """
    ids = torch.arange(ratios.shape[1]).expand(ratios.shape) if segment is None else segment
    logprobs = ratios.log().requires_grad_()
    batch = Batch(
        logprobs=logprobs,
        old_logprobs=torch.zeros_like(ratios),
        advantages=advantages[:, None].expand_as(ratios),
        loss_mask=torch.ones_like(ids, dtype=torch.bool),
        response_ids=ids,
        extras={"segment": ids},
    )
    loss = objectives.make("gspo_subsequence", clip_mode=mode).token_loss(batch).policy.sum(1)
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    return loss.detach(), gradient


def token_loss(
    ratios: list[float], advantage: float, mode: str, segment: list[int] | None = None
) -> tuple[float, Tensor]:
    """Return loss and gradient [T] of one row."""
    ids = None if segment is None else torch.tensor([segment])
    rows = torch.tensor([ratios], dtype=torch.float64), torch.tensor([advantage], dtype=torch.float64)
    loss, gradient = losses(*rows, mode, ids)
    return float(loss), gradient[0]
