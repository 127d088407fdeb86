"""What a cell will cost, before it runs: closed form on the prompts it will see. No torch.

Responses are taken to be as long as the limit, so the number of iterations is a lower bound and their cost an upper one.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import plugins
from harness.config.errors import UserError
from harness.config.schema import RunConfig
from harness.engine.embedded import PRESETS
from harness.engine.flops import TRAIN_FACTOR, ModelShape
from harness.engine.tokenizer import CharTokenizer

__all__ = ["Estimate", "estimate_cell"]

_PROMPTS_LOOKED_AT = 64
_CHARACTERS_A_TOKEN = 3  # of a pretrained tokenizer, roughly


@dataclass(frozen=True)
class Estimate:
    """A cell's cost, at most.

    Attributes:
        flops: useful FLOPs it will spend; NaN where the budget is in seconds.
        iterations: rollouts; NaN where the budget is in seconds.
        updates: optimizer steps; NaN where the budget is in seconds.
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
    shape = _shape(config)
    objective = plugins.objective(config.objective)
    region = plugins.trust_region(config.trust_region)
    requires = objective.requires | region.requires
    prompt = _mean_prompt_tokens(config)
    probed = region.measured == "after_rollout"
    longest = _iteration_flops(config, shape, requires, prompt, config.rollout.max_response_tokens, probed)
    smallest = _first_update_flops(config, shape, requires, prompt)
    per_iteration = {
        "flops": longest,
        "tokens": config.rollout.num_prompts * config.rollout.group_size * config.rollout.max_response_tokens,
        "updates": config.update.minibatches * config.update.epochs,
        "seconds": math.nan,
    }[config.budget.axis]
    needed = {"flops": smallest, "tokens": config.rollout.num_prompts * config.rollout.group_size, "updates": 1,
              "seconds": 0}[config.budget.axis]  # fmt: skip
    if config.budget.amount < needed:
        raise UserError(
            f"budget.amount = {config.budget.amount:g} {config.budget.axis} is too small for one update, which takes at "
            f"least {needed:.3g} with {config.rollout.num_prompts} prompts x {config.rollout.group_size} responses"
        )
    iterations = config.budget.amount / per_iteration
    updates = iterations * config.update.minibatches * config.update.epochs
    return Estimate(iterations * longest, iterations, updates, smallest)


def _shape(config: RunConfig) -> ModelShape:
    if config.policy.name in PRESETS:
        return ModelShape.from_config({**PRESETS[config.policy.name], "vocab_size": CharTokenizer.vocab_size})
    file = Path(config.policy.name) / "config.json"
    try:
        return ModelShape.from_config(json.loads(file.read_text(encoding="utf-8")))
    except OSError:
        raise UserError(
            f"policy {config.policy.name!r} is neither an embedded preset ({', '.join(PRESETS)}) nor a folder with a "
            "config.json: its cost cannot be estimated"
        ) from None
    except (KeyError, ValueError) as error:
        raise UserError(f"{file} is not the configuration of a Llama-like model: {error}") from None


def _mean_prompt_tokens(config: RunConfig) -> int:
    task = plugins.task(config.task)
    texts = [task.prompt(example) for example in task.examples("train")[:_PROMPTS_LOOKED_AT]]
    characters = sum(map(len, texts)) / len(texts)
    return max(1, round(characters if config.policy.name in PRESETS else characters / _CHARACTERS_A_TOKEN))


def _iteration_flops(
    config: RunConfig, shape: ModelShape, requires: frozenset[str], prompt: int, response: int, probed: bool
) -> int:
    """Return the FLOPs of one rollout of responses of one length and all its updates."""
    rows = config.rollout.num_prompts * config.rollout.group_size
    forward = shape.response_forward([prompt] * rows, [response] * rows)
    sampling = shape.prefill([prompt] * config.rollout.num_prompts)
    sampling += sum(shape.decode(rows, rows * (prompt + t)) for t in range(1, response))
    passes = 1 + ("ref_logprobs" in requires) + TRAIN_FACTOR * config.update.epochs
    total = sampling + passes * forward + probed * forward // config.update.minibatches
    if requires & {"values", "old_values"}:
        critic = shape.values_forward([prompt] * rows, [response] * rows, bootstrap=True)
        total += critic * (1 + TRAIN_FACTOR * config.update.epochs)
    return total


def _first_update_flops(config: RunConfig, shape: ModelShape, requires: frozenset[str], prompt: int) -> int:
    """Return the FLOPs up to the first update if every response is one token."""
    single: dict[str, Any] = {"epochs": 1}
    one_epoch = config.model_copy(update={"update": config.update.model_copy(update=single)})
    whole = _iteration_flops(one_epoch, shape, requires, prompt, 1, probed=False)
    rows = config.rollout.num_prompts * config.rollout.group_size
    forward = shape.response_forward([prompt] * rows, [1] * rows)
    rest = TRAIN_FACTOR * forward * (config.update.minibatches - 1) // config.update.minibatches
    return whole - rest * (2 if requires & {"values", "old_values"} else 1)
