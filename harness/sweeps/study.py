"""Open the folder of a sweep for writing (``harness.sweeps.layout`` says what is in it), and load a study's records."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.config.errors import BusyError, UserError
from harness.config.sweep import SweepConfig
from harness.sweeps import files
from harness.sweeps.files import dump_json
from harness.sweeps.grid import Cell, dump_config
from harness.sweeps.layout import FORMAT, SWEEP, cell_folder, is_study, read_sweep
from harness.sweeps.lease import PATIENCE_SECONDS, Lease
from harness.sweeps.storage import writing

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Dropped", "StudyFolder", "enter", "load", "records_of"]

_OURS = ("lease", "lock", "tuning")  # lock: of an older version


def records_of(folder: Path) -> Path:
    """Return the folder of a study's CSV files; those of a sweep that was run here are made anew first."""
    from harness.sweeps.compact import compact

    if is_study(folder):
        return compact(folder)
    return folder / "records" if (folder / "records").is_dir() else folder


def load(folder: Path | str) -> "pd.DataFrame":
    """Return one row an iteration of every cell, with the cell's columns; of a sweep's folder or of committed records.

    Example:
        >>> load("results/claim").groupby("arm")["entropy_nats"].mean()
    """
    from harness.reports.study import load_study

    return load_study(records_of(Path(folder))).frame()


class Dropped(NamedTuple):
    """A cell of an earlier form of a sweep.

    Attributes:
        key: names its folder.
        same_run: a cell of the sweep now has its very settings: sources or versions have changed since.
    """

    key: str
    same_run: bool


class StudyFolder:
    """The folder of a sweep, open for one process; others may join it and write cells alone.

    Example:
        >>> with StudyFolder.open(Path("results/runs/quick"), sweep, cells) as folder:
        ...     folder.cell(cells[0].key)
    """

    def __init__(self, path: Path, held: Lease | None, dropped: Sequence[Dropped]) -> None:
        """Not for callers: see ``open`` and ``join``."""
        self.path = path
        self.joined = held is None
        """Whether another process holds the folder, and writes all of it but the cells."""
        self.dropped = list(dropped)
        """Cells that an earlier form of the sweep had and this one has not; their folders stay."""
        self._lease = held

    @classmethod
    def open(
        cls,
        path: Path,
        sweep: SweepConfig,
        cells: Sequence[Cell],
        wait_seconds: float = 2,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> "StudyFolder":
        """Make or enter the folder, take its lease and write sweep.json.

        Raises:
            UserError: the place holds something else or another sweep (nothing is touched then).
            StorageError: it cannot be written.
            BusyError: a living process runs a sweep in it.
        """
        with writing(path):
            files.make_folder(path)
            _check_content(path, sweep, cells)
            try:
                held = Lease.take(path, "a sweep in this folder", wait_seconds, patience_seconds)
            except BusyError as error:
                raise BusyError(f"{error}; to share its work, add --join") from error
            try:
                dropped = _check_content(path, sweep, cells)
                for place in (path, path / "records"):
                    files.remove_leftovers(place)
                files.write_atomic(path / SWEEP, _describe(sweep, cells), held.check)
                files.make_folder(path / "cells")
            except BaseException:
                held.release()
                raise
            return cls(path, held, dropped)

    @classmethod
    def join(cls, path: Path, sweep: SweepConfig, cells: Sequence[Cell]) -> "StudyFolder":
        """Enter the folder of a sweep that another process runs, to run cells beside it.

        Raises:
            UserError: no sweep was begun there, or it is not the same in every cell.
        """
        if not is_study(path):
            raise UserError(f"no sweep was begun in {path}: start it without --join first")
        _check_content(path, sweep, cells)
        theirs, ours = {cell["key"] for cell in read_sweep(path)["cells"]}, {cell.key for cell in cells}
        if theirs != ours:
            raise UserError(
                f"the sweep in {path} has {len(theirs - ours)} cells that this one has not, and lacks "
                f"{len(ours - theirs)} of this one's: join it with the same file, settings and version"
            )
        return cls(path, None, [])

    def __enter__(self) -> "StudyFolder":
        return self

    def __exit__(self, *_: object) -> None:
        if self._lease is not None:
            self._lease.release()

    def dropped_lines(self) -> list[str]:
        """Return what to say of cells that are in the folder and not in the sweep."""
        anew, place = sum(cell.same_run for cell in self.dropped), self.path / "cells"
        lines = {
            "cells were recorded with other sources or versions and run anew; their folders": anew,
            "cells of an earlier form of this sweep": len(self.dropped) - anew,
        }
        return [f"{count} {what} stay in {place}, unreported" for what, count in lines.items() if count]

    def check(self) -> None:
        """Raise LostLeaseError if another process has taken the folder over."""
        if self._lease is not None:
            self._lease.check()

    def cell(self, key: str) -> Path:
        """Return the run folder of a cell."""
        return cell_folder(self.path, key)


def enter(path: Path, sweep: SweepConfig, cells: Sequence[Cell], join: bool) -> StudyFolder:
    """Open the folder of a sweep, or join the process that holds it; see ``StudyFolder``."""
    if join:
        return StudyFolder.join(path, sweep, cells)
    return StudyFolder.open(path, sweep, cells, patience_seconds=sweep.executor.lease_seconds)


def _check_content(path: Path, sweep: SweepConfig, cells: Sequence[Cell]) -> list[Dropped]:
    """Return the cells that are no longer in the sweep; raise if the folder is not this sweep's."""
    if not is_study(path):
        strangers = sorted(
            f.name for f in path.iterdir() if f.name not in _OURS and not f.name.startswith(f".{SWEEP}.")
        )
        if strangers:
            raise UserError(f"{path} is no sweep's folder (it holds {strangers[0]}): give another place with --out")
        return []
    there = read_sweep(path)
    if there["name"] != sweep.name:
        raise UserError(f"{path} holds the sweep {there['name']!r}, not {sweep.name!r}: give another place with --out")
    keys, configs = {cell.key for cell in cells}, {dump_json(dump_config(cell.config)) for cell in cells}
    gone = [cell for cell in there["cells"] if cell["key"] not in keys]
    return [Dropped(cell["key"], dump_json(cell["config"]) in configs) for cell in gone]


def _describe(sweep: SweepConfig, cells: Sequence[Cell]) -> bytes:
    baseline = sweep.baseline or sweep.arms[0].name
    description = {
        "format": FORMAT,
        "name": sweep.name,
        "description": sweep.description,
        "baseline": next(cell.arm for cell in cells if cell.base_arm == baseline),
        "seeds": sweep.seeds,
        "cells": [
            {
                "key": cell.key,
                "arm": cell.arm,
                "task": cell.task,
                "condition": cell.condition,
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
