"""Worker processes of this machine; one that dies is replaced when there is a further cell for it."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from harness.sweeps.pool import Job, Message

__all__ = ["LocalCrew"]

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_STOP_SECONDS = 5


@dataclass(eq=False)
class _Worker:
    """One process and the cell it holds."""

    slot: int
    threads: int
    process: "subprocess.Popen[str]"
    key: str | None = None
    listener: threading.Thread = field(default_factory=threading.Thread)


class LocalCrew:
    """Processes that take jobs on standard input; each has ``engine.threads`` threads of its cell."""

    def __init__(self, engine: str, log_folder: Path, log_prefix: str = "worker-") -> None:
        """Start nothing yet.

        Args:
            engine: "module:function".
            log_folder: gets ``worker-0.log``, ...: what workers print.
            log_prefix: of these names.
        """
        self._engine, self._log_folder, self._log_prefix = engine, log_folder, log_prefix
        self._team: dict[int, _Worker] = {}
        self._hired: list[_Worker] = []
        self._events: queue.Queue[tuple[_Worker, Message | None]] = queue.Queue()

    def start(self, job: Job) -> None:
        """Give the job to an idle process, or to a new one."""
        slot = next(n for n in range(len(self._team) + 1) if n not in self._team or self._team[n].key is None)
        threads, worker = job["config"]["engine"]["threads"], self._team.get(slot)
        if worker is None or worker.threads != threads:
            if worker is not None:
                _close_input(worker.process)
            worker = self._team[slot] = self._hire(slot, threads)
        worker.key = job["key"]
        stdin = worker.process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: its end of file is on the way
            stdin.write(json.dumps(job) + "\n")
            stdin.flush()

    def events(self, seconds: float) -> list[tuple[str, Message]]:
        """Return what happened to jobs, after at most ``seconds``."""
        with contextlib.suppress(queue.Empty):
            worker, message = self._events.get(timeout=seconds)
            return self._translated(worker, message)
        return []

    def stop(self) -> None:
        """End the processes."""
        for worker in self._hired:
            _close_input(worker.process)
        for worker in self._hired:
            try:
                worker.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.listener.join(_STOP_SECONDS)

    def _translated(self, worker: _Worker, message: Message | None) -> list[tuple[str, Message]]:
        key = worker.key
        if message is None:
            if self._team.get(worker.slot) is worker:
                del self._team[worker.slot]
            code = worker.process.wait()
            message = {"event": "died", "cause": f"signal {-code}" if code < 0 else f"exit status {code}"}
        if message["event"] != "progress":
            worker.key = None
        return [] if key is None else [(key, message)]

    def _hire(self, slot: int, threads: int) -> _Worker:
        log = self._log_folder / f"{self._log_prefix}{slot}.log"
        command = [sys.executable, "-m", "harness.sweeps.worker", "--engine", self._engine, "--log", str(log)]
        with log.open("ab") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))},
                process_group=0,  # Ctrl-C is for the parent, who then ends its workers
            )
        worker = _Worker(slot, threads, process)
        worker.listener = threading.Thread(target=_listen, args=(worker, self._events), daemon=True)
        worker.listener.start()
        self._hired.append(worker)
        return worker


def _listen(worker: _Worker, events: "queue.Queue[tuple[_Worker, Message | None]]") -> None:
    assert worker.process.stdout is not None
    with worker.process.stdout as answers:
        for line in answers:
            with contextlib.suppress(json.JSONDecodeError):  # the last line of a killed worker may be torn
                events.put((worker, json.loads(line)))
    events.put((worker, None))


def _close_input(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
