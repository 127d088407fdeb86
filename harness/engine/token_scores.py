"""Log-probabilities of tokens and entropies from hidden states, with one matrix of logits at a time.

Autograd by itself keeps or makes four such matrices [K, V] in a pass; on a vocabulary of 50,000 they are most of an
update's memory. Here what is done logit by logit runs over a few rows at a time, which stay in a core's cache, and the
gradient of the head's weights is added up in place.
"""

from typing import Any

import torch
from torch import Tensor, nn

from harness.engine.heads import wide

__all__ = ["token_scores"]

_SLICE_BYTES = 1 << 20


def token_scores(
    head: nn.Linear, states: Tensor, tokens: Tensor, *, temperature: float, chunk: int, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies [K] of ``tokens``, float32 or wider, nats.

    Args:
        head: from states to logits; its product is made in float32 or wider.
        states: [K, D], those that stand before the tokens; K may be 0.
        tokens: [K] int64.
        temperature: divides the logits.
        chunk: rows of logits that exist at one time; of more, the backward pass makes them again.
        entropy_gradient: whether the entropies have a gradient.
    """
    weight, bias = wide(head.weight), None if head.bias is None else wide(head.bias)
    logprobs, entropy = _TokenScores.apply(wide(states), weight, bias, tokens, temperature, chunk)  # pyright: ignore
    return logprobs, entropy if entropy_gradient else entropy.detach()


class _TokenScores(torch.autograd.Function):
    """The function and its gradient; a matrix of logits that is kept is used up by the first backward pass."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, temperature: float, chunk: int
    ) -> tuple[Tensor, Tensor]:
        logprobs, entropy = states.new_empty(len(tokens)), states.new_empty(len(tokens))
        scores = None
        for begin in range(0, len(tokens), chunk):
            window = slice(begin, begin + chunk)
            scores = _log_softmax(states[window], weight, bias, temperature)
            logprobs[window] = scores.gather(1, tokens[window, None])[:, 0]
            for rows in _slices(scores):
                part = scores[rows]
                entropy[window][rows] = torch.special.entr(part.exp()).sum(-1)
        ctx.save_for_backward(states, weight, bias, tokens, entropy)
        ctx.temperature, ctx.chunk = temperature, chunk
        ctx.kept = scores if len(tokens) <= chunk and any(ctx.needs_input_grad) else None
        return logprobs, entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_logprob: Tensor, by_entropy: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        states, weight, bias, tokens, entropy = ctx.saved_tensors
        wants_states, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        of_states = torch.empty_like(states) if wants_states else None
        of_weight = torch.zeros_like(weight) if wants_weight else None
        of_bias = torch.zeros_like(bias) if wants_bias and bias is not None else None
        kept, ctx.kept = ctx.kept, None
        for begin in range(0, len(tokens), ctx.chunk):
            window = slice(begin, begin + ctx.chunk)
            scores = _log_softmax(states[window], weight, bias, ctx.temperature) if kept is None else kept
            _to_gradient(scores, tokens[window], entropy[window], by_logprob[window], by_entropy[window])
            scores /= ctx.temperature
            if of_states is not None:
                torch.mm(scores, weight, out=of_states[window])
            if of_weight is not None:
                torch.addmm(of_weight, scores.T, states[window], out=of_weight)  # addmm_ escapes the FLOP counter
            if of_bias is not None:
                of_bias += scores.sum(0)
        return of_states, of_weight, of_bias, None, None, None


def _slices(matrix: Tensor) -> list[slice]:
    """Return slices of a few rows of ``matrix`` [K, V]."""
    size = max(1, _SLICE_BYTES // (matrix.element_size() * matrix.shape[1]))
    return [slice(begin, begin + size) for begin in range(0, len(matrix), size)]


def _log_softmax(states: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    """Return the log-probabilities [K, V] of all tokens."""
    scores = nn.functional.linear(states, weight, bias)
    for rows in _slices(scores):
        scores[rows] = torch.log_softmax(scores[rows] / temperature, -1)
    return scores


def _to_gradient(scores: Tensor, tokens: Tensor, entropy: Tensor, by_logprob: Tensor, by_entropy: Tensor) -> None:
    """Turn log-probabilities [K, V] into the gradient with respect to the logits over the temperature, in place.

    With p = softmax(z), d log p_a / dz = e_a - p, and of the entropy H: dH / dz = -p (log p + H).
    """
    with_entropy = bool(by_entropy.any())
    for rows in _slices(scores):
        part, shares = scores[rows], scores[rows].exp()
        gradient = shares * -by_logprob[rows, None]
        if with_entropy:
            gradient -= by_entropy[rows, None] * torch.where(shares > 0, shares * (part + entropy[rows, None]), 0.0)
        scores[rows] = gradient.scatter_add_(1, tokens[rows, None], by_logprob[rows, None])
