"""A cell that several processes share: started by torchrun, watched by the process that was asked for it. No torch.

Process 0 holds the cell's folder; the others compute beside it and write nothing. What ends one of them ends all.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.config.errors import BusyError, CompletedError, LostLeaseError, StorageError, UserError
from harness.config.schema import RunConfig
from harness.parents import end_with_parent
from harness.sweeps.records import Stream, read_status

__all__ = ["Follower", "launch", "rank"]

_LAST_LINES = 3
_KINDS = {kind.__name__: kind for kind in (BusyError, CompletedError, LostLeaseError, StorageError)}


def rank() -> int | None:
    """Return the number of this process among those that torchrun started, None if it did not."""
    return int(os.environ["RANK"]) if "RANK" in os.environ else None


class Follower:
    """Stands for the cell's folder in the processes that do not write."""

    finished = True

    def append(self, stream: Stream, record: Mapping[str, Any]) -> None:
        """Do nothing, as everything here."""

    def flush(self) -> dict[str, int]:
        """Return nothing."""
        return {}

    def truncate(self, offsets: Mapping[str, int]) -> None:
        """Do nothing."""

    def write_checked(self, name: str, payload: bytes) -> None:
        """Do nothing."""

    def read_checked(self, name: str) -> None:
        """Return None: process 0 reads."""

    def write_atomic(self, name: str, payload: bytes) -> None:
        """Do nothing."""

    def remove(self, name: str) -> None:
        """Do nothing."""

    def finish(self, *_: Any, **__: Any) -> None:
        """Do nothing."""


def launch(engine: str, config: RunConfig, path: Path, notify: Callable[[dict[str, Any]], None]) -> str:
    """Run a cell in ``config.engine.processes`` processes; return the cause of a failure, "" if it is completed.

    Raises:
        UserError: bad input; of the kinds below if the folder is another process's or cannot be written.
        RuntimeError: the processes ended without a word.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(config.engine.processes), "-m", "harness.sweeps.member"]
    command += ["--engine", engine, "--folder", str(path), "--config", config.model_dump_json()]
    refusal, kind = "", UserError
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=end_with_parent
        ) as job:
            assert job.stdout is not None
            for line in job.stdout:
                message = json.loads(line)
                refusal = message.get("refusal", refusal)
                kind = _KINDS.get(message.get("kind"), kind)
                if "fraction" in message:
                    notify(message)
        if refusal:
            raise kind(refusal)
        status = read_status(path)
        if job.returncode == 0 or status["status"] == "failed":
            return status["cause"]
        log.seek(0)
        last = " ".join(line.strip() for line in log.read().splitlines()[-_LAST_LINES:])
        raise RuntimeError(f"{config.engine.processes} processes ended with exit status {job.returncode}: {last}")
