"""What a cell will cost, before it runs: closed form on the prompts it will see. No torch.

Prompts are taken to be the longest and responses as long as the limit: the number of iterations is a lower bound, the
cost of one an upper.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import plugins
from harness.config.errors import UserError
from harness.config.schema import PolicyConfig, RunConfig
from harness.engine.embedded import PRESETS
from harness.engine.flops import TRAIN_FACTOR, ModelShape
from harness.engine.tokenizer import CharTokenizer

__all__ = ["Estimate", "estimate_cell"]

_CHARACTERS_A_TOKEN = 3  # of a pretrained tokenizer, roughly


@dataclass(frozen=True)
class Estimate:
    """A cell's cost with responses as long as the limit.

    Attributes:
        flops: useful FLOPs it will spend at most; NaN where the budget is in seconds.
        iterations: rollouts, at least (on the axis of updates: exactly); NaN where the budget is in seconds.
        updates: optimizer steps, at least (on the axis of updates: exactly); NaN where the budget is in seconds.
        smallest_update_flops: useful FLOPs of the smallest rollout with one update.
    """

    flops: float
    iterations: float
    updates: float
    smallest_update_flops: float


def estimate_cell(config: RunConfig) -> Estimate:
    """Return the estimate of a cell.

    Raises:
        UserError: the budget is too small for one update even if every response were a single token.
    """
    shape = _policy_shape(config.policy)
    objective = plugins.objective(config.objective)
    region = plugins.trust_region(config.trust_region)
    requires = objective.requires | region.requires
    if config.shaping.name != "none":
        requires |= {"ref_logprobs"}
    shortest, longest = _prompt_tokens(config)
    rows, epochs = config.rollout.num_prompts * config.rollout.group_size, config.update.epochs
    smallest = _rollout_flops(config, shape, requires, shortest, 1, rounds=1)
    smallest += _epoch_flops(config, shape, requires, shortest, 1) // config.update.minibatches
    limit, rounds = config.rollout.max_response_tokens, 1 + config.rollout.max_resamples
    iteration = _rollout_flops(config, shape, requires, longest, limit, rounds=rounds)
    iteration += epochs * _epoch_flops(config, shape, requires, longest, limit)
    if region.measured == "after_rollout":
        probed = rows // config.update.minibatches
        iteration += shape.response_forward([longest] * probed, [limit] * probed)
    per_iteration = {
        "flops": iteration,
        "tokens": rounds * rows * limit,
        "updates": config.update.minibatches * epochs,
        "seconds": math.nan,
    }[config.budget.axis]
    needed = {"flops": smallest, "tokens": rows, "updates": 1, "seconds": 0}[config.budget.axis]
    if config.budget.amount < needed:
        raise UserError(
            f"budget.amount = {config.budget.amount:g} {config.budget.axis} is too small for one update, which takes "
            f"at least {needed:.3g} with {config.rollout.num_prompts} prompts x {config.rollout.group_size} responses"
        )
    iterations = config.budget.amount / per_iteration
    updates = iterations * config.update.minibatches * epochs
    return Estimate(iterations * iteration, iterations, updates, smallest)


def _policy_shape(config: PolicyConfig) -> ModelShape:
    if config.name in PRESETS:
        return ModelShape.from_config({**PRESETS[config.name], "vocab_size": CharTokenizer.vocab_size})
    try:
        return ModelShape.from_config(_pretrained_config(config.name))
    except (OSError, ValueError) as error:
        cause = str(error).strip().splitlines()[0]
        raise UserError(
            f"policy {config.name!r} is neither an embedded preset ({', '.join(PRESETS)}) nor the folder or hub "
            f"name of a model: {cause}"
        ) from None
    except KeyError as error:
        raise UserError(f"policy {config.name!r} is no Llama-like model: its config lacks {error}") from None


def _pretrained_config(name: str) -> Mapping[str, Any]:
    """Return the config.json of a folder, or of a model that transformers finds by its name."""
    file = Path(name) / "config.json"
    if file.is_file():
        return json.loads(file.read_text(encoding="utf-8"))
    from transformers import AutoConfig  # takes a second: only where a hub name asks for it

    return AutoConfig.from_pretrained(name).to_dict()


def _prompt_tokens(config: RunConfig) -> tuple[int, int]:
    """Return the tokens of the shortest and of the longest prompt; of a pretrained policy roughly."""
    task = plugins.task(config.task)
    sizes = [len(task.prompt(example)) for example in task.examples("train")]
    a_token = 1 if config.policy.name in PRESETS else _CHARACTERS_A_TOKEN
    return max(1, min(sizes) // a_token), math.ceil(max(sizes) / a_token)


def _rollout_flops(
    config: RunConfig, shape: ModelShape, requires: frozenset[str], prompt: int, response: int, rounds: int
) -> int:
    """Return the FLOPs of ``rounds`` of sampling responses of one length, and of the passes over the rollout."""
    rows = config.rollout.num_prompts * config.rollout.group_size
    sampling = shape.prefill([prompt] * config.rollout.num_prompts)
    sampling += sum(shape.decode(rows, rows * (prompt + t)) for t in range(1, response))
    forward = shape.response_forward([prompt] * rows, [response] * rows)
    total = rounds * sampling + (1 + ("ref_logprobs" in requires)) * forward
    prompts = config.rollout.num_prompts
    once = ("greedy_rewards" in requires) + (config.shaping.name != "none")  # responses a prompt beside the group's
    total += once * shape.prefill([prompt] * prompts)
    total += once * sum(shape.decode(prompts, prompts * (prompt + t)) for t in range(1, response))
    if config.shaping.name != "none":
        total += shape.response_forward([prompt] * prompts, [response] * prompts)
    if "teacher_logprobs" in requires:
        total += _policy_shape(config.teacher).response_forward([prompt] * rows, [response] * rows)
    if requires & {"values", "old_values"}:
        total += shape.values_forward([prompt] * rows, [response] * rows, bootstrap=True)
    return total


def _epoch_flops(config: RunConfig, shape: ModelShape, requires: frozenset[str], prompt: int, response: int) -> int:
    """Return the FLOPs of the updates of one pass over a rollout."""
    rows = config.rollout.num_prompts * config.rollout.group_size
    lengths = [prompt] * rows, [response] * rows
    total = (TRAIN_FACTOR + ("step_logprobs" in requires)) * shape.response_forward(*lengths)
    if requires & {"values", "old_values"}:
        total += TRAIN_FACTOR * shape.values_forward(*lengths, bootstrap=False)
    return total
