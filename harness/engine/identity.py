"""What a run is a pure function of: configuration, sources of its parts, and versions that change numerics."""

import functools
import hashlib
import importlib.metadata
import platform
from pathlib import Path
from typing import Any

import harness
from harness import plugins
from harness.compatibility import requirements
from harness.config.policies import PolicyConfig
from harness.config.sampler import vllm_version
from harness.config.schema import RunConfig
from harness.engine.embedded import PRESETS, read_file, start_file

__all__ = ["identity"]

_NUMERIC_PACKAGES = ("torch", "transformers", "numpy", "scipy", "pydantic-monty")
_SUMMING = ("scoring.py", "reports/pass_at_k.py", "reports/values.py")


def identity(config: RunConfig) -> dict[str, Any]:
    """Return the identity of a run as plain JSON values; two runs with equal ones give equal bytes."""
    return {
        "config": _used(config),
        "sources": {
            "task": plugins.source_hash("task", config.task),
            "problems": plugins.task(config.task).fingerprint(),
            "objective": plugins.source_hash("objective", config.objective),
            "trust_region": plugins.source_hash("trust region", config.trust_region),
            "engine": _engine_hash(),
            "policy": _policy_hash(config.policy, config.task.name),
            "teacher": _policy_hash(config.teacher, config.task.name) if _learns(config) else "",
        },
        "versions": _versions(config),
        "hardware": platform.machine(),
    }


def _used(config: RunConfig) -> dict[str, Any]:
    """Return the run's tables as they stand on every machine, with those that it does not use left blank."""
    tables = plugins.portable(config)
    for name, setting in (("replay", "strategy"), ("correction", "level")):
        if tables[name][setting] == "none":
            tables[name] = {setting: "none"}
    tables["shaping"], tables["prompts"] = config.shaping.used(), config.prompts.used()
    tables["sampler"] = config.sampler.used()
    if not tables["prompts"]:
        del tables["prompts"]
    for name in ("policy", "teacher"):
        if not tables[name]["lora"]["rank"]:
            del tables[name]["lora"]
    if not config.rollout.lag:
        del tables["rollout"]["anchor"]
    del tables["rollout"]["max_infra_frac"]  # ends a run, and changes no byte of one that it does not end
    if not config.engine.routing_replay:
        del tables["engine"]["routing_replay"]  # of a dense policy, which has no routes, it says nothing
    if not _learns(config):
        tables["teacher"] = {}
    return tables


def _versions(config: RunConfig) -> dict[str, str]:
    sampler = {"vllm": vllm_version()} if config.sampler.name == "vllm" else {}
    adapters = ["peft"] if config.policy.lora.rank else []
    return {name: _version(name) for name in (*_NUMERIC_PACKAGES, *adapters)} | sampler


@functools.cache
def _version(name: str) -> str:
    """Return the version of a package; reading it takes milliseconds, and a plan asks for each cell."""
    return importlib.metadata.version(name)


def _learns(config: RunConfig) -> bool:
    return "teacher_logprobs" in requirements(config)


def _engine_hash() -> str:
    """Hash of the engine, and of what sums up its evaluations."""
    folder = Path(harness.__file__).parent
    digest = hashlib.sha256()
    for file in [*sorted((folder / "engine").rglob("*.py")), *(folder / name for name in _SUMMING)]:
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _policy_hash(config: PolicyConfig, task: str) -> str:
    """Hash of an embedded policy's weights; of a pretrained one, the name stands for it."""
    if config.name not in PRESETS:
        return config.name
    return hashlib.sha256(read_file(start_file(config, task))).hexdigest()
