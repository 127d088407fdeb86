"""Give cells to workers, wherever these run, until each cell has ended; a cell whose worker died goes on."""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.config.errors import CompletedError, UserError
from harness.sweeps.grid import Cell, dump_config
from harness.sweeps.records import read_json
from harness.sweeps.run_folder import RunFolder

__all__ = ["MAX_ATTEMPTS", "Crew", "Job", "Listener", "Message", "Outcome", "Pool"]

MAX_ATTEMPTS = 3
_TICK_SECONDS = 0.5
_BUSY_SECONDS = 2.0

Message = dict[str, Any]
Job = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: "completed", "failed" with its cause, or "stopped" by a place that cannot be written."""

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

    def waits(self, cell: Cell, cause: str) -> None:
        """Another process runs the cell: it is looked at again."""

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        """The cell is done."""

    def tick(self) -> None:
        """Some time passed."""


class Crew(Protocol):
    """Workers of one kind: processes of this machine, of a Ray cluster, jobs of Slurm."""

    def start(self, job: Job) -> None:
        """Run a job; whoever calls knows that there is room for it."""
        ...

    def events(self, seconds: float) -> list[tuple[str, Message]]:
        """Return what happened to jobs, waiting at most ``seconds`` for it: pairs of a cell's key and a message.

        Its "event" is "progress" ("fraction", "score"), or the last one of a job: "ended" ("status", "cause"),
        "crashed" by an error nobody foresaw ("cause"), "busy" ("cause") or "died" ("cause").
        """
        ...

    def stop(self) -> None:
        """End the workers; those in the middle of a cell leave it at its last checkpoint."""
        ...


@dataclass
class Pool:
    """Cells, and the crew that runs them.

    Attributes:
        pending: cells to run, in their order.
        folders: key -> folder of the cell.
        crew: runs them.
        listener: is told of everything, in this thread.
        patience_seconds: a process that runs a cell elsewhere and is not heard of for so long counts as dead.
        retried: keys of cells that failed before and are to run all the same.
        outcomes: key -> how the cell ended.
    """

    pending: deque[Cell]
    folders: Mapping[str, Path]
    crew: Crew
    listener: Listener
    patience_seconds: float
    retried: frozenset[str] = frozenset()
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    _running: dict[str, Cell] = field(default_factory=dict[str, Cell])
    _deaths: dict[str, tuple[int, Any]] = field(default_factory=dict[str, tuple[int, Any]])
    _busy: list[tuple[float, Cell]] = field(default_factory=list[tuple[float, Cell]])
    _waited_for: set[str] = field(default_factory=set[str])
    _stopped: bool = False

    def run(self, workers: int) -> None:
        """Run all cells, ``workers`` at a time; after a full disk no further one is begun, and has no outcome."""
        try:
            while self._running or (not self._stopped and (self.pending or self._busy)):
                self._look_at_busy()
                while self.pending and len(self._running) < workers and not self._stopped:
                    self._start(self.pending.popleft())
                for key, message in self.crew.events(_TICK_SECONDS):
                    self._handle(key, message)
                self.listener.tick()
        finally:
            self.crew.stop()

    def _look_at_busy(self) -> None:
        """Put cells that another process ran back in the row after a while."""
        now, waiting = time.monotonic(), self._busy
        self._busy = [(due, cell) for due, cell in waiting if due > now]
        for due, cell in waiting:
            if due <= now:
                self.pending.append(cell)

    def _start(self, cell: Cell) -> None:
        outcome = _recorded(self.folders[cell.key])
        if outcome is not None and not (outcome.status == "failed" and cell.key in self.retried):
            self.listener.started(cell)
            self._end(cell, outcome)
            return
        self._running[cell.key] = cell
        self.crew.start(
            {
                "key": cell.key,
                "folder": str(self.folders[cell.key]),
                "config": dump_config(cell.config),
                "patience_seconds": self.patience_seconds,
            }
        )
        self.listener.started(cell)

    def _handle(self, key: str, message: Message) -> None:
        cell = self._running.get(key)
        if cell is None:
            return
        if message["event"] == "progress":
            self.listener.progressed(cell, message)
            return
        del self._running[key]
        if message["event"] == "died":
            self._bury(cell, message["cause"])
        elif message["event"] == "busy":
            self._busy.append((time.monotonic() + _BUSY_SECONDS, cell))
            self.listener.waits(cell, "" if key in self._waited_for else message["cause"])
            self._waited_for.add(key)
        elif message["event"] == "crashed":
            self._fail(cell, message["cause"])
        else:
            self._stopped |= message["status"] == "stopped"
            self._end(cell, Outcome(message["status"], message["cause"]))

    def _bury(self, cell: Cell, cause: str) -> None:
        """The worker of ``cell`` died: put the cell back, or give it up if it dies again and again at one place.

        A death behind a new checkpoint counts as the first: a job's time limit may end a long cell many times.
        """
        count, before = self._deaths.get(cell.key, (0, None))
        reached = _checkpoint(self.folders[cell.key])
        count = count + 1 if reached == before else 1
        self._deaths[cell.key] = count, reached
        if count < MAX_ATTEMPTS:
            self.pending.appendleft(cell)
            self.listener.put_back(cell, f"worker died ({cause})")
            return
        self._fail(cell, f"worker died {MAX_ATTEMPTS} times ({cause})")

    def _fail(self, cell: Cell, cause: str) -> None:
        """Write a failure that the worker could not write; a folder that refuses is named by the outcome alone."""
        outcome = Outcome("failed", cause)
        try:
            with RunFolder.open(
                self.folders[cell.key], cell.identity, patience_seconds=self.patience_seconds
            ) as folder:
                folder.finish("failed", cause)
        except CompletedError:  # the worker was thought dead and was not
            outcome = Outcome("completed")
        except UserError:
            pass
        self._end(cell, outcome)

    def _end(self, cell: Cell, outcome: Outcome) -> None:
        self.outcomes[cell.key] = outcome
        self.listener.ended(cell, outcome)


def _recorded(folder: Path) -> Outcome | None:
    """Return how the cell ended according to its folder, None if it did not."""
    if not (folder / "status.json").exists():
        return None
    status = read_json(folder / "status.json")
    if status.get("status") not in ("completed", "failed"):
        return None
    return Outcome(status["status"], status.get("cause", ""))


def _checkpoint(folder: Path) -> Any:
    """Return what differs between two checkpoints of a cell, None if there is none."""
    try:
        found = (folder / "checkpoint").stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
