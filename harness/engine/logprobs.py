"""Log-probabilities and entropy of responses, in chunks, so that logits of a whole minibatch never exist."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from harness.engine.anchors import Anchored, exact_kl
from harness.engine.heads import Head, wide, wide_head
from harness.engine.packing import pack, packed_states
from harness.engine.policy import Policy
from harness.engine.sharding import gathered
from harness.engine.token_scores import token_scores

__all__ = ["Scored", "score_responses"]


@dataclass
class Scored:
    """A policy's view of responses.

    Attributes:
        logprobs: [B, T] float32 or wider, at the sampling temperature, nats; 0 outside the mask. Projected where
            ``exact`` holds a projection.
        entropy: [B, T] float32 or wider, nats; 0 outside the mask.
        exact: [B, T] divergences over the vocabulary that were asked for, by name, nats; 0 outside the mask.
        states: [B, T, D] last hidden states without a gradient, if they were asked for.
    """

    logprobs: Tensor
    entropy: Tensor
    exact: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    states: Tensor | None = None


def score_responses(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    ids: Tensor,
    mask: Tensor,
    *,
    temperature: float,
    chunk_tokens: int,
    entropy_gradient: bool = False,
    exact: Mapping[str, Anchored] = MappingProxyType({}),
    keep_states: bool = False,
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
        exact: divergences over the vocabulary to compute as well, by name.
        keep_states: return the hidden states too.
    """
    packed, tokens = pack(prompts, ids, mask), ids[mask]
    kept = [part.states[mask] for part in exact.values()]

    def score() -> tuple[Tensor, ...]:
        states, head = packed_states(policy.body, packed), policy.head
        if not exact and isinstance(head, nn.Linear):
            options = {"temperature": temperature, "chunk": chunk_tokens, "entropy_gradient": entropy_gradient}
            return states, *token_scores(head, states, tokens, **options)
        anchors = [*exact.values()]
        options = (temperature, chunk_tokens, entropy_gradient, anchors, kept)
        return states, *_with_distributions(wide_head(head), states, tokens, *options)

    states, *flat = gathered(policy.model, score)
    zeros = wide(states.new_zeros(mask.shape))
    laid_out = [zeros.masked_scatter(mask, values) for values in flat]
    return Scored(
        logprobs=laid_out[0],
        entropy=laid_out[1],
        exact=dict(zip(exact, laid_out[2:], strict=True)),
        states=_laid_out(states.detach(), mask) if keep_states else None,
    )


def _with_distributions(
    head: Head,
    states: Tensor,
    tokens: Tensor,
    temperature: float,
    chunk_tokens: int,
    entropy_gradient: bool,
    anchors: Sequence[Anchored],
    kept: Sequence[Tensor],
) -> list[Tensor]:
    """Return log-probabilities, entropies and the divergences to ``anchors``, whose states are ``kept``, [K] each."""
    recompute = len(tokens) > chunk_tokens and torch.is_grad_enabled()
    chunks: list[tuple[Tensor, ...]] = []
    for begin in range(0, max(1, len(tokens)), chunk_tokens):
        window = slice(begin, begin + chunk_tokens)
        parts = [part.of(flat[window]) for part, flat in zip(anchors, kept, strict=True)]
        job = (head, states[window], tokens[window], temperature, entropy_gradient, parts)
        chunks.append(checkpoint(_score_chunk, *job, use_reentrant=False) if recompute else _score_chunk(*job))
    return [torch.cat(parts) for parts in zip(*chunks, strict=True)]


def _laid_out(states: Tensor, mask: Tensor) -> Tensor:
    """Return ``states`` [K, D] of the masked tokens as [B, T, D], 0 elsewhere."""
    return states.new_zeros(*mask.shape, states.shape[-1]).masked_scatter(mask[:, :, None], states)


def _score_chunk(
    head: Head,
    states: Tensor,
    tokens: Tensor,
    temperature: float,
    entropy_gradient: bool,
    anchors: Sequence[Anchored],
) -> tuple[Tensor, ...]:
    """Return log-probabilities and entropies [K] of ``tokens`` [K] from ``states`` [K, D], then divergences [K]."""
    logprobs = torch.log_softmax(head(states) / temperature, dim=-1)  # [K, V]
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        source = logprobs if entropy_gradient else logprobs.detach()
        entropy = -(source.exp() * source).sum(-1)
    divergences: list[Tensor] = []
    seen = logprobs
    for anchor in anchors:
        known = (anchor.states != 0).any(-1)  # a replayed row has no states of the old policy
        with torch.no_grad():
            other = torch.log_softmax(wide_head(anchor.head)(anchor.states) / temperature, dim=-1)
        if anchor.project is not None:
            projected = torch.where(known[:, None], anchor.project(logprobs, other), logprobs)
            seen, other = projected if anchor.replaces else seen, projected.detach()
        divergences.append(torch.where(known, exact_kl(logprobs, other, reverse=anchor.reverse), 0.0))
    return (seen.gather(1, tokens[:, None])[:, 0], entropy, *divergences)
