"""The compute ledger: what was spent, in which phase, and whether the next piece of work fits the budget. No torch.

Work is charged before it is done, in pieces no larger than one optimizer step: one decoding step, one micro-batch of a
pass without gradients, one optimizer step. The first piece that would exceed the budget raises ``BudgetExhausted``, so
a run ends within one update of its budget and no state beyond it exists. What was charged for no update (since the
last one, or for rollouts that still wait for theirs) is reported as discarded. Evaluation and diagnostics are booked,
not charged.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from harness.config.schema import Axis

__all__ = ["BudgetExhausted", "Ledger", "Work"]


MAX_SHRINKS = 10
"""How often a step is shrunk to stay in a trust region before it is undone; each takes a charged measurement."""


class BudgetExhausted(Exception):  # noqa: N818 - an end, not an error
    """The next piece of work does not fit the budget."""


@dataclass
class Work:
    """An amount of work.

    Attributes:
        flops: useful FLOPs.
        executed_flops: with padding and recomputation; the same as ``flops`` if not given.
        generated_tokens: sampled tokens.
        trained_tokens: response tokens in the loss of a step, once for every pass over them.
        updates: optimizer steps.
    """

    flops: int = 0
    executed_flops: int = -1
    generated_tokens: int = 0
    trained_tokens: int = 0
    updates: int = 0

    def __post_init__(self) -> None:
        if self.executed_flops < 0:
            self.executed_flops = self.flops

    def add(self, other: "Work") -> None:
        """Add ``other`` to this."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def on(self, axis: Axis) -> int:
        """Return the amount on a counted axis; 0 on "seconds", which is measured, not counted."""
        return {"flops": self.flops, "tokens": self.generated_tokens, "updates": self.updates, "seconds": 0}[axis]


@dataclass
class Ledger:
    """Spent work by phase, against one budget.

    Attributes:
        axis: the budget's axis.
        amount: the budget, units of the axis.
        points: amounts of the axis at which ``on_point`` is called, ascending.
        on_point: called with the number of the point just before the piece of work that would go past it is done: the
            policy then is the last one within that point.
        spent: all charged work.
        phases: {phase: work}, charged and booked.
        seconds: {phase: seconds}; "train" is the time of the budget's clock.
        train_phases: {phase: seconds} of "train"; what is in no phase is the loop's own.
        waiting_flops: useful FLOPs of rollouts that are sampled and wait for their updates.
    """

    axis: Axis
    amount: float
    points: tuple[float, ...] = ()
    on_point: Callable[[int], None] | None = None
    spent: Work = field(default_factory=Work)
    phases: dict[str, Work] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    train_phases: dict[str, float] = field(default_factory=dict)
    passed_points: int = 0
    committed_flops: int = 0
    waiting_flops: int = 0
    _started: float | None = None

    def charge(self, work: Mapping[str, Work]) -> None:
        """Charge one piece of work, {phase: its share}, to the budget, before it is done.

        Raises:
            BudgetExhausted: it does not fit; nothing is charged.
        """
        reached = self.position() + sum(part.on(self.axis) for part in work.values())
        self._pass_points(reached)
        if reached > self.amount:
            raise BudgetExhausted
        for phase, part in work.items():
            self.spent.add(part)
            self.book(phase, part)

    @contextmanager
    def points_wait(self, waiting: list[int]) -> Iterator[None]:
        """Put the points that are reached in a block into ``waiting``; the caller calls ``on_point`` for each."""
        on_point = self.on_point
        self.on_point = waiting.append
        try:
            yield
        finally:
            self.on_point = on_point

    def look_at_clock(self) -> None:
        """Pass the points that only a clock has reached; to be called before a step is made, so that none is missed."""
        self._pass_points(self.position())

    def close(self) -> None:
        """Pass the points that are left: the run has ended and its policy is the last one within all of them."""
        self._pass_points(math.inf)

    def _pass_points(self, reached: float) -> None:
        while self.passed_points < len(self.points) and reached > self.points[self.passed_points]:
            self.passed_points += 1
            if self.on_point is not None:
                self.on_point(self.passed_points - 1)

    def book(self, phase: str, work: Work) -> None:
        """Write ``work`` down without charging it."""
        self.phases.setdefault(phase, Work()).add(work)

    def position(self) -> float:
        """Return what is spent on the budget's axis."""
        return self.train_seconds() if self.axis == "seconds" else self.spent.on(self.axis)

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left on the axis."""
        return self.position() >= self.amount

    @property
    def fraction(self) -> float:
        """Share of the budget that is spent, at most 1."""
        return min(1.0, self.position() / self.amount)

    def commit(self) -> None:
        """Say that an update was made: everything spent so far was of use, but for what waits."""
        self.committed_flops = self.spent.flops - self.waiting_flops

    def cancel_update(self) -> None:
        """Take back the count of an update that was computed and charged, but not made."""
        self.spent.updates -= 1
        self.phases["update"].updates -= 1

    @property
    def overdrawn(self) -> bool:
        """Whether more than the budget is spent, as a clock may say after the fact."""
        return self.position() > self.amount

    @property
    def discarded_flops(self) -> int:
        """Useful FLOPs charged that led to no update."""
        return self.spent.flops - self.committed_flops

    def train_seconds(self) -> float:
        """Return the seconds on the budget's clock."""
        running = 0.0 if self._started is None else time.perf_counter() - self._started
        return self.seconds.get("train", 0.0) + running

    def start(self) -> None:
        """Let the budget's clock run."""
        self._started = time.perf_counter()

    def stop(self) -> None:
        """Stop the budget's clock."""
        self.seconds["train"] = self.train_seconds()
        self._started = None

    @contextmanager
    def outside(self, phase: str) -> Iterator[None]:
        """Time a block outside the budget: its clock stands still."""
        was_running = self._started is not None
        if was_running:
            self.stop()
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begun
            if was_running:
                self.start()

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Time a block on the budget's clock as a phase, without blocks outside the budget and phases within it."""
        begun, others = self.train_seconds(), sum(self.train_phases.values())
        try:
            yield
        finally:
            within = sum(self.train_phases.values()) - others
            self.train_phases[phase] = self.train_phases.get(phase, 0.0) + self.train_seconds() - begun - within

    def state(self) -> dict[str, Any]:
        """Return everything but the budget itself as plain values."""
        return {
            "spent": asdict(self.spent),
            "phases": {phase: asdict(work) for phase, work in self.phases.items()},
            "seconds": {**self.seconds, "train": self.train_seconds()},
            "train_phases": self.train_phases,
            "passed_points": self.passed_points,
            "committed_flops": self.committed_flops,
            "waiting_flops": self.waiting_flops,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``."""
        self.spent = Work(**state["spent"])
        self.phases = {phase: Work(**work) for phase, work in state["phases"].items()}
        self.seconds = dict(state["seconds"])
        self.train_phases = dict(state["train_phases"])
        self.passed_points = state["passed_points"]
        self.committed_flops, self.waiting_flops = state["committed_flops"], state["waiting_flops"]
