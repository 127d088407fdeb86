"""Errors of the place that is written to: a full disk, a lost file server. They are no failure of a run."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.config.errors import StorageError

__all__ = ["is_of_storage", "writing"]

# EFBIG: a limit of the shell on the size of files.
_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ESTALE, errno.EROFS)


def is_of_storage(error: BaseException | None) -> bool:
    """Whether an error says that a disk is full or gone."""
    return isinstance(error, OSError) and error.errno in _STORAGE


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn an OSError of the block into a StorageError that names ``place`` and says what to do."""
    try:
        yield
    except OSError as error:
        what = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(
            f"cannot write to {place}: {what}; what was recorded is whole: mend this and run the same command again"
        ) from error
