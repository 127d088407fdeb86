"""A run that has been completed: its final weights, evaluated anew."""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import torch

from harness import plugins
from harness.compatibility import check_sampler
from harness.config.errors import CorruptRecordError, UserError
from harness.config.loading import resolve_run
from harness.config.sampler import SamplerConfig
from harness.config.schema import EvalConfig, RunConfig
from harness.engine.evaluate import Evaluation, evaluate
from harness.engine.loading import load_policy
from harness.engine.policy import Policy, load_weights
from harness.engine.samplers import make_sampler
from tasks.base import Split

__all__ = ["evaluate_run", "problems_changed"]

Read = TypeVar("Read")


def evaluate_run(
    folder: Path,
    split: Split,
    *,
    num_prompts: int | None = None,
    samples: int | None = None,
    ks: Sequence[int] | None = None,
    temperature: float | None = None,
    sampler: str | None = None,
) -> tuple[Evaluation, RunConfig]:
    """Evaluate the final weights of a completed run.

    Args:
        folder: of the run.
        split: "validation" or "test".
        num_prompts: prompts; as many as the run's own evaluation of the split if None.
        samples: responses a prompt; the run's own if None.
        ks: k of pass@k and maj@k; if None the run's own, or with ``samples`` given 1 and that number.
        temperature: the run's own if None.
        sampler: "native" or "vllm"; the run's own if None.

    Returns:
        The evaluation, and the run with the settings that it was made with.

    Raises:
        UserError: the run has no final weights, or a setting cannot be met.
        CorruptRecordError: its configuration cannot be read.
    """
    config = _config_of(folder)
    weights = _weights_of(folder)
    config = config.model_copy(update={"eval": _settings(config.eval, samples, ks, temperature)})
    if sampler not in (None, config.sampler.name):
        config = config.model_copy(update={"sampler": SamplerConfig.model_validate({"name": sampler})})
    check_sampler(config)
    settings = config.eval
    torch.set_num_threads(config.engine.threads)
    policy = _trained(config, weights)
    with closing(make_sampler(config.sampler)) as drawing:
        outcome = evaluate(
            policy,
            drawing,
            plugins.task(config.task),
            split=split,
            num_prompts=num_prompts or (settings.num_prompts if split == "validation" else settings.test_prompts),
            samples=settings.samples,
            temperature=settings.temperature,
            seed=config.seed,
            limit=config.rollout.max_response_tokens,
            batch_rows=settings.batch_rows,
            ks=settings.pass_k,
        )
    return outcome, config


def _weights_of(folder: Path) -> Path:
    weights = folder / "weights.safetensors"
    if not weights.is_file():
        raise UserError(f"{folder} has no final weights (weights.safetensors): the run has not been completed")
    return weights


def _trained(config: RunConfig, weights: Path) -> Policy:
    """Return the policy that a run was made with, with its final weights."""
    start = config.policy.model_copy(update={"weights": str(weights)}) if config.policy.weights else config.policy
    policy = load_policy(start, config.task.name, config.engine.device)
    load_weights(policy, weights)
    return policy


def problems_changed(folder: Path, config: RunConfig) -> bool:
    """Return whether the task's problems or rules are other ones today than when the run was made.

    Raises:
        CorruptRecordError: config.json does not say what they were.
    """
    recorded = _read(folder / "config.json", lambda identity: identity["sources"]["problems"])
    return recorded != plugins.task(config.task).fingerprint()


def _config_of(folder: Path) -> RunConfig:
    return _read(folder / "run.json", resolve_run)


def _read(path: Path, take: Callable[[Any], Read]) -> Read:
    try:
        return take(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CorruptRecordError(f"{path} is not the configuration of a run: {error!r}") from None


def _settings(
    config: EvalConfig, samples: int | None, ks: Sequence[int] | None, temperature: float | None
) -> EvalConfig:
    """Return the run's settings of evaluation with what was asked laid over; UserError if they cannot be met."""
    tables = config.model_dump()
    if samples is not None:
        tables |= {"samples": samples, "pass_k": sorted({1, samples})}
    if ks is not None:
        tables["pass_k"] = sorted(set(ks))
    if max(tables["pass_k"]) > tables["samples"]:
        asked = max(tables["pass_k"])
        raise UserError(f"pass@{asked} asked of {tables['samples']} response(s) a prompt: give --samples {asked}")
    if temperature is not None:
        tables["temperature"] = temperature
    return EvalConfig.model_validate(tables)
