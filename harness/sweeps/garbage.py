"""What a sweep's folder no longer needs, for ``evengrad gc``: listed first, deleted only on request.

Nothing that a living process holds is touched, nor anything that a report, a resumption or ``evengrad eval`` reads:
weights stay, and so do the checkpoints of cells that have not completed.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.config.errors import UserError
from harness.sweeps.files import sync_folder
from harness.sweeps.layout import is_study, read_sweep
from harness.sweeps.occupied import hold, is_held
from harness.sweeps.records import read_json

__all__ = ["Garbage", "delete", "find_garbage"]

_TRASH = ".trash-"
_CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Garbage:
    """A file or folder that can go.

    Attributes:
        path: where it is.
        why: for a reader.
        num_bytes: what it takes.
        holder: the cell's folder that must be free, or None.
    """

    path: Path
    why: str
    num_bytes: int
    holder: Path | None = None


def find_garbage(folder: Path) -> tuple[list[Garbage], list[Path]]:
    """Return what can be deleted in a sweep's folder, and the folders that were passed over since a process holds them.

    Raises:
        UserError: ``folder`` holds no sweep, or a living process runs one in it: it may be about to change its cells.
    """
    if not is_study(folder):
        raise UserError(f"{folder} holds no sweep (sweep.json is missing): gc tidies the folder of a sweep")
    if is_held(folder):
        raise UserError(f"a sweep is running in {folder}: give the command again when it has ended")
    keys = {cell["key"] for cell in read_sweep(folder)["cells"]}
    found = [_garbage(file, "left by a write that was killed") for file in _leftovers(folder)]
    busy: list[Path] = []
    for path in sorted((folder / "cells").iterdir()) if (folder / "cells").is_dir() else []:
        if path.name.startswith(_TRASH):
            found.append(_garbage(path, "left by a gc that was killed"))
        elif not path.is_dir() or path.is_symlink() or not (path / "config.json").is_file():
            continue  # not a cell that was begun
        elif is_held(path):
            busy.append(path)
        elif path.name not in keys:
            found.append(_garbage(path, "its cell is no longer in the sweep", path))
        else:
            found += _of_cell(path)
    return found, busy


def delete(folder: Path, found: list[Garbage]) -> tuple[list[Garbage], list[Path]]:
    """Delete what ``find_garbage`` found; returns what is gone, and the cells that a process has taken up meanwhile.

    A cell's folder is renamed before it is emptied, so that a kill leaves no half of a cell.

    Raises:
        UserError: a sweep was started in ``folder``, or a file cannot be deleted.
    """
    gone: list[Garbage] = []
    busy: list[Path] = []
    try:
        with hold(folder, "a sweep in this folder"):
            for item in found:
                if item.holder is not None and is_held(item.holder):
                    busy.append(item.holder)
                    continue
                _delete(item)
                gone.append(item)
    except OSError as error:
        raise UserError(f"cannot delete {error.filename}: {error.strerror}") from error
    return gone, busy


def _of_cell(path: Path) -> Iterator[Garbage]:
    for file in _leftovers(path):
        yield _garbage(file, "left by a write that was killed", path)
    checkpoint = path / _CHECKPOINT
    if checkpoint.is_file() and _status(path) == "completed":
        yield _garbage(checkpoint, "checkpoint of a completed cell", path)


def _status(path: Path) -> str:
    return str(read_json(path / "status.json").get("status")) if (path / "status.json").is_file() else "waiting"


def _leftovers(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob(".*.tmp") if file.is_file() and not file.is_symlink())


def _garbage(path: Path, why: str, holder: Path | None = None) -> Garbage:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
    return Garbage(path, why, sum(file.stat().st_size for file in files), holder)


def _delete(item: Garbage) -> None:
    if item.path.is_dir() and not item.path.name.startswith(_TRASH):
        with hold(item.path, "this cell"):
            trash = item.path.with_name(_TRASH + item.path.name)
            os.rename(item.path, trash)
            sync_folder(trash.parent)
        shutil.rmtree(trash)
    elif item.path.is_dir():
        shutil.rmtree(item.path)
    elif item.holder is not None:
        with hold(item.holder, "this cell"):
            item.path.unlink(missing_ok=True)
    else:
        item.path.unlink(missing_ok=True)
