"""The same cell is never computed twice: completed ones of other sweeps are taken over, byte for byte.

A cell's key is a hash of everything that it is a pure function of, so a folder of that key with that identity,
completed and with the digests it had then, is the cell.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness.config.errors import CorruptRecordError, UserError
from harness.sweeps.files import dump_json, sha256_hex, sync_folder
from harness.sweeps.grid import Cell
from harness.sweeps.layout import SWEEP, cell_folder
from harness.sweeps.records import read_json, read_status

__all__ = ["studies_in", "take_over"]

_SKIPPED = ("lock*", ".*", "checkpoint", "lease*")


def studies_in(folder: Path) -> list[Path]:
    """Return the sweeps' folders in ``folder``, those of trials too; sorted."""
    return sorted(file.parent for pattern in (SWEEP, f"*/{SWEEP}", f"*/*/{SWEEP}") for file in folder.glob(pattern))


def take_over(cells: Iterable[Cell], folder: Path, studies: Iterable[Path]) -> list[str]:
    """Copy the cells that a sweep of ``studies`` has completed into the sweep's ``folder``.

    A cell that is begun in ``folder`` stays as it is. A copy is whole or absent, whatever ends the process.

    Returns:
        The keys of the cells that were copied.

    Raises:
        UserError: ``folder`` cannot be written.
    """
    others = [study for study in studies if study.resolve() != folder.resolve()]
    taken: list[str] = []
    try:
        for cell in cells:
            place = cell_folder(folder, cell.key)
            source = None if place.exists() else next(_completed(cell, others), None)
            if source is not None:
                _copy(source, place)
                taken.append(cell.key)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    return taken


def _completed(cell: Cell, studies: Iterable[Path]) -> Iterator[Path]:
    """Yield folders that hold the completed cell; one whose records cannot be trusted does not."""
    for study in studies:
        path = cell_folder(study, cell.key)
        with contextlib.suppress(CorruptRecordError):
            status = read_status(path)
            if status["status"] == "completed" and _is(path, cell) and _as_it_was(path, status["digests"]):
                yield path


def _is(path: Path, cell: Cell) -> bool:
    return dump_json(read_json(path / "config.json")) == dump_json(cell.identity)


def _as_it_was(path: Path, digests: Mapping[str, str]) -> bool:
    return all(sha256_hex((path / name).read_bytes()) == digest for name, digest in digests.items())


def _copy(source: Path, place: Path) -> None:
    """Copy a cell's files beside ``place``, make them last, and rename."""
    beside = place.with_name(f".{place.name}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, beside, ignore=shutil.ignore_patterns(*_SKIPPED))
    for file in beside.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    sync_folder(beside)
    os.rename(beside, place)
    sync_folder(place.parent)
