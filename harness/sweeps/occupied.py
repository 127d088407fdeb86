"""Whether a living process holds a folder, for those who look on or tidy up. Standard library only."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.sweeps.run_folder import FolderLock

__all__ = ["hold", "is_held"]


def is_held(folder: Path) -> bool:
    """Return whether a living process writes into the folder of a cell or runs the sweep of a sweep's folder."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def hold(folder: Path, what: str) -> Iterator[None]:
    """Hold ``folder`` as ``what`` would; UserError at once if a living process does."""
    lock = FolderLock(folder, 0, what)
    try:
        yield
    finally:
        lock.release()
