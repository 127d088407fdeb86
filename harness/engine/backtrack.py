"""Hold a trust region after a step: keep it, keep a part of it, or undo it."""

from collections.abc import Callable

import torch

from harness.engine.ledger import BudgetExhausted
from harness.engine.metrics import StepMetrics
from harness.engine.optimizer import Optimizer
from harness.engine.run import Run

__all__ = ["MAX_SHRINKS", "Undo", "hold"]

MAX_SHRINKS = 10


class Undo:
    """What an optimizer was before its next step."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._state = {name: value.clone() for name, value in optimizer.tensors()}

    @torch.no_grad()
    def shrink(self, factor: float) -> None:
        """Keep ``factor`` of how far the parameters stand from where they were."""
        for name, value in self._optimizer.tensors():
            if name.startswith("weights."):
                before = self._state[name]
                value.copy_(before + factor * (value - before))

    def undo(self) -> None:
        """Put parameters and moments back; the step stays counted."""
        self._optimizer.restore(self._state, self._optimizer.steps)


def hold(run: Run, undo: Undo, measure: Callable[[], dict[str, float]], metrics: StepMetrics) -> bool:
    """Shrink the last step until the region is content with it, or undo it after ``MAX_SHRINKS`` times.

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
    kept, shrinks, stop = 1.0, 0, False
    try:
        while True:
            verdict = run.region.update(run.coef, measure()["divergence"])
            stop = run.settle(verdict)
            if verdict.scale == 1:
                break
            shrinks += 1
            if verdict.scale == 0 or shrinks > MAX_SHRINKS:
                undo.undo()
                kept = 0.0
                break
            undo.shrink(verdict.scale)
            kept *= verdict.scale
    except BudgetExhausted:
        undo.undo()
        run.ledger.cancel_update()
        raise
    metrics.add("step_kept_frac", kept)
    metrics.add("backtracks", shrinks)
    return stop
