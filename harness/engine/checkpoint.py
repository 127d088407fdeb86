"""The whole state of a run between two iterations as bytes: weights, moments, and a few numbers.

There is no generator state: randomness is keyed (``streams``).
"""

import json
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from harness.engine import queued
from harness.engine.optimizer import Optimizer
from harness.engine.run import Run
from harness.engine.sharding import whole
from harness.engine.unfinished import pack, unpack
from harness.engine.weights import full_weights

__all__ = ["policy_weights", "restore_run", "save_run"]

_META = "state"


def save_run(run: Run, offsets: dict[str, int]) -> bytes:
    """Return the state of ``run`` with the lengths of its record streams; shards are gathered by all processes."""
    tensors = {f"policy.{name}": value for name, value in run.optimizer.tensors()}
    if run.critic_optimizer is not None:
        tensors |= {f"critic.{name}": value for name, value in run.critic_optimizer.tensors()}
    remembered, replay = run.replay.state()
    tensors |= {f"replay.{name}": value for name, value in remembered.items()}
    carried, unfinished = pack(run.unfinished)
    tensors |= {f"unfinished.{name}": value for name, value in carried.items()}
    waiting, queue = queued.pack(run.queue)
    tensors |= {f"queue.{name}": value for name, value in waiting.items()}
    state = {
        "unfinished": unfinished,
        "queue": queue,
        "replay": replay,
        "bingo": run.bingo.state(),
        "prompts": run.prompts.state(),
        "iteration": run.iteration,
        "cursor": run.cursor,
        "coef": run.coef,
        "policy_steps": _steps(run.optimizer),
        "critic_steps": _steps(run.critic_optimizer),
        "ledger": run.ledger.state(),
        "offsets": offsets,
    }
    return save(_own(tensors), metadata={_META: json.dumps(state)})


def restore_run(run: Run, payload: bytes) -> dict[str, int]:
    """Put ``run`` into the state of ``payload``; return the lengths that its record streams had."""
    tensors = load(payload)
    state = _metadata(payload)
    run.optimizer.restore(_below("policy.", tensors), *state["policy_steps"])
    if run.critic_optimizer is not None:
        run.critic_optimizer.restore(_below("critic.", tensors), *state["critic_steps"])
    run.unfinished = unpack(_below("unfinished.", tensors), state["unfinished"])
    run.queue = queued.unpack(_below("queue.", tensors), state["queue"], run.policy.head)
    run.bingo.restore(state["bingo"])
    run.prompts.restore(state["prompts"])
    run.replay.restore(_below("replay.", tensors), state["replay"])
    run.iteration, run.cursor, run.coef = state["iteration"], state["cursor"], state["coef"]
    run.ledger.restore(state["ledger"])
    return state["offsets"]


def policy_weights(run: Run) -> bytes:
    """Return the policy's weights as safetensors, under transformers' names; adapters are merged."""
    return save(_own(dict(full_weights(run.policy))))


def _steps(optimizer: Optimizer | None) -> tuple[int, int]:
    return (0, 0) if optimizer is None else (optimizer.steps, optimizer.moment_steps)


def _own(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return whole, contiguous tensors that share no memory: safetensors refuses any other."""
    return {name: whole(value).contiguous().to(torch.device("cpu")) for name, value in tensors.items()}


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _metadata(payload: bytes) -> dict[str, Any]:
    """Return the metadata of a safetensors file: an 8-byte little-endian length, then JSON."""
    length = int.from_bytes(payload[:8], "little")
    return json.loads(json.loads(payload[8 : 8 + length])["__metadata__"][_META])
