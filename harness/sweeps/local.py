"""Run cells in worker processes of this machine; a worker that dies is replaced and its cell goes on."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.config.errors import UserError
from harness.sweeps.engines import DEFAULT_ENGINE
from harness.sweeps.grid import Cell, dump_config
from harness.sweeps.run_folder import RunFolder

__all__ = ["Listener", "Outcome", "run_cells"]

MAX_ATTEMPTS = 3
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_TICK_SECONDS = 0.5
_STOP_SECONDS = 5


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: "completed" or "failed" with its cause."""

    status: str
    cause: str = ""


class Listener(Protocol):
    """Who wants to know how the cells go."""

    def started(self, cell: Cell) -> None:
        """A worker took the cell."""

    def progressed(self, cell: Cell, message: Mapping[str, Any]) -> None:
        """The cell is at ``fraction`` of its budget, with ``score`` if one is known."""

    def put_back(self, cell: Cell, cause: str) -> None:
        """The cell's worker died; another one goes on with it."""

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        """The cell is done."""

    def tick(self) -> None:
        """Some time passed."""


def run_cells(
    cells: Iterable[Cell],
    folders: Mapping[str, Path],
    *,
    workers: int,
    log_folder: Path,
    listener: Listener,
    engine: str = DEFAULT_ENGINE,
) -> dict[str, Outcome]:
    """Run the cells, in their order, ``workers`` at a time.

    Args:
        cells: what to run.
        folders: key -> folder of the cell.
        workers: processes at a time; each has ``engine.threads`` threads of its cell.
        log_folder: gets ``worker-0.log``, ...: what workers print.
        listener: is told of everything, in this thread.
        engine: "module:function".

    Returns:
        Key -> outcome, for every cell.
    """
    pool = _Pool(deque(cells), folders, log_folder, listener, engine)
    try:
        pool.run(workers)
    finally:
        pool.stop()
    return pool.outcomes


@dataclass(eq=False)
class _Worker:
    """One process and the cell it holds."""

    slot: int
    threads: int
    process: "subprocess.Popen[str]"
    cell: Cell | None = None
    listener: threading.Thread = field(default_factory=threading.Thread)


Event = tuple[_Worker, dict[str, Any] | None]


@dataclass
class _Pool:
    pending: deque[Cell]
    folders: Mapping[str, Path]
    log_folder: Path
    listener: Listener
    engine: str
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    attempts: dict[str, int] = field(default_factory=dict[str, int])
    team: dict[int, _Worker] = field(default_factory=dict[int, _Worker])
    hired: list[_Worker] = field(default_factory=list[_Worker])
    events: "queue.Queue[Event]" = field(default_factory=queue.Queue)

    def run(self, workers: int) -> None:
        while self.pending or any(worker.cell for worker in self.team.values()):
            for slot in range(workers):
                if self.pending and (slot not in self.team or self.team[slot].cell is None):
                    self._assign(slot)
            with contextlib.suppress(queue.Empty):
                self._handle(*self.events.get(timeout=_TICK_SECONDS))
            self.listener.tick()

    def stop(self) -> None:
        """End the workers; those in the middle of a cell leave it at its last checkpoint."""
        for worker in self.hired:
            _close_input(worker.process)
        for worker in self.hired:
            try:
                worker.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.listener.join(_STOP_SECONDS)

    def _assign(self, slot: int) -> None:
        cell = self.pending.popleft()
        threads = cell.config.engine.threads
        worker = self.team.get(slot)
        if worker is None or worker.threads != threads:
            if worker is not None:
                _close_input(worker.process)
            worker = self.team[slot] = self._hire(slot, threads)
        worker.cell = cell
        job = {"key": cell.key, "folder": str(self.folders[cell.key]), "config": dump_config(cell.config)}
        stdin = worker.process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: its end of file is on the way
            stdin.write(json.dumps(job) + "\n")
            stdin.flush()
        self.listener.started(cell)

    def _hire(self, slot: int, threads: int) -> _Worker:
        log = self.log_folder / f"worker-{slot}.log"
        command = [sys.executable, "-m", "harness.sweeps.worker", "--engine", self.engine, "--log", str(log)]
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
        worker.listener = threading.Thread(target=_listen, args=(worker, self.events), daemon=True)
        worker.listener.start()
        self.hired.append(worker)
        return worker

    def _handle(self, worker: _Worker, message: dict[str, Any] | None) -> None:
        cell = worker.cell
        if message is None:
            if self.team.get(worker.slot) is worker:
                del self.team[worker.slot]
            if cell is not None:
                self._bury(worker, cell)
        elif cell is not None and message["event"] == "progress":
            self.listener.progressed(cell, message)
        elif cell is not None:
            worker.cell = None
            if message["event"] == "crashed":
                _record_failure(self.folders[cell.key], cell, message["cause"])
            self._end(cell, Outcome(message.get("status", "failed"), message["cause"]))

    def _bury(self, worker: _Worker, cell: Cell) -> None:
        """The worker of ``cell`` died: put the cell back, or give it up."""
        worker.cell = None
        code = worker.process.wait()
        cause = f"signal {-code}" if code < 0 else f"exit status {code}"
        self.attempts[cell.key] = self.attempts.get(cell.key, 0) + 1
        if self.attempts[cell.key] < MAX_ATTEMPTS:
            self.pending.appendleft(cell)
            self.listener.put_back(cell, f"worker died ({cause})")
            return
        cause = f"worker died {MAX_ATTEMPTS} times ({cause})"
        _record_failure(self.folders[cell.key], cell, cause)
        self._end(cell, Outcome("failed", cause))

    def _end(self, cell: Cell, outcome: Outcome) -> None:
        self.outcomes[cell.key] = outcome
        self.listener.ended(cell, outcome)


def _listen(worker: _Worker, events: "queue.Queue[Event]") -> None:
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


def _record_failure(path: Path, cell: Cell, cause: str) -> None:
    """Write a failure that the worker could not write; a folder that refuses is named by the outcome alone."""
    with contextlib.suppress(UserError), RunFolder.open(path, cell.identity) as folder:
        folder.finish("failed", cause)
