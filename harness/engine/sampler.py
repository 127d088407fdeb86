"""The native sampler: one prefill a prompt, shared by its samples; a batched decode that drops finished rows.

A token is drawn by inverse CDF from a uniform that belongs to its sample and position alone, so a response depends on
the weights, the prompt and the sample's key, and on nothing else that happens in the batch but float rounding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import Cache

from harness.config.errors import UserError
from harness.engine.cache import cache_width, make_cache
from harness.engine.heads import wide_head
from harness.engine.ledger import Work
from harness.engine.policy import Policy
from objectives import Finish

__all__ = ["Samples", "sample"]

# Rows are dropped once this share of the batch is finished: each drop copies the cache of the rest.
_DROP_SHARE = 0.125


@dataclass
class Samples:
    """Responses of one sampling call, the samples of a prompt next to each other.

    Attributes:
        ids: [N, T] int64, ``pad_id`` after the end; the end token is included.
        mask: [N, T] bool.
        finish: [N] int8, ``Finish.EOS`` or ``Finish.LENGTH``.
        logprobs: [N, T] float32, log-probability of each token when it was drawn, at the sampling temperature, nats; 0
            outside ``mask``. At temperature 0 that of the untempered distribution.
    """

    ids: Tensor
    mask: Tensor
    finish: Tensor
    logprobs: Tensor


@torch.no_grad()
def sample(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    uniforms: np.ndarray,
    *,
    temperature: float,
    charge: Callable[[Mapping[str, Work]], None],
) -> Samples:
    """Sample responses.

    Args:
        policy: the model.
        prompts: token ids, one list a prompt, none empty.
        uniforms: [prompts, samples, T] in [0, 1); T is the length limit.
        temperature: divides the logits; 0 takes the most probable token.
        charge: called with {"prefill" or "decode": work} before each piece of work; what it raises ends the sampling.

    Returns:
        ``prompts * samples`` responses.
    """
    num_samples, limit = uniforms.shape[1:]
    draws = torch.from_numpy(uniforms.reshape(-1, limit)).to(policy.device)
    rows = len(prompts) * num_samples
    pad_id = policy.tokenizer.pad_id
    stops = torch.tensor(sorted(policy.tokenizer.stop_ids), dtype=torch.int64, device=policy.device)
    ids = torch.full((rows, limit), pad_id, dtype=torch.int64, device=policy.device)
    mask = torch.zeros((rows, limit), dtype=torch.bool, device=policy.device)
    logprobs = torch.zeros((rows, limit), device=policy.device)

    lengths = [len(prompt) for prompt in prompts]
    width = max(lengths)
    _require_room(policy, width, limit)
    charge({"prefill": _prefill_work(policy, lengths, rows)})
    cache, states, pads = _prefill(policy, prompts, width)
    head = wide_head(policy.head)
    logits = head(states).repeat_interleave(num_samples, 0)
    cache.batch_repeat_interleave(num_samples)
    pads = pads.repeat_interleave(num_samples, 0)

    alive = torch.arange(rows, device=policy.device)  # row of ``ids`` that each row of the cache writes
    going = torch.ones(rows, dtype=torch.bool, device=policy.device)  # rows of the cache that are not finished
    for position in range(limit):
        drawn, chances = _draw(logits, draws[alive, position], temperature)
        tokens = torch.where(going, drawn, pad_id)
        logprobs[alive, position] = torch.where(going, chances, 0.0)
        ids[alive, position] = tokens
        mask[alive, position] = going
        going = going & ~torch.isin(tokens, stops)
        if position == limit - 1 or not going.any():
            break
        if going.sum() <= len(going) * (1 - _DROP_SHARE):
            kept = going.nonzero()[:, 0]
            cache.batch_select_indices(kept)
            alive, tokens, pads, going = alive[kept], tokens[kept], pads[kept], going[kept]
        columns = cache_width(width, position + 1)
        charge({"decode": _decode_work(policy, pads, going, width + position + 1, columns)})
        logits = head(_decode(policy, cache, tokens, pads, width + position, columns))

    return _finished(ids, mask, logprobs, stops)


def _require_room(policy: Policy, prompt: int, limit: int) -> None:
    if policy.context is not None and prompt + limit > policy.context:
        raise UserError(
            f"a prompt of {prompt} tokens and {limit} of its response do not fit into the policy's context of "
            f"{policy.context} tokens: lower rollout.max_response_tokens, or leave such prompts out"
        )


def _finished(ids: Tensor, mask: Tensor, logprobs: Tensor, stops: Tensor) -> Samples:
    """Return the samples, cut to the columns that one of them uses."""
    ended = (torch.isin(ids, stops) & mask).any(1)
    finish = torch.where(ended, int(Finish.EOS), int(Finish.LENGTH)).to(torch.int8)
    used = int(mask.sum(1).max())
    return Samples(ids[:, :used], mask[:, :used], finish, logprobs[:, :used])


def _prefill(policy: Policy, prompts: Sequence[Sequence[int]], width: int) -> tuple[Cache, Tensor, Tensor]:
    """Return the cache of left-padded prompts, the states [P, D] after them, and each row's padding [P]."""
    pad_id = policy.tokenizer.pad_id
    padded = [[*[pad_id] * (width - len(prompt)), *prompt] for prompt in prompts]
    input_ids = torch.tensor(padded, device=policy.device)
    pads = torch.tensor([width - len(prompt) for prompt in prompts], device=policy.device)
    columns = torch.arange(width, device=policy.device)
    causal = (columns[None, :] <= columns[:, None]) & (columns >= pads[:, None, None])  # [P, W, W]
    # A padding column sees itself: a row of attention without any entry would be NaN and spread through the values.
    visible = causal | torch.eye(width, dtype=torch.bool, device=policy.device)
    cache = make_cache()
    states = policy.body(
        input_ids=input_ids,
        attention_mask=visible[:, None],
        position_ids=(columns - pads[:, None]).clamp(min=0),
        cache=cache,
        use_cache=True,
    ).last_hidden_state
    return cache, states[:, -1], pads


def _decode(policy: Policy, cache: Cache, tokens: Tensor, pads: Tensor, column: int, columns: int) -> Tensor:
    """Return the states [B, D] after one more token, in ``column`` of the ``columns`` of the padded sequences."""
    places = torch.arange(columns, device=policy.device)
    visible = (places >= pads[:, None]) & (places <= column)  # [B, W]
    return policy.body(
        input_ids=tokens[:, None],
        attention_mask=visible[:, None, None],
        position_ids=(column - pads)[:, None],
        cache=cache,
        use_cache=True,
    ).last_hidden_state[:, 0]


def _draw(logits: Tensor, uniforms: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return one token a row of ``logits`` [B, V] and its log-probability [B].

    The token is the first whose cumulative probability exceeds its uniform.
    """
    probabilities = torch.softmax(logits.float() / (temperature or 1), dim=-1)
    if temperature == 0:
        tokens = logits.argmax(-1)
    else:
        cumulative = probabilities.double().cumsum(-1)
        targets = uniforms[:, None] * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, targets, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    return tokens, probabilities.gather(1, tokens[:, None])[:, 0].log()


def _prefill_work(policy: Policy, lengths: Sequence[int], rows: int) -> Work:
    return Work(
        flops=policy.shape.prefill(lengths),
        executed_flops=policy.shape.prefill([max(lengths)] * len(lengths)),
        generated_tokens=rows,
    )


def _decode_work(policy: Policy, pads: Tensor, going: Tensor, context: int, columns: int) -> Work:
    """Work of one decoding step at a padded context; finished rows and empty columns are executed only."""
    rows = int(going.sum())
    contexts = context * rows - int(pads[going].sum())
    return Work(
        flops=policy.shape.decode(rows, contexts),
        executed_flops=policy.shape.decode(len(going), columns * len(going)),
        generated_tokens=rows,
    )
