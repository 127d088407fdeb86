"""The vLLM sampler: the policy's weights are copied into a vLLM in this process whenever they have changed.

A response has a seed of its own, made of its noise: vLLM draws it with a random generator for each request. Every
call begins with an empty prefix cache, so on one machine equal calls give equal bytes. vLLM does not promise the same
tokens for other batches, versions or machines: the logits are rounded otherwise there.
"""

from collections.abc import Sequence

import torch

from harness.config.errors import UserError
from harness.config.sampler import SamplerConfig
from harness.engine.logprobs import score_responses
from harness.engine.policy import Policy, pad_right
from harness.engine.samplers.base import Charge, Samples, finished, require_room
from harness.engine.samplers.charging import decode_pieces, prefill_work
from harness.engine.samplers.vllm_engine import Generated, VllmEngine
from harness.engine.streams import Noise
from harness.engine.weights import checkpoint_weights, weights_digest

__all__ = ["VllmSampler"]

_TOLERANCE = {"float32": 0.01, "bfloat16": 0.5}
"""Nats between vLLM's and the policy's own log-probability: far above rounding, far below what wrong weights give."""


class VllmSampler:
    """Decodes with vLLM, which is started for the first responses."""

    def __init__(self, config: SamplerConfig) -> None:
        self._config = config
        self._engine: VllmEngine | None = None
        self._holds = b""  # digest of the weights that the engine holds

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
        """Sample responses (``Sampler.sample``); decoding is charged after it is done, in the pieces of the native one.

        Raises:
            UserError: also where vLLM cannot be started, cannot run the policy, or runs another one.
        """
        lengths = [len(prompt) for prompt in prompts]
        require_room(policy, max(lengths), limit)
        charge({"prefill": prefill_work(policy.shape, lengths, len(noise))})
        engine = self._ready(policy)
        _require_cache(engine, max(lengths), limit)
        repeated = [prompt for prompt in prompts for _ in range(len(noise) // len(prompts))]
        seeds = [one.request_seed() for one in noise]
        rows = engine.generate(
            repeated, seeds, limit=limit, temperature=temperature, stops=sorted(policy.tokenizer.stop_ids)
        )
        if self._config.sleep:
            engine.sleep()
            self._holds = b""
        for work in decode_pieces(policy.shape, list(map(len, repeated)), [len(row.ids) for row in rows]):
            charge({"decode": work})
        return _laid_out(policy, rows)

    def close(self) -> None:
        """End vLLM and give its memory back."""
        if self._engine is not None:
            self._engine.close()
        self._engine, self._holds = None, b""

    def _ready(self, policy: Policy) -> VllmEngine:
        """Return the engine with the weights of ``policy``."""
        digest = weights_digest(policy)
        if self._engine is None:
            self._engine = _started(policy, self._config)
        elif digest != self._holds:
            self._engine.load(checkpoint_weights(policy))
        self._holds = digest
        return self._engine


def _started(policy: Policy, config: SamplerConfig) -> VllmEngine:
    """Return a new engine with the weights of ``policy``, tried; UserError if it is no use."""
    engine = VllmEngine(policy, config)
    try:
        engine.load(checkpoint_weights(policy))
        _require_equal(engine, policy)
    except BaseException:
        engine.close()
        raise
    return engine


def _require_cache(engine: VllmEngine, prompt: int, limit: int) -> None:
    if prompt + limit > engine.max_tokens:
        raise UserError(
            f"a prompt of {prompt} tokens and {limit} of its response do not fit into vLLM's KV cache, which has room "
            f"for {engine.max_tokens} tokens of a sequence: raise sampler.kv_cache_gib or "
            "sampler.gpu_memory_utilization, or lower rollout.max_response_tokens"
        )


def _require_equal(engine: VllmEngine, policy: Policy) -> None:
    """Compare vLLM's log-probabilities with the policy's own on a few tokens: not every model can be reloaded.

    Raises:
        UserError: they differ.
    """
    prompts = [[3, 5, 4], [7], [6, 8, 9, 3, 5]]
    rows = engine.generate(prompts, [0, 1, 2], limit=4, temperature=0, stops=[])
    drawn = _laid_out(policy, rows)
    scored = score_responses(policy, prompts, drawn.ids, drawn.mask, temperature=1.0, chunk_tokens=1024)
    gap = float((drawn.logprobs - scored.logprobs)[drawn.mask].abs().max())
    kind = str(policy.model.dtype).removeprefix("torch.")
    if not gap <= _TOLERANCE[kind]:
        raise UserError(
            f"vLLM gives the tokens of a {type(policy.model).__name__} other log-probabilities than the policy itself "
            f"(by {gap:.2g} nats): it does not run this model with reloaded weights here; set sampler.name = 'native'"
        )


def _laid_out(policy: Policy, rows: Sequence[Generated]) -> Samples:
    """Return responses as tensors on the policy's device."""
    ids = pad_right([row.ids for row in rows], policy.tokenizer.pad_id, policy.device)
    lengths = torch.tensor([len(row.ids) for row in rows], device=policy.device)
    mask = torch.arange(ids.shape[1], device=policy.device) < lengths[:, None]
    logprobs = torch.zeros(ids.shape, device=policy.device)
    logprobs[mask] = torch.tensor([value for row in rows for value in row.logprobs], device=policy.device)
    return finished(policy, ids, mask, logprobs)
