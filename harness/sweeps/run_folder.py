"""The folder of one cell: one writer at a time, append-only streams, checkpoints that are whole. Standard library only.

config.json    what the cell is a pure function of
metrics.jsonl, evals.jsonl, samples.jsonl, timing.jsonl    one record a line
status.json    running | completed | failed, with cause, totals and digests
lock           held by the process that writes; the kernel releases it, however that process ends
"""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from harness.config.errors import CorruptRecordError, UserError
from harness.sweeps.files import dump_json, remove_leftovers, seal, sha256_hex, sync_folder, unseal, write_atomic
from harness.sweeps.records import STREAMS, VERIFIED_STREAMS, Stream, read_json, read_status, read_stream

__all__ = ["FolderLock", "RunFolder", "Stream", "read_status", "read_stream"]

_POLL_SECONDS = 0.05
_PROCESSES = "config.engine.processes"


class FolderLock:
    """An exclusive lock on ``folder/lock``, released by ``release`` or by the end of the process."""

    def __init__(self, folder: Path, wait_seconds: float, holder: str) -> None:
        """Take the lock; UserError "another process is running {holder}" if it is not free in time."""
        self._descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(self._descriptor)
                    raise UserError(f"another process is running {holder} ({folder})") from None
                time.sleep(_POLL_SECONDS)

    def release(self) -> None:
        """Let the next process in."""
        os.close(self._descriptor)


class RunFolder:
    """A cell's folder, open for writing.

    Example:
        >>> with RunFolder.open(Path("cells/0a1b"), {"seed": 0}) as folder:
        ...     folder.truncate({})
        ...     folder.append("metrics", {"iteration": 1, "reward_mean": 0.5})
        ...     folder.finish("completed")
    """

    def __init__(self, path: Path, lock: FolderLock) -> None:
        """Not for callers: see ``open``."""
        self.path = path
        self.finished = False
        self._lock = lock
        self._streams: dict[Stream, IO[bytes]] = {name: (path / f"{name}.jsonl").open("ab") for name in STREAMS}

    @classmethod
    def open(cls, path: Path, identity: Mapping[str, Any], wait_seconds: float = 10) -> "RunFolder":
        """Make or enter the folder of the cell ``identity`` and set its status to running.

        Args:
            path: the folder; made if absent.
            identity: everything the cell is a pure function of; plain JSON values.
            wait_seconds: how long a process that is just dying may hold the lock.

        Raises:
            UserError: the place cannot be written, holds something else or another cell, or a living process has it.
            CorruptRecordError: its config.json cannot be read.
        """
        lock = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            _refuse_strangers(path)
            lock = FolderLock(path, wait_seconds, "this cell")
            remove_leftovers(path)
            _write_or_compare(path / "config.json", identity)
            write_atomic(path / "status.json", b'{"cause":"","status":"running"}\n')
            return cls(path, lock)
        except (OSError, UserError) as error:
            if lock is not None:
                lock.release()
            if isinstance(error, UserError):
                raise
            raise UserError(f"cannot write to {path}: {error.strerror}") from error

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        """Close; an error that leaves the block is the cell's failure, an interruption leaves it running."""
        try:
            if isinstance(error, Exception) and not self.finished:
                self.finish(
                    "failed", str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
                )
        finally:
            for file in self._streams.values():
                file.close()
            self._lock.release()

    def append(self, stream: Stream, record: Mapping[str, Any]) -> None:
        """Write one line; it lasts after the next ``flush``. ValueError for NaN and infinity: missing is None."""
        self._streams[stream].write(dump_json(record).encode() + b"\n")

    def flush(self) -> dict[str, int]:
        """Make all lines last. Returns each stream's length in bytes, to be kept in a checkpoint."""
        for file in self._streams.values():
            file.flush()
            os.fsync(file.fileno())
        return {name: os.fstat(file.fileno()).st_size for name, file in self._streams.items()}

    def truncate(self, offsets: Mapping[str, int]) -> None:
        """Cut every stream back to its offset (0 if not given): what a checkpoint has not seen never happened.

        Raises:
            CorruptRecordError: a stream ends before its offset, or its offset is no end of a line.
        """
        lengths = self.flush()
        for name in STREAMS:
            file, kept = self.path / f"{name}.jsonl", offsets.get(name, 0)
            if lengths[name] < kept:
                raise CorruptRecordError(
                    f"{file} holds {lengths[name]} bytes, its checkpoint counts {kept}; "
                    f"delete {self.path} to run the cell anew"
                )
            with file.open("rb") as reader:
                reader.seek(max(kept - 1, 0))
                if kept and reader.read(1) != b"\n":
                    raise CorruptRecordError(f"{file} is corrupt; delete {self.path} to run the cell anew")
        for name, file in self._streams.items():
            file.truncate(offsets.get(name, 0))
        self.flush()

    def write_checked(self, name: str, payload: bytes) -> None:
        """Replace the file ``name`` by ``payload`` with its digest; whole or not at all."""
        write_atomic(self.path / name, seal(payload))

    def read_checked(self, name: str) -> bytes | None:
        """Return what ``write_checked`` wrote, None if absent; CorruptRecordError if the digest is wrong."""
        file = self.path / name
        return unseal(file, file.read_bytes()) if file.exists() else None

    def write_atomic(self, name: str, payload: bytes) -> None:
        """Replace the file ``name`` by ``payload``; whole or not at all."""
        write_atomic(self.path / name, payload)

    def remove(self, name: str) -> None:
        """Remove the file ``name`` if it is there."""
        (self.path / name).unlink(missing_ok=True)
        sync_folder(self.path)

    def finish(
        self,
        status: Literal["completed", "failed"],
        cause: str = "",
        digests: Mapping[str, str] | None = None,
        totals: Mapping[str, Any] | None = None,
    ) -> None:
        """Make all records last, then write status.json: from here on the cell counts as ended.

        Args:
            status: how it ended.
            cause: one line that says why it failed.
            digests: file name -> SHA-256 of the files that a completed cell must have.
            totals: the ledger's deterministic totals.
        """
        self.flush()
        contents = {name: (self.path / f"{name}.jsonl").read_bytes() for name in VERIFIED_STREAMS}
        record = {
            "status": status,
            "cause": " ".join(cause.split()),
            "digests": dict(digests or {}),
            "streams": {name: {"bytes": len(raw), "sha256": sha256_hex(raw)} for name, raw in contents.items()},
            "totals": dict(totals or {}),
        }
        write_atomic(self.path / "status.json", _pretty(record))
        self.finished = True


def _pretty(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def _refuse_strangers(path: Path) -> None:
    """Raise if the folder holds anything and is no cell's; nothing in it is touched."""
    if (path / "config.json").exists():
        return
    strangers = sorted(f.name for f in path.iterdir() if f.name not in ("lock", ".config.json.tmp"))
    if strangers:
        raise UserError(f"{path} is no cell's folder (it holds {strangers[0]}): give another place with --out")


def _write_or_compare(file: Path, identity: Mapping[str, Any]) -> None:
    if not file.exists():
        write_atomic(file, _pretty(identity))
        return
    there = read_json(file)
    if dump_json(there) != dump_json(identity):
        asked = json.loads(dump_json(identity))
        differing = _differences(there, asked)
        if differing == [_PROCESSES]:  # the checkpoint of any number of processes is every number's
            write_atomic(file, _pretty(identity))
            return
        raise UserError(
            f"{file.parent} holds another cell; it differs in {', '.join(differing)}: give another place with --out"
        )


def _differences(there: Any, asked: Any, prefix: str = "") -> list[str]:
    if isinstance(there, dict) and isinstance(asked, dict):
        keys = sorted(there.keys() | asked.keys())
        return [d for k in keys for d in _differences(there.get(k), asked.get(k), f"{prefix}.{k}" if prefix else k)]
    return [] if there == asked else [prefix]
