"""Log-probabilities and entropy of responses, in chunks, so that logits of a whole minibatch never exist."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from harness.engine.policy import Policy, pad_right

__all__ = ["Scored", "model_input", "response_positions", "score_responses", "wide"]


@dataclass
class Scored:
    """A policy's view of responses.

    Attributes:
        logprobs: [B, T] float32 or wider, at the sampling temperature, nats; 0 outside the mask.
        entropy: [B, T] float32 or wider, nats; 0 outside the mask.
    """

    logprobs: Tensor
    entropy: Tensor


def wide(x: Tensor) -> Tensor:
    """Return ``x`` in float32, or as it is if it is float64: half precision rounds a ratio of 1 + 4e-4 to 1."""
    return x if x.dtype == torch.float64 else x.float()


def response_positions(prompt_lengths: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and columns of the input positions that predict the masked tokens of ``mask`` [B, T]."""
    rows, tokens = mask.nonzero(as_tuple=True)
    return rows, prompt_lengths[rows] - 1 + tokens


def model_input(prompts: Sequence[Sequence[int]], ids: Tensor, mask: Tensor, pad_id: int, *, drop_last: bool) -> Tensor:
    """Return prompts and responses as one right-padded input [B, W], each response without its last token if asked."""
    lengths = mask.sum(1).tolist()
    keep = [max(n - int(drop_last), 0) for n in lengths]
    rows = [[*prompt, *row[:n]] for prompt, row, n in zip(prompts, ids.tolist(), keep, strict=True)]
    return pad_right(rows, pad_id, ids.device)


def score_responses(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    ids: Tensor,
    mask: Tensor,
    *,
    temperature: float,
    chunk_tokens: int,
    entropy_gradient: bool = False,
) -> Scored:
    """Return log-probabilities and entropy of ``ids`` under ``policy``; gradients flow where autograd is on.

    Args:
        policy: the model to ask.
        prompts: token ids of each row's prompt.
        ids: [B, T] int64 response tokens, contiguous from column 0.
        mask: [B, T] bool.
        temperature: divides the logits.
        chunk_tokens: response tokens whose logits exist at one time; with more, the backward pass recomputes them.
        entropy_gradient: let gradients flow through the entropy too.
    """
    hidden = policy.hidden(model_input(prompts, ids, mask, policy.tokenizer.pad_id, drop_last=True))
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=ids.device)
    rows, columns = response_positions(lengths, mask)
    states, tokens = hidden[rows, columns], ids[mask]
    chunks = [
        _score_chunk(
            policy.head, states[i : i + chunk_tokens], tokens[i : i + chunk_tokens], temperature, entropy_gradient
        )
        if len(tokens) <= chunk_tokens or not torch.is_grad_enabled()
        else checkpoint(
            _score_chunk,
            policy.head,
            states[i : i + chunk_tokens],
            tokens[i : i + chunk_tokens],
            temperature,
            entropy_gradient,
            use_reentrant=False,
        )
        for i in range(0, len(tokens), chunk_tokens)
    ]
    if not chunks:
        zeros = wide(hidden.new_zeros(mask.shape))
        return Scored(zeros, zeros)
    flat_logprobs, flat_entropy = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    zeros = flat_logprobs.new_zeros(mask.shape)
    return Scored(zeros.masked_scatter(mask, flat_logprobs), zeros.masked_scatter(mask, flat_entropy))


def _score_chunk(
    head: nn.Module, states: Tensor, tokens: Tensor, temperature: float, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies [K] of ``tokens`` [K] from hidden ``states`` [K, D]."""
    logprobs = torch.log_softmax(wide(head(states)) / temperature, dim=-1)  # [K, V]
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        source = logprobs if entropy_gradient else logprobs.detach()
        entropy = -(source.exp() * source).sum(-1)
    return logprobs.gather(1, tokens[:, None])[:, 0], entropy
