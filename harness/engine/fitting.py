"""How many tokens a micro-batch may have, from what a pass over a group keeps for its backward pass.

It is counted, tensor by tensor, and not measured with a clock or a memory meter: equal runs find equal numbers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.config.schema import RunConfig
from harness.engine.packing import pack, packed_states
from harness.engine.policy import Policy
from tasks.base import Task

__all__ = ["fitting_tokens", "kept_bytes"]

_PROMPTS = 16


def fitting_tokens(policy: Policy, task: Task, config: RunConfig) -> int:
    """Return ``engine.micro_batch_tokens``, or fewer where ``engine.activations_gib`` says that fewer fit.

    A group stands for all: the first prompts' median length, responses as long as the limit. A response is never cut,
    so one that keeps more than the limit stands alone.

    Args:
        policy: whole, and before its layers are recomputed.
        task: where prompts come from.
        config: of the run.
    """
    engine, rollout = config.engine, config.rollout
    if not engine.activations_gib:
        return engine.micro_batch_tokens
    prompts = [policy.tokenizer.prompt_ids(task.prompt(example)) for example in task.examples("train")[:_PROMPTS]]
    prompt = sorted(prompts, key=len)[len(prompts) // 2]
    rows = min(rollout.group_size, max(1, engine.micro_batch_tokens // rollout.max_response_tokens))
    kept = kept_bytes(policy, [prompt] * rows, rollout.max_response_tokens)
    tokens = len(prompt) + rows * rollout.max_response_tokens
    if engine.recompute:  # each layer's input, and one layer's activations at a time
        size = next(policy.model.parameters()).element_size()
        layers = policy.shape.num_layers
        kept = kept // layers + layers * tokens * policy.shape.hidden_size * size
    return max(1, min(engine.micro_batch_tokens, int(engine.activations_gib * 2**30 * tokens / kept)))


def kept_bytes(policy: Policy, prompts: Sequence[Sequence[int]], length: int) -> int:
    """Return the bytes that a pass through the layers keeps, of responses of ``length`` tokens to ``prompts``.

    Weights, which are there anyway, do not count.
    """
    own = {parameter.untyped_storage().data_ptr() for parameter in policy.model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.full((len(prompts), length), policy.tokenizer.eos_id, device=policy.device)
    packed = pack(prompts, ids, torch.ones_like(ids, dtype=torch.bool))
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        states = packed_states(policy.body, packed)
    del states
    return sum(kept.values())
