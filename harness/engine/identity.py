"""What a run is a pure function of: configuration, sources of its parts, and versions that change numerics."""

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import harness
from harness import plugins
from harness.config.schema import RunConfig
from harness.engine.embedded import PRESETS, weights_file

__all__ = ["identity"]

_NUMERIC_PACKAGES = ("torch", "transformers", "numpy", "pydantic-monty")


def identity(config: RunConfig) -> dict[str, Any]:
    """Return the identity of a run as plain JSON values; two runs with equal ones give equal bytes."""
    return {
        "config": plugins.portable(config),
        "sources": {
            "task": plugins.source_hash("task", config.task),
            "objective": plugins.source_hash("objective", config.objective),
            "trust_region": plugins.source_hash("trust region", config.trust_region),
            "engine": _engine_hash(),
            "policy": _policy_hash(config),
        },
        "versions": {name: version(name) for name in _NUMERIC_PACKAGES},
        "hardware": platform.machine(),
    }


def _engine_hash() -> str:
    folder = Path(harness.__file__).parent / "engine"
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _policy_hash(config: RunConfig) -> str:
    """Hash of an embedded policy's weights; of a pretrained one, the name stands for it."""
    if config.policy.name not in PRESETS:
        return config.policy.name
    return hashlib.sha256(
        weights_file(config.policy.name, config.task.name, config.policy.warm_start).read_bytes()
    ).hexdigest()
