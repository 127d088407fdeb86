"""Open the folder of a sweep for writing (``harness.sweeps.layout`` says what is in it), and load a study's records."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.config.errors import UserError
from harness.config.sweep import SweepConfig
from harness.sweeps.files import write_atomic
from harness.sweeps.grid import Cell, dump_config
from harness.sweeps.layout import SWEEP, cell_folder, is_study, read_sweep
from harness.sweeps.run_folder import FolderLock

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["StudyFolder", "load", "records_of"]


def records_of(folder: Path) -> Path:
    """Return the folder of a study's CSV files; those of a sweep that was run here are made anew first."""
    from harness.sweeps.compact import compact

    if is_study(folder):
        return compact(folder)
    return folder / "records" if (folder / "records").is_dir() else folder


def load(folder: Path | str) -> "pd.DataFrame":
    """Return one row an iteration of every cell, with the cell's columns; of a sweep's folder or of committed records.

    Example:
        >>> load("results/quick").groupby("arm")["entropy_nats"].mean()
    """
    from harness.reports.study import load_study

    return load_study(records_of(Path(folder))).frame()


class StudyFolder:
    """The folder of a sweep, open for one process.

    Example:
        >>> with StudyFolder.open(Path("results/runs/quick"), sweep, cells) as folder:
        ...     folder.cell(cells[0].key)
    """

    def __init__(self, path: Path, lock: FolderLock, dropped: Sequence[str]) -> None:
        """Not for callers: see ``open``."""
        self.path = path
        self.dropped = list(dropped)
        """Keys of cells that an earlier form of the sweep had and this one has not; their folders stay."""
        self._lock = lock

    @classmethod
    def open(cls, path: Path, sweep: SweepConfig, cells: Sequence[Cell], wait_seconds: float = 2) -> "StudyFolder":
        """Make or enter the folder, take its lock and write sweep.json.

        Raises:
            UserError: the place cannot be written, holds something else or another sweep (nothing is touched then),
                or a living process runs a sweep in it.
        """
        lock = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            dropped = _check_content(path, sweep, cells)
            lock = FolderLock(path, wait_seconds, "a sweep in this folder")
            write_atomic(path / SWEEP, _describe(sweep, cells))
            (path / "cells").mkdir(exist_ok=True)
        except OSError as error:
            if lock is not None:
                lock.release()
            raise UserError(f"cannot write to {path}: {error.strerror}") from error
        return cls(path, lock, dropped)

    def __enter__(self) -> "StudyFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def cell(self, key: str) -> Path:
        """Return the run folder of a cell."""
        return cell_folder(self.path, key)


def _check_content(path: Path, sweep: SweepConfig, cells: Sequence[Cell]) -> list[str]:
    """Return the keys that are no longer in the sweep; raise if the folder is not this sweep's."""
    if not is_study(path):
        strangers = sorted(f.name for f in path.iterdir() if f.name not in ("lock", "tuning", f".{SWEEP}.tmp"))
        if strangers:
            raise UserError(f"{path} is no sweep's folder (it holds {strangers[0]}): give another place with --out")
        return []
    there = read_sweep(path)
    if there["name"] != sweep.name:
        raise UserError(f"{path} holds the sweep {there['name']!r}, not {sweep.name!r}: give another place with --out")
    keys = {cell.key for cell in cells}
    return [cell["key"] for cell in there["cells"] if cell["key"] not in keys]


def _describe(sweep: SweepConfig, cells: Sequence[Cell]) -> bytes:
    baseline = sweep.baseline or sweep.arms[0].name
    description = {
        "name": sweep.name,
        "description": sweep.description,
        "baseline": next(cell.arm for cell in cells if cell.base_arm == baseline),
        "seeds": sweep.seeds,
        "cells": [
            {
                "key": cell.key,
                "arm": cell.arm,
                "task": cell.task,
                "policy": cell.policy,
                "seed": cell.seed,
                "axes": dict(cell.axes),
                "facts": dict(cell.facts),
                "config": dump_config(cell.config),
            }
            for cell in cells
        ],
    }
    return (json.dumps(description, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()
