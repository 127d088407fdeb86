"""Refuse a run whose parts contradict each other, before anything is computed. No torch until a plug-in is built."""

import importlib.util
from typing import TYPE_CHECKING, Any, get_args

from harness import plugins
from harness.config.errors import UserError
from harness.config.sampler import LEAST_VLLM_TEMPERATURE, vllm_version
from harness.config.schema import RunConfig
from harness.engine.embedded import PRESETS
from harness.engine.prompts import Prompts
from harness.scoring import examples_of
from tasks.base import Split

if TYPE_CHECKING:
    from objectives import Objective
    from objectives.trust_region import TrustRegion
    from tasks.base import Task

__all__ = ["check_run", "check_sampler", "dense_refusal", "exact_fields", "requirements"]


def check_run(config: RunConfig) -> dict[str, Any]:
    """Build a run's plug-ins and refuse a schedule that they cannot work with.

    Returns:
        What tables say of them: {"objective", "region", "delta", "delta_unit"}; delta is the region's bound
        or target, None where it has none; its unit is empty where it does not bound KL(pi_old || pi_theta).

    Raises:
        UserError: a plug-in cannot be built, or the objective wants another number of updates or a larger group.
    """
    chosen, region = plugins.objective(config.objective), plugins.trust_region(config.trust_region)
    task, name = plugins.task(config.task), plugins.label(config.objective)
    _check_schedule(config, chosen, name)
    _check_parts(config, chosen, region)
    _check_shaping(config, chosen, name)
    _check_prompts(config, task)
    check_sampler(config)
    if config.engine.routing_replay:
        _check_routing(config)
    if config.policy.lora.rank and importlib.util.find_spec("peft") is None:
        raise UserError("policy.lora needs peft: run python -m pip install 'evengrad[lora]', or set its rank to 0")
    delta = getattr(region, "delta", getattr(region, "target", None))
    return {
        "objective": name,
        "region": plugins.label(config.trust_region),
        "delta": delta,
        "delta_unit": "" if delta is None or not region.bounds_kl_old else region.unit,
    }


def _check_schedule(config: RunConfig, chosen: "Objective", name: str) -> None:
    """Refuse updates, resamples or groups that the objective cannot work with."""
    updates, wanted = config.update.minibatches * config.update.epochs, chosen.updates_per_rollout
    ratios_are_one = updates == 1 and not config.rollout.old_at_sampling
    if (wanted == "several" and ratios_are_one) or (wanted == "one" and updates > 1):
        raise UserError(
            f"objective {name!r} wants {wanted} updates a rollout, but update.minibatches x update.epochs = {updates}"
            + (
                ": every ratio is 1 in the first update; set one of them to 2 or more"
                if updates == 1
                else "; set both to 1"
            )
            + (", or rollout.anchor to 'behaviour'" if updates == 1 and config.rollout.lag else "")
        )
    from objectives import Objective

    if type(chosen).keep_groups is not Objective.keep_groups and not config.rollout.max_resamples:
        raise UserError(
            f"objective {name!r} replaces groups that it rejects: say how often with rollout.max_resamples >= 1 (every "
            "round is charged to the budget; what is still missing then is filled with rejected groups)"
        )
    if config.rollout.group_size < chosen.min_group_size:
        raise UserError(
            f"objective {name!r} needs rollout.group_size >= {chosen.min_group_size}, got {config.rollout.group_size}"
        )


def requirements(config: RunConfig) -> frozenset[str]:
    """Return the optional fields that a run's parts read, with what those are made from."""
    requires = plugins.objective(config.objective).requires | plugins.trust_region(config.trust_region).requires
    if config.shaping.name != "none" or requires & {"exact_kl_ref", "exact_kl_new_ref"}:
        requires |= {"ref_logprobs"}
    return requires


def exact_fields(requires: frozenset[str]) -> list[str]:
    """Return the divergences over the vocabulary among required fields, sorted; each takes a head's forward pass."""
    return sorted(name for name in requires if name.startswith("exact_kl_") or name == "projection_gap")


def check_sampler(config: RunConfig) -> None:
    """Refuse what vLLM cannot do: without itself, without a GPU, or near temperature 0, where it would not say so.

    Raises:
        UserError: as said.
    """
    sampler = config.sampler
    if sampler.name != "vllm":
        return
    vllm_version()
    for key in ("gpu_memory_utilization", "sleep"):
        if config.engine.device == "cpu" and getattr(sampler, key):
            raise UserError(
                f"sampler.{key} = {getattr(sampler, key)} is about a GPU's memory and engine.device = 'cpu' has none: "
                "leave it out (a CPU has sampler.kv_cache_gib)"
            )
    for table in ("rollout", "eval"):
        if 0 < (temperature := getattr(config, table).temperature) < LEAST_VLLM_TEMPERATURE:
            raise UserError(
                f"{table}.temperature = {temperature:g}: vLLM samples at {LEAST_VLLM_TEMPERATURE:g} and above; raise "
                "it, or take sampler.name = 'native'"
            )


def _check_parts(config: RunConfig, objective: "Objective", region: "TrustRegion") -> None:
    """Refuse parts of the run that an objective or a trust region cannot work with or without.

    Raises:
        UserError: a teacher or segments are missing, or replay contradicts the objective.
    """
    name, missing = plugins.label(config.objective), region.reads_extras - objective.gives
    if "teacher_logprobs" in requirements(config) and not config.teacher.name:
        raise UserError(f"objective {name!r} learns from a teacher: name one with teacher.name, teacher.weights")
    if missing:
        raise UserError(
            f"trust region {plugins.label(config.trust_region)!r} reads {', '.join(sorted(missing))} of the objective; "
            f"{name!r} gives none"
        )
    if config.rollout.window_tokens:
        _check_window(config, objective, name)
        if config.rollout.lag:
            raise UserError(
                f"rollout.lag = {config.rollout.lag} and rollout.window_tokens exclude each other: the next window of "
                "a response would be sampled before its first one is trained on; set one of them to 0"
            )
    if config.replay.strategy != "none" and objective.updates_per_rollout == "one":
        raise UserError(f"objective {name!r} is valid on-policy only: set replay.strategy to none")


def dense_refusal(policy: str) -> str:
    """Return why a policy without experts has no routes to replay."""
    return (
        f"engine.routing_replay = true is for mixtures of experts; policy {policy!r} is dense: set it to false, or "
        "policy.name to one with experts, such as 'tiny-moe'"
    )


def _check_routing(config: RunConfig) -> None:
    """Refuse a replay of routes that there are none of; a pretrained policy is looked at when it is loaded.

    Raises:
        UserError: the policy is a dense preset, or responses come from earlier policies.
    """
    preset = PRESETS.get(config.policy.name)
    if preset is not None and "num_experts" not in preset:
        raise UserError(dense_refusal(config.policy.name))
    if config.replay.strategy != "none" or config.rollout.window_tokens:
        part = "replay.strategy to none" if config.replay.strategy != "none" else "rollout.window_tokens to 0"
        raise UserError(
            f"engine.routing_replay = true replays the routes of the policy that made the rollout, and responses of "
            f"earlier iterations have none: set {part}, or engine.routing_replay to false"
        )


def _check_window(config: RunConfig, objective: "Objective", name: str) -> None:
    """Refuse what needs the end of a response where the window may cut it off."""
    if not objective.windows:
        raise UserError(
            f"objective {name!r} needs responses that have ended; rollout.window_tokens is for objectives that learn "
            "from unfinished ones, such as tppo and ppo"
        )
    if config.replay.strategy != "none" or config.shaping.name != "none":
        raise UserError("replay and Bingo's reward need responses that have ended: set rollout.window_tokens to 0")
    if config.shaping.length_penalty == "kimi":
        raise UserError(
            "shaping.length_penalty = 'kimi' compares the lengths of a group, whose responses end in different "
            "iterations with a window: set rollout.window_tokens to 0, or take 'per_token'"
        )
    if config.prompts.filters:
        raise UserError(
            "prompts.min_pass_rate and max_pass_rate need groups that end together: set rollout.window_tokens to 0"
        )


def _check_shaping(config: RunConfig, objective: "Objective", name: str) -> None:
    """Refuse rewards that an objective would compare with others of another kind, or punish twice.

    Raises:
        UserError: as said.
    """
    shaping = config.shaping
    if "greedy_rewards" in objective.requires and (shaping.name != "none" or shaping.length_penalty == "kimi"):
        part = "shaping.name" if shaping.name != "none" else "shaping.length_penalty = 'kimi'"
        raise UserError(f"objective {name!r} compares with greedy rewards, which {part} leaves as they are")
    if shaping.overlong_buffer and getattr(objective, "overlong_buffer", 0):
        raise UserError(
            f"objective {name!r} punishes long responses itself and shaping.overlong_buffer would do so again: set "
            "objective.overlong_buffer or shaping.overlong_buffer to 0"
        )


def _check_prompts(config: RunConfig, task: "Task") -> None:
    """Refuse data that cannot be had, and a choice of prompts that its labels do not allow, or that a clock would make.

    Raises:
        UserError: as said.
    """
    if config.prompts.order == "easy_to_hard" and config.budget.axis == "seconds":
        raise UserError(
            "prompts.order = 'easy_to_hard' goes by the share of the budget spent; with budget.axis = 'seconds' a "
            "clock would choose the prompts: take flops, tokens or updates"
        )
    for split in get_args(Split):
        examples_of(task, split)
    if config.prompts.reads_labels:
        Prompts(config.prompts, config.seed, examples_of(task, "train"))
