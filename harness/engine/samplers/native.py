"""The native sampler: one prefill a prompt, shared by its samples; a batched decode that drops finished rows.

A token is drawn by inverse CDF from a uniform that belongs to its sample and position alone, so a response depends on
the weights, the prompt and the sample's noise, and on nothing else that happens in the batch but float rounding.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import Cache

from harness.engine.cache import cache_width, make_cache
from harness.engine.heads import wide_head
from harness.engine.ledger import Work
from harness.engine.policy import Policy
from harness.engine.samplers.base import Charge, Samples, finished, require_room
from harness.engine.samplers.charging import decode_work, prefill_work
from harness.engine.streams import Noise

__all__ = ["NativeSampler"]

# Rows are dropped once this share of the batch is finished: each drop copies the cache of the rest.
_DROP_SHARE = 0.125


class NativeSampler:
    """Decodes with the policy's own modules; holds nothing."""

    @torch.no_grad()
    def sample(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        noise: Sequence[Noise],
        *,
        limit: int,
        temperature: float,
        charge: Charge,
    ) -> Samples:
        """Sample responses (``Sampler.sample``); each piece of work is charged before it is done."""
        rows, num_samples = len(noise), len(noise) // len(prompts)
        draws = _uniforms(noise, limit, temperature).to(policy.device)
        pad_id = policy.tokenizer.pad_id
        stops = torch.tensor(sorted(policy.tokenizer.stop_ids), dtype=torch.int64, device=policy.device)
        ids = torch.full((rows, limit), pad_id, dtype=torch.int64, device=policy.device)
        mask = torch.zeros((rows, limit), dtype=torch.bool, device=policy.device)
        logprobs = torch.zeros((rows, limit), device=policy.device)

        lengths = [len(prompt) for prompt in prompts]
        width = max(lengths)
        require_room(policy, width, limit)
        charge({"prefill": prefill_work(policy.shape, lengths, rows, policy.shape.prefill([width] * len(lengths)))})
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

        return finished(policy, ids, mask, logprobs)

    def close(self) -> None:
        """Do nothing."""


def _uniforms(noise: Sequence[Noise], limit: int, temperature: float) -> Tensor:
    """Return a uniform [N, T] float64 for each token; greedy responses read none."""
    if temperature == 0:
        return torch.zeros(len(noise), limit, dtype=torch.float64)
    return torch.from_numpy(np.stack([one.uniforms(limit) for one in noise]))


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


def _decode_work(policy: Policy, pads: Tensor, going: Tensor, context: int, columns: int) -> Work:
    """Work of one decoding step at a padded context; finished rows and empty columns are executed only."""
    rows = int(going.sum())
    contexts = context * rows - int(pads[going].sum())
    return decode_work(policy.shape, rows, contexts, policy.shape.decode(len(going), columns * len(going)))
