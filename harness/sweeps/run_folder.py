"""The folder of one cell: one writer at a time, append-only streams, checkpoints that are whole. Standard library only.

config.json    what the cell is a pure function of
metrics.jsonl, evals.jsonl, samples.jsonl, timing.jsonl    one record a line
status.json    running | completed | failed, with the kind of failure, cause, totals and digests
lease/         says which process writes, see ``harness.sweeps.lease``
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from harness.config.errors import CompletedError, CorruptRecordError, LostLeaseError, StorageError, UserError
from harness.sweeps import files, lease
from harness.sweeps.admission import check_identity, is_completed, pretty, refuse_strangers, write_identity
from harness.sweeps.files import dump_json, seal, sha256_hex, unseal
from harness.sweeps.lease import Lease
from harness.sweeps.records import STREAMS, VERIFIED_STREAMS, Failure, Stream, read_status, read_stream
from harness.sweeps.storage import is_of_storage, writing

__all__ = ["RunFolder", "Stream", "read_status", "read_stream"]


class RunFolder:
    """A cell's folder, open for writing.

    Example:
        >>> with RunFolder.open(Path("cells/0a1b"), {"seed": 0}) as folder:
        ...     folder.truncate({})
        ...     folder.append("metrics", {"iteration": 1, "reward_mean": 0.5})
        ...     folder.finish("completed")
    """

    def __init__(self, path: Path, held: Lease) -> None:
        """Not for callers: see ``open``."""
        self.path = path
        self.finished = False
        self._lease = held
        self._streams: dict[Stream, int] = {}

    @classmethod
    def open(
        cls,
        path: Path,
        identity: Mapping[str, Any],
        wait_seconds: float = 10,
        patience_seconds: float = lease.PATIENCE_SECONDS,
    ) -> "RunFolder":
        """Make or enter the folder of the cell ``identity`` and set its status to running.

        Args:
            path: the folder; made if absent.
            identity: everything the cell is a pure function of; plain JSON values.
            wait_seconds: how long a process that is just dying may hold the folder.
            patience_seconds: a holder on another machine that is not heard of for so long counts as dead.

        Raises:
            UserError: the place holds something else or another cell.
            StorageError: the place cannot be written.
            BusyError: a living process has it.
            CompletedError: this very cell is completed there; nothing was changed.
            CorruptRecordError: its config.json cannot be read.
        """
        with writing(path):
            files.make_folder(path)
            refuse_strangers(path)
            check_identity(path, identity)
            held = Lease.take(path, "this cell", wait_seconds, patience_seconds)
            folder = cls(path, held)
            try:
                files.remove_leftovers(path)
                write_identity(path, identity)
                if is_completed(path):
                    files.remove(path / "checkpoint")  # the last thing that a run does; it may have been killed before
                    raise CompletedError(f"the cell in {path} is completed")
                folder.write_atomic("status.json", b'{"cause":"","status":"running"}\n')
                for name in STREAMS:
                    folder._streams[name] = files.open_stream(path / f"{name}.jsonl")
            except BaseException:
                folder._close()
                raise
            return folder

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        """Close; an error that leaves the block is the cell's failure.

        An interruption, a place that cannot be written and a folder that was taken over leave it running.
        """
        try:
            outside = isinstance(error, StorageError | LostLeaseError) or is_of_storage(error)
            if isinstance(error, Exception) and not self.finished and not outside:
                self.finish(
                    "failed", str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
                )
        finally:
            self._close()

    def _close(self) -> None:
        for descriptor in self._streams.values():
            files.close(descriptor)
        self._lease.release()

    def tell(self, message: Mapping[str, Any]) -> None:
        """Let those who look on from elsewhere know the "fraction" and "score" of the work."""
        self._lease.tell(message)

    def append(self, stream: Stream, record: Mapping[str, Any]) -> None:
        """Write one line; it lasts after the next ``flush``. ValueError for NaN and infinity: missing is None."""
        if self._lease.lost:
            self._lease.check()
        line = dump_json(record).encode() + b"\n"
        with writing(self.path / f"{stream}.jsonl"):
            files.append_to(self._streams[stream], line)

    def flush(self) -> dict[str, int]:
        """Make all lines last. Returns each stream's length in bytes, to be kept in a checkpoint."""
        with writing(self.path):
            self._lease.check()
            for descriptor in self._streams.values():
                files.sync(descriptor)
        return {name: os.fstat(descriptor).st_size for name, descriptor in self._streams.items()}

    def truncate(self, offsets: Mapping[str, int]) -> None:
        """Cut every stream back to its offset (0 if not given): what a checkpoint has not seen never happened.

        A stream that is cut becomes a new file: a process that held this folder before and is thought dead writes on
        into the old one, which has no name any more.

        Raises:
            CorruptRecordError: a stream ends before its offset, or its offset is no end of a line.
        """
        contents: dict[Stream, bytes] = {name: (self.path / f"{name}.jsonl").read_bytes() for name in STREAMS}
        for name, content in contents.items():
            file, kept = self.path / f"{name}.jsonl", offsets.get(name, 0)
            if len(content) < kept:
                raise CorruptRecordError(
                    f"{file} holds {len(content)} bytes, its checkpoint counts {kept}; "
                    f"delete {self.path} to run the cell anew"
                )
            if kept and content[kept - 1 : kept] != b"\n":
                raise CorruptRecordError(f"{file} is corrupt; delete {self.path} to run the cell anew")
        for name, content in contents.items():
            if content:
                self.write_atomic(f"{name}.jsonl", content[: offsets.get(name, 0)])
                with writing(self.path):
                    files.close(self._streams[name])
                    self._streams[name] = files.open_stream(self.path / f"{name}.jsonl")

    def write_checked(self, name: str, payload: bytes) -> None:
        """Replace the file ``name`` by ``payload`` with its digest; whole or not at all."""
        self.write_atomic(name, seal(payload))

    def read_checked(self, name: str) -> bytes | None:
        """Return what ``write_checked`` wrote, None if absent; CorruptRecordError if the digest is wrong."""
        file = self.path / name
        return unseal(file, file.read_bytes()) if file.exists() else None

    def write_atomic(self, name: str, payload: bytes) -> None:
        """Replace the file ``name`` by ``payload``; whole or not at all."""
        with writing(self.path / name):
            files.write_atomic(self.path / name, payload, self._lease.check)

    def remove(self, name: str) -> None:
        """Remove the file ``name`` if it is there."""
        with writing(self.path / name):
            self._lease.check()
            files.remove(self.path / name)
            files.sync_folder(self.path)

    def finish(
        self,
        status: Literal["completed", "failed"],
        cause: str = "",
        digests: Mapping[str, str] | None = None,
        totals: Mapping[str, Any] | None = None,
        failure: Failure = "error",
    ) -> None:
        """Make all records last, then write status.json: from here on the cell counts as ended.

        Args:
            status: how it ended.
            cause: one line that says why it failed.
            digests: file name -> SHA-256 of the files that a completed cell must have.
            totals: the ledger's deterministic totals.
            failure: the kind of it; of no meaning for a completed cell.
        """
        self.flush()
        contents = {name: (self.path / f"{name}.jsonl").read_bytes() for name in VERIFIED_STREAMS}
        record = {
            "status": status,
            "failure": failure if status == "failed" else "",
            "cause": " ".join(cause.split()),
            "digests": dict(digests or {}),
            "streams": {name: {"bytes": len(raw), "sha256": sha256_hex(raw)} for name, raw in contents.items()},
            "totals": dict(totals or {}),
        }
        self.write_atomic("status.json", pretty(record))
        self.finished = True
