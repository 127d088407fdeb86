"""Weights of tokens within one optimizer step: the largest source of silent differences between implementations.

Each function takes a ``Step`` (the whole optimizer step, before micro-batches) and returns weights [M, T] in the dtype
of the log-probabilities, 0 outside ``loss_mask``. Rows without a token in the mask count nowhere.
An empty step gets zeros.
"""

import torch
from torch import Tensor

from objectives.base import Step

__all__ = ["constant", "prompt_mean", "sequence_mean", "token_mean"]


def _dtype(step: Step) -> torch.dtype:
    return torch.float32 if step.old_logprobs is None else step.old_logprobs.dtype


def _rows(mask: Tensor) -> Tensor:
    return mask.any(1).sum().clamp(min=1)


def sequence_mean(step: Step) -> Tensor:
    """Return 1 / (rows * tokens of the row): mean over responses of the mean over tokens (GRPO, GSPO)."""
    mask = step.loss_mask
    lengths = mask.sum(1, keepdim=True).clamp(min=1)
    return mask.to(_dtype(step)) / (_rows(mask) * lengths)


def token_mean(step: Step) -> Tensor:
    """Return 1 / tokens of the whole step: every token counts alike (PPO; DAPO as most libraries have it)."""
    mask = step.loss_mask
    return mask.to(_dtype(step)) / mask.sum().clamp(min=1)


def constant(step: Step) -> Tensor:
    """Return 1 / (rows * max_response_tokens): no response's length matters to another's weight (Dr. GRPO)."""
    mask = step.loss_mask
    return mask.to(_dtype(step)) / (_rows(mask) * step.max_response_tokens)


def prompt_mean(step: Step) -> Tensor:
    """Return 1 / (prompts * tokens of the prompt's group): mean over prompts of the mean over tokens (DAPO, eq. 8)."""
    mask = step.loss_mask
    tokens = mask.sum(1)
    groups = torch.zeros(int(step.group.max()) + 1 if len(step.group) else 0, dtype=tokens.dtype, device=mask.device)
    groups = groups.scatter_add(0, step.group, tokens)
    share = groups[step.group].clamp(min=1) * (groups > 0).sum().clamp(min=1)
    return mask.to(_dtype(step)) / share[:, None]
