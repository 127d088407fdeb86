"""Hold a trust region after a step: keep it, keep a part of it, or undo it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from harness.engine.ledger import MAX_SHRINKS, BudgetExhausted
from harness.engine.metrics import StepMetrics
from harness.engine.optimizer import Optimizer
from harness.engine.run import Run

__all__ = ["Undo", "hold"]

_WEIGHTS = "weights."


class Undo:
    """What an optimizer was before its next step."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._steps = optimizer.steps, optimizer.moment_steps
        self._state = {name: value.clone() for name, value in optimizer.tensors()}

    @torch.no_grad()
    def shrink(self, factor: float) -> None:
        """Keep ``factor`` of how far the parameters stand from where they were."""
        for name, value in self._optimizer.tensors():
            if name.startswith(_WEIGHTS):
                before = self._state[name]
                value.copy_(before + factor * (value - before))
        self._optimizer.sync()

    def undo(self, *, counted: bool) -> None:
        """Put parameters and moments back; the step stays counted as an update or does not."""
        steps, moment_steps = self._steps
        self._optimizer.restore(self._state, steps + counted, moment_steps)

    @contextmanager
    def before(self) -> Iterator[None]:
        """Let the parameters be what they were before the step inside a block."""
        now = {name: value.clone() for name, value in self._optimizer.tensors() if name.startswith(_WEIGHTS)}
        self._put(self._state)
        try:
            yield
        finally:
            self._put(now)

    @torch.no_grad()
    def _put(self, tensors: Mapping[str, Tensor]) -> None:
        for name, value in self._optimizer.tensors():
            if name.startswith(_WEIGHTS):
                value.copy_(tensors[name])
        self._optimizer.sync()


def hold(run: Run, undo: Undo, measure: Callable[[], dict[str, float]], metrics: StepMetrics) -> bool:
    """Shrink the last step until the region is content with it, or undo it after ``MAX_SHRINKS`` times.

    A step is part of the run once a measurement has vouched for it: points of the budget that are reached before are
    those of the policy before the step.

    Args:
        run: its region is measured "after_step".
        undo: of before the step.
        measure: charges a forward pass and returns the region's "divergence".
        metrics: gets "step_kept_frac", the share of the step that is left, and "backtracks".

    Returns:
        Whether the rollout's updates end.

    Raises:
        BudgetExhausted: a measurement does not fit; the step, which nothing vouches for, is undone and not counted.
    """
    points: list[int] = []
    try:
        with run.ledger.points_wait(points):
            kept, shrinks, stop = _shrink(run, undo, measure)
            if run.ledger.overdrawn:  # only a clock can say so
                raise BudgetExhausted
    except BudgetExhausted:
        undo.undo(counted=False)
        run.ledger.cancel_update()
        _pass(run, points)
        raise
    if points:
        with undo.before():
            _pass(run, points)
    metrics.add("step_kept_frac", kept)
    metrics.add("backtracks", shrinks)
    return stop


def _shrink(run: Run, undo: Undo, measure: Callable[[], dict[str, float]]) -> tuple[float, int, bool]:
    """Return what is kept of the step, how often it was shrunk, and whether the rollout's updates end."""
    kept, shrinks = 1.0, 0
    while True:
        verdict = run.region.update(run.coef, measure()["divergence"])
        stop = run.settle(verdict)
        if verdict.scale == 1:
            return kept, shrinks, stop
        if verdict.scale == 0 or shrinks == MAX_SHRINKS:
            undo.undo(counted=True)
            return 0.0, shrinks, stop
        undo.shrink(verdict.scale)
        kept *= verdict.scale
        shrinks += 1


def _pass(run: Run, points: Iterable[int]) -> None:
    for point in points:
        if run.ledger.on_point is not None:
            run.ledger.on_point(point)
