"""Whether a living process holds a folder, for those who look on or tidy up. Standard library only."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.sweeps.holders import has_ended
from harness.sweeps.lease import Lease, read_lease

__all__ = ["hold", "is_held"]


def is_held(folder: Path) -> bool:
    """Return whether a process writes into the folder of a cell or runs the sweep of a sweep's folder.

    A process of another machine that has not released the folder counts as living: from here nobody can tell at once.
    """
    holder = read_lease(folder)
    return bool(holder) and not holder.get("released") and not has_ended(holder)


@contextmanager
def hold(folder: Path, what: str) -> Iterator[None]:
    """Hold ``folder`` as ``what`` would; BusyError at once if a living process does."""
    lease = Lease.take(folder, what, 0)
    try:
        yield
    finally:
        lease.release()
