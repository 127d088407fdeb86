"""One writer of a folder at a time, on any file system that several machines share. Standard library only.

``folder/lease/000007`` is held by the process that made it, the highest number counts. It is made by one atomic link:
of several that want it one gets it, and a number is never used twice. Its holder writes a growing count of beats into
it, and opens it by name each time: whoever takes over removes it, and the former holder's next beat or write finds it
gone.

A holder is dead if its machine is this one and its process is gone, or if an observer has seen no change for
``patience`` seconds of the observer's own monotonic clock. No clock is compared with another machine's, and no wall
clock is read. A holder that was stopped between the last look at its lease and a rename, for longer than the patience,
could still rename one file of the next holder's; its lines go to files that have no name any more
(``RunFolder.truncate``).
"""

import contextlib
import errno
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.config.errors import BusyError, LostLeaseError
from harness.sweeps import files
from harness.sweeps.holders import has_ended, lives_here, this_process

__all__ = ["FOLDER", "PATIENCE_SECONDS", "Lease", "read_lease"]

FOLDER = "lease"
PATIENCE_SECONDS = 60.0
BEATS_PER_PATIENCE = 6
_POLL_SECONDS = 0.05
_SIZE = 512  # bytes of a lease, always: it is written over in place
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class Lease:
    """A held lease; a thread of its own keeps it alive until ``release`` or the end of the process."""

    def __init__(self, file: Path, record: Mapping[str, Any], patience: float) -> None:
        """Not for callers: see ``take``."""
        self._file, self._record = file, dict(record)
        self._lost = False
        self._ended = threading.Event()
        self._guard = threading.Lock()
        self._period = patience / BEATS_PER_PATIENCE
        threading.Thread(target=self._keep_alive, daemon=True).start()

    @classmethod
    def take(cls, folder: Path, what: str, wait: float, patience: float = PATIENCE_SECONDS) -> "Lease":
        """Take the lease of ``folder``; an unheard-of holder is waited for as long as it takes to judge it.

        Args:
            folder: must exist.
            what: what the holder runs, for the message.
            wait: seconds that a living holder may need to end.
            patience: seconds without a beat after which a holder counts as dead; the same for all processes.

        Raises:
            BusyError: a living process holds it.
            OSError: the folder cannot be written.
        """
        files.make_folder(folder / FOLDER)
        began = seen_at = time.monotonic()
        seen: tuple[int, bytes] | None = None
        while True:
            number, content = _last(folder)
            if (number, content) != seen:
                alive = seen is not None  # a beat, or a new holder, since this process looks on
                seen, seen_at = (number, content), time.monotonic()
            else:
                alive = False
            holder = _parse(content)
            waited, silent = time.monotonic() - began, time.monotonic() - seen_at
            known_alive = lives_here(holder)
            expired = silent >= patience and not known_alive
            if number == 0 or holder.get("released") or has_ended(holder) or expired:
                record = this_process()
                if _claim(folder, number, record):
                    return cls(_file(folder, number + 1), record, patience)
                seen = None
            elif waited >= wait and (alive or known_alive):
                place = f"{holder.get('host')}, process {holder.get('pid')}"
                raise BusyError(f"another process is running {what} ({folder}; {place})")
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise LostLeaseError if another process has taken over."""
        if not self._lost:
            try:
                os.close(os.open(self._file, os.O_RDONLY))  # opening asks the server of a shared file system
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    raise
                self._lost = True
        if self._lost:
            folder = self._file.parent.parent
            raise LostLeaseError(f"another process has taken over {folder}: this one was not heard of for too long")

    @property
    def lost(self) -> bool:
        """Whether a beat or a check has found that another process has taken over."""
        return self._lost

    def tell(self, message: Mapping[str, Any]) -> None:
        """Say how the work goes; it is written with the next beat, for those who look on."""
        kept = {name: message[name] for name in ("fraction", "score") if message.get(name) is not None}
        with self._guard:
            self._record |= kept

    def release(self) -> None:
        """Let the next process in at once; a place that cannot be written lets it in when this process ends."""
        self._ended.set()
        with self._guard, contextlib.suppress(OSError):
            if not self._lost:
                files.overwrite(self._file, _format(self._record | {"released": True}))

    def _keep_alive(self) -> None:
        while not self._ended.wait(self._period):
            with self._guard:
                if self._ended.is_set():
                    return
                self._record["beat"] += 1
                try:
                    files.overwrite(self._file, _format(self._record))
                except OSError as error:
                    if error.errno in (errno.ENOENT, errno.ESTALE):
                        self._lost = True
                        return
                    # A full disk is met by the writes that matter; the next beat may get through.


def read_lease(folder: Path) -> dict[str, Any]:
    """Return what the last holder of a folder wrote: host, pid, beat, and its work's fraction and score if told."""
    return _parse(_last(folder)[1])


def _file(folder: Path, number: int) -> Path:
    return folder / FOLDER / f"{number:06d}"


def _last(folder: Path) -> tuple[int, bytes]:
    """Return number and content of the lease that counts; (0, b"") if there is none."""
    while True:
        number = max(_numbers(folder), default=0)
        if number == 0:
            return 0, b""
        try:
            return number, _file(folder, number).read_bytes()
        except FileNotFoundError:  # taken over between the two calls
            continue


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder / FOLDER) if name.isdigit()]
    except FileNotFoundError:
        return []


def _claim(folder: Path, last: int, record: Mapping[str, Any]) -> bool:
    """Make the lease behind number ``last``; False if another process was faster."""
    mine, draft = _file(folder, last + 1), folder / FOLDER / f".{record['owner']}.tmp"
    try:
        files.create(draft, _format(record))
        try:
            files.link(draft, mine)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            files.create(mine, _format(record))
    except FileExistsError:
        return False
    except FileNotFoundError:  # a process that claimed it has tidied up
        return False
    finally:
        files.remove(draft)
    numbers = _numbers(folder)
    if max(numbers) > last + 1:  # this process saw an old listing
        files.remove(mine)
        return False
    for number in numbers:
        if number <= last:
            files.remove(_file(folder, number))
    files.remove_leftovers(folder / FOLDER)
    return True


def _format(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True).encode().ljust(_SIZE - 1) + b"\n"


def _parse(content: bytes) -> dict[str, Any]:
    """Return the record; {} if it is being written."""
    try:
        record = json.loads(content)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}
