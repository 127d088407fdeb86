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
from harness.compatibility import exact_fields, requirements
from harness.config.errors import UserError
from harness.config.policies import PolicyConfig
from harness.config.schema import RunConfig
from harness.engine.embedded import PRESETS
from harness.engine.flops import ModelShape, PassRows
from harness.engine.ledger import MAX_SHRINKS
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
        smallest_update_flops: useful FLOPs of the smallest rollout with one update, and of those that wait behind it.
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
    region = plugins.trust_region(config.trust_region)
    requires = requirements(config)
    shortest, longest = _prompt_tokens(config)
    group, prompts = config.rollout.group_size, config.rollout.num_prompts
    rows, lag = prompts * group, config.rollout.lag
    epochs, minibatches = config.update.epochs, config.update.minibatches
    smallest = (1 + lag) * _sampling_flops(config, shape, requires, shortest, 1, rounds=1)
    smallest += _passes_flops(config, shape, requires, shortest, 1, replays=0)
    smallest += _epoch_flops(shape, requires, PassRows.of_groups(prompts, group, shortest, 1)) // minibatches
    limit, rounds, replays = config.rollout.max_response_tokens, 1 + config.rollout.max_resamples, _replays(config)
    sampling = _sampling_flops(config, shape, requires, longest, limit, rounds=rounds)
    iteration = sampling + _passes_flops(config, shape, requires, longest, limit, replays=replays)
    iteration += epochs * _epoch_flops(shape, requires, PassRows.of_groups(prompts, group, longest, limit, replays))
    probes = {"before_step": 0, "after_rollout": 1, "after_step": minibatches * epochs * (1 + MAX_SHRINKS)}
    probed = PassRows.of_groups(prompts // minibatches, group, longest, limit)
    probe = shape.response_forward(probed) + len(exact_fields(requires)) * shape.head(sum(probed.responses))
    iteration += probes[region.measured] * probe
    greedy, references = "greedy_rewards" in requires, config.shaping.name != "none"  # one a prompt, beside the group
    sampled = (rounds * rows + greedy * prompts) * limit
    per_iteration, waiting = {  # of an iteration, and of the rollouts that wait before the first one
        "flops": (iteration, lag * sampling),
        "tokens": (sampled + references * prompts * limit, lag * sampled),
        "updates": (minibatches * epochs, 0),
        "seconds": (math.nan, 0),
    }[config.budget.axis]
    least = (1 + lag) * (rows + greedy * prompts) + references * prompts
    needed = {"flops": smallest, "tokens": least, "updates": 1, "seconds": 0}[config.budget.axis]
    amount = config.budget.amount
    if amount < needed:
        raise UserError(
            f"budget.amount = {amount:g} {config.budget.axis} is too small for one update, which takes at least "
            f"{needed:.3g} with {prompts} prompts x {group} responses"
            + (f", {1 + lag} times for rollout.lag = {lag}" if lag else "")
        )
    iterations = max(0.0, amount - waiting) / per_iteration
    flops = amount if config.budget.axis == "flops" else iterations * iteration + lag * sampling
    return Estimate(flops, iterations, iterations * minibatches * epochs, smallest)


def _policy_shape(config: PolicyConfig) -> ModelShape:
    if config.name in PRESETS:
        return ModelShape.from_config({**PRESETS[config.name], "vocab_size": CharTokenizer.vocab_size}, config.lora)
    try:
        settings = _pretrained_config(config.name)
    except (OSError, ValueError) as error:
        cause = str(error).strip().splitlines()[0]
        raise UserError(
            f"policy {config.name!r} is neither an embedded preset ({', '.join(PRESETS)}) nor the folder or hub "
            f"name of a model: {cause}"
        ) from None
    try:
        return ModelShape.from_config(settings, config.lora)
    except KeyError as error:
        raise UserError(f"policy {config.name!r} is no Llama-like model: its config lacks {error}") from None


def _pretrained_config(name: str) -> Mapping[str, Any]:
    """Return the config.json of a folder, or of a model that transformers finds by its name."""
    file = Path(name) / "config.json"
    if file.is_file():
        return json.loads(file.read_text(encoding="utf-8"))
    from transformers import AutoConfig  # takes a second: only where a hub name or a GGUF file asks for it

    from harness.engine.pretrained import locate

    return AutoConfig.from_pretrained(**locate(name)).to_dict()


def _prompt_tokens(config: RunConfig) -> tuple[int, int]:
    """Return the tokens of the shortest and of the longest prompt; of a pretrained policy roughly."""
    task = plugins.task(config.task)
    sizes = [len(task.prompt(example)) for example in task.examples("train")]
    a_token = 1 if config.policy.name in PRESETS else _CHARACTERS_A_TOKEN
    return max(1, min(sizes) // a_token), math.ceil(max(sizes) / a_token)


def _replays(config: RunConfig) -> int:
    """Return how many responses a rollout replays at most."""
    replay = config.replay
    a_prompt = {"none": 0, "all": replay.max_cache}.get(replay.strategy, min(replay.num_replays, replay.max_cache))
    return config.rollout.num_prompts * a_prompt


def _sampling_flops(
    config: RunConfig, shape: ModelShape, requires: frozenset[str], prompt: int, response: int, *, rounds: int
) -> int:
    """Return the FLOPs of ``rounds`` of sampling responses of one length, and of what is done with them at once."""
    prompts, group = config.rollout.num_prompts, config.rollout.group_size
    total = rounds * _decoded(shape, prompts, prompts * group, prompt, response)
    if "greedy_rewards" in requires:
        total += _decoded(shape, prompts, prompts, prompt, response)
    if config.rollout.old_at_sampling:
        total += shape.response_forward(PassRows.of_groups(prompts, group, prompt, response))
    return total


def _decoded(shape: ModelShape, prompts: int, rows: int, prompt: int, response: int) -> int:
    decoded = sum(shape.decode(rows, rows * (prompt + t)) for t in range(1, response))
    return shape.prefill([prompt] * prompts) + decoded


def _passes_flops(
    config: RunConfig, shape: ModelShape, requires: frozenset[str], prompt: int, response: int, *, replays: int
) -> int:
    """Return the FLOPs of the passes over a rollout before its first update."""
    prompts, group = config.rollout.num_prompts, config.rollout.group_size
    whole = PassRows.of_groups(prompts, group, prompt, response, replays)
    total = ("ref_logprobs" in requires) * shape.start.response_forward(whole)
    if not config.rollout.old_at_sampling:
        total += shape.response_forward(PassRows.of_groups(prompts, group, prompt, response))
    if config.shaping.name != "none":
        single = PassRows.of_groups(prompts, 1, prompt, response)
        total += _decoded(shape.start, prompts, prompts, prompt, response) + shape.start.response_forward(single)
    if "teacher_logprobs" in requires:
        total += _policy_shape(config.teacher).response_forward(whole)
    if requires & {"values", "old_values"}:
        total += shape.values_forward(whole, bootstrap=True)
    return total


def _epoch_flops(shape: ModelShape, requires: frozenset[str], rows: PassRows) -> int:
    """Return the FLOPs of the updates of one pass over ``rows``."""
    prepass, anchors = "step_logprobs" in requires, len(exact_fields(requires)) * shape.head(sum(rows.responses))
    total = shape.response_forward(rows, backward=True) + prepass * shape.response_forward(rows) + anchors
    total += prepass * ("projection_gap" in requires) * anchors
    if requires & {"values", "old_values"}:
        total += shape.values_forward(rows, bootstrap=False, backward=True)
    return total
