"""Show how a sweep goes: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.sweeps.grid import Cell
from harness.sweeps.pool import Outcome

__all__ = ["Progress", "describe_seconds"]

_QUIET_SECONDS = 15
_MINUTE, _HOUR = 60, 3600


def describe_seconds(seconds: float) -> str:
    """Return "42 s", "3 min 20 s" or "2 h 05 min"."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02d} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02d} min"


@dataclass
class _Running:
    """A running cell: budget fractions when it was taken up and now."""

    cell: Cell
    start: float | None = None
    fraction: float = 0.0
    score: float | None = None


class Progress:
    """A ``Listener`` that prints.

    Args:
        total: cells of the sweep.
        completed: those that were completed before.
        failed: those that failed before and are left as they are.
        console: where to print; a terminal gets the table.
        clock: seconds, for tests.
    """

    def __init__(
        self,
        total: int,
        completed: int,
        failed: int,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """See the class."""
        self._total, self._completed, self._failed = total, completed, failed
        self._console, self._clock = console, clock
        self._running: dict[str, _Running] = {}
        self._work = 0.0  # cells' worth of budget spent by cells that ended since the start
        self._began = self._spoke = clock()
        self._live = Live(console=console, get_renderable=self._table) if console.is_terminal else None

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def started(self, cell: Cell) -> None:
        """A worker took the cell."""
        self._running[cell.key] = _Running(cell)

    def progressed(self, cell: Cell, message: Mapping[str, Any]) -> None:
        """The cell is at a fraction of its budget."""
        state = self._running[cell.key]
        state.fraction = message["fraction"]
        state.start = state.fraction if state.start is None else state.start
        if message.get("score") is not None:
            state.score = message["score"]

    def put_back(self, cell: Cell, cause: str) -> None:
        """The cell's worker died."""
        self._running.pop(cell.key)
        self._say(f"{cell.label}: {cause}; it goes on from its last checkpoint")

    def waits(self, cell: Cell, cause: str) -> None:
        """Another process runs the cell; ``cause`` is empty if that was said before."""
        self._running.pop(cell.key)
        if cause:
            self._say(f"{cell.label}: {cause}; it is looked at again")

    def ended(self, cell: Cell, outcome: Outcome) -> None:
        """The cell is done."""
        state = self._running.pop(cell.key)
        self._work += 1 - (state.start or 0)
        if outcome.status == "completed":
            self._completed += 1
        elif outcome.status == "failed":
            self._failed += 1
        score = "" if state.score is None else f", score {state.score:.3f}"
        cause = f": {outcome.cause}" if outcome.cause else ""
        self._say(f"{cell.label}: {outcome.status}{score}{cause} [{self.summary()}]")

    def tick(self) -> None:
        """Some time passed: on a non-terminal, say where things are now and then."""
        if self._live is None and self._clock() - self._spoke >= _QUIET_SECONDS:
            states = [f"{s.cell.label}: {s.fraction:.0%}{_score(s)}" for s in self._running.values()]
            self._say("; ".join([self.summary(), *states]))

    def summary(self) -> str:
        """Return the counts and the time to go in one line."""
        counts = f"{self._completed}/{self._total} done, {len(self._running)} running, {self._failed} failed"
        return f"{counts}, {self._eta()} to go" if self._eta() else counts

    def _eta(self) -> str:
        """Return the time to go at the pace since the start, taking cells as equally long; "" while unknown."""
        running = self._running.values()
        spent = self._work + sum(s.fraction - (s.start or 0) for s in running)
        left = self._total - self._completed - self._failed - sum(s.fraction for s in running)
        if spent <= 0 or left <= 0:
            return ""
        return describe_seconds((self._clock() - self._began) / spent * left)

    def _say(self, line: str) -> None:
        self._spoke = self._clock()
        self._console.print(Text(line), soft_wrap=True)

    def _table(self) -> Table:
        table = Table(title=self.summary(), title_justify="left", box=None)
        for heading in ("arm", "task", "policy", "seed", "budget", "score"):
            table.add_column(heading)
        for state in list(self._running.values()):
            cell = state.cell
            score = "" if state.score is None else f"{state.score:.3f}"
            words = (cell.arm, cell.task, cell.policy, str(cell.seed), f"{state.fraction:.0%}", score)
            table.add_row(*(Text(word) for word in words))
        return table


def _score(state: _Running) -> str:
    return "" if state.score is None else f", score {state.score:.3f}"
