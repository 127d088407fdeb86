"""How far the cells of a sweep's folder are, for ``evengrad status``: reads, never writes. Standard library only."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.errors import CorruptRecordError, UserError
from harness.sweeps.layout import cell_folder, is_study, read_sweep
from harness.sweeps.occupied import is_held
from harness.sweeps.records import read_json, read_lines

__all__ = ["STATES", "CellState", "cell_states", "seconds_to_go"]

STATES = ("completed", "running", "stalled", "waiting", "failed", "damaged")
"""stalled: begun, and nobody holds it, so that the next start of the sweep goes on with it; waiting: not begun."""
_SPENT = {"flops": "spent_flops", "tokens": "generated_tokens", "updates": "updates"}


@dataclass(frozen=True)
class CellState:
    """One cell of a folder.

    Attributes:
        key: names its folder.
        label: for a reader.
        state: one of ``STATES``.
        cause: why it failed, or what is damaged.
        fraction: share of the budget that its records have reached, in [0, 1]; NaN where the axis is seconds and no
            evaluation is there.
        score: of the last evaluation; None before the first.
        seconds: what a completed cell took; None where it is not known.
    """

    key: str
    label: str
    state: str
    cause: str
    fraction: float
    score: float | None
    seconds: float | None


def cell_states(folder: Path) -> list[CellState]:
    """Return the cells of a sweep's folder in its order, or the one of a run's folder.

    Raises:
        UserError: ``folder`` is neither.
    """
    if is_study(folder):
        cells = read_sweep(folder)["cells"]
        return [_state(cell_folder(folder, c["key"]), c["key"], _label(c), c["config"]["budget"]) for c in cells]
    if (folder / "config.json").is_file():
        config = read_json(folder / "config.json").get("config", {})
        label = f"{config.get('objective', {}).get('name', 'run')}, seed {config.get('seed', 'unknown')}"
        return [_state(folder, folder.name, label, config.get("budget", {}))]
    raise UserError(f"{folder} is the folder of neither a sweep nor a run (sweep.json and config.json are missing)")


def seconds_to_go(states: Sequence[CellState]) -> tuple[float, int]:
    """Return seconds until all cells that have not failed are done, and at how many cells at a time.

    Cells are taken to be as long as the completed ones on the average; NaN while there is none. As many run at a time
    as run now, or one.
    """
    known = [state.seconds for state in states if state.state == "completed" and state.seconds is not None]
    at_a_time = max(1, sum(state.state == "running" for state in states))
    left = sum(1 - _number(state.fraction) for state in states if state.state in ("running", "stalled", "waiting"))
    return (sum(known) / len(known) * left / at_a_time if known else math.nan), at_a_time


def _number(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _label(cell: Mapping[str, Any]) -> str:
    return f"{cell['arm']} on {cell['task']}, {cell['policy']}, seed {cell['seed']}"


def _state(path: Path, key: str, label: str, budget: Mapping[str, Any]) -> CellState:
    try:
        return _read(path, key, label, budget)
    except CorruptRecordError as error:
        return CellState(key, label, "damaged", str(error), 0.0, None, None)


def _read(path: Path, key: str, label: str, budget: Mapping[str, Any]) -> CellState:
    file = path / "status.json"
    status = read_json(file) if file.is_file() else {"status": "waiting"}
    state = str(status.get("status", "waiting"))
    if state == "running" and not is_held(path):
        state = "stalled"
    evals = read_lines(path, "evals")
    score = evals[-1].get("score") if evals else None
    seconds = None
    if state == "completed":
        totals = [row for row in read_lines(path, "timing") if row.get("total")]
        seconds = totals[-1].get("seconds") if totals else None
    fraction = 1.0 if state == "completed" else _fraction(read_lines(path, "metrics"), evals, budget)
    return CellState(key, label, state, str(status.get("cause", "")), fraction, score, seconds)


def _fraction(
    metrics: Sequence[Mapping[str, Any]], evals: Sequence[Mapping[str, Any]], budget: Mapping[str, Any]
) -> float:
    """Return the share of the budget that the last record stands at."""
    column = _SPENT.get(str(budget.get("axis")))
    if column is None:
        return float(evals[-1]["fraction"]) if evals else math.nan
    spent = metrics[-1].get(column) if metrics else 0.0
    return min(1.0, float(spent or 0.0) / float(budget["amount"]))
