"""Who may enter the folder of a cell: the cell whose config.json is there, until it is completed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.config.errors import UserError
from harness.sweeps.files import dump_json, write_atomic
from harness.sweeps.records import read_json

__all__ = ["check_identity", "is_completed", "pretty", "refuse_strangers", "write_identity"]

_PROCESSES = "config.engine.processes"
_OURS = ("lease", "lock")  # lock: of a cell that an older version was about to begin


def pretty(value: Mapping[str, Any]) -> bytes:
    """Return JSON for a reader: sorted keys, a line each."""
    return (json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def refuse_strangers(path: Path) -> None:
    """Raise UserError if the folder holds anything and is no cell's; nothing in it is touched."""
    if (path / "config.json").exists():
        return
    strangers = sorted(f.name for f in path.iterdir() if f.name not in _OURS and not f.name.startswith(".config.json."))
    if strangers:
        raise UserError(f"{path} is no cell's folder (it holds {strangers[0]}): give another place with --out")


def is_completed(path: Path) -> bool:
    """Whether status.json says so; the records are not looked at."""
    status = path / "status.json"
    return status.exists() and read_json(status).get("status") == "completed"


def check_identity(path: Path, identity: Mapping[str, Any]) -> None:
    """Raise UserError if the folder holds another cell; the settings that differ are named."""
    file = path / "config.json"
    differing = _differences(read_json(file), json.loads(dump_json(identity))) if file.exists() else []
    if differing not in ([], [_PROCESSES]):  # the checkpoint of any number of processes is every number's
        raise UserError(
            f"{path} holds another cell; it differs in {', '.join(differing)}: give another place with --out"
        )


def write_identity(path: Path, identity: Mapping[str, Any]) -> None:
    """Write config.json if it is not there or not the same; only for the one who holds the folder's lease."""
    check_identity(path, identity)
    file = path / "config.json"
    if not file.exists() or dump_json(read_json(file)) != dump_json(identity):
        write_atomic(file, pretty(identity))


def _differences(there: Any, asked: Any, prefix: str = "") -> list[str]:
    if isinstance(there, dict) and isinstance(asked, dict):
        keys = sorted(there.keys() | asked.keys())
        return [d for k in keys for d in _differences(there.get(k), asked.get(k), f"{prefix}.{k}" if prefix else k)]
    return [] if there == asked else [prefix]
