"""Plan a sweep: read it, check all of it, say what it will cost. Starts nothing and writes nothing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tabulate import tabulate

from harness.compatibility import check_run
from harness.config.errors import UserError
from harness.config.loading import load_sweep
from harness.config.schema import RunConfig
from harness.config.sweep import SweepConfig
from harness.sweeps.engines import DEFAULT_ENGINE, Engine, load_engine
from harness.sweeps.files import dump_json
from harness.sweeps.grid import Cell, dump_config, expand
from harness.sweeps.layout import cell_folder
from harness.sweeps.rates import recorded_rates, span
from harness.sweeps.records import read_status
from harness.sweeps.trials import trial_sweep
from harness.sweeps.tuning import FOLDER, Tuned

__all__ = ["Plan", "plan_sweep", "tuned_plan"]


@dataclass(frozen=True)
class Plan:
    """A checked sweep.

    Attributes:
        sweep: as asked.
        cells: in the order of the sweep; before tuning, with the settings that arms are declared with.
        engine: "module:function".
        estimates: key -> estimated cost of the cell.
        tuning: the sweep of the trials that come first, None if nothing is tuned.
        tuned: what they said, None before it is known.
    """

    sweep: SweepConfig
    cells: list[Cell]
    engine: str
    estimates: Mapping[str, Any]
    tuning: "Plan | None" = None
    tuned: Tuned | None = None

    def table(self, folder: Path, beside: Path | None = None) -> str:
        """Return the cells with their estimated cost, their status in ``folder``, and how long they may take.

        Args:
            folder: of the sweep.
            beside: where studies are whose cells say how long one takes; the folder around ``folder`` if None.
        """
        beside = beside or folder.parent
        parts = []
        if self.tuning is not None:
            parts = [f"[tuning]\n{self.tuning.table(folder / FOLDER, beside)}\n\n[sweep]"]
        rows = []
        for cell in self.cells:
            estimate = self.estimates[cell.key]
            status = "after tuning" if self.tuning else read_status(cell_folder(folder, cell.key))["status"]
            costs = (_number(estimate.flops), _number(estimate.iterations), _number(estimate.updates))
            key = "" if self.tuning else cell.key
            rows.append((cell.arm, cell.task, cell.policy, cell.seed, status, *costs, key))
        heads = ("arm", "task", "policy", "seed", "status", "FLOPs", "iterations", "updates", "key")
        text = tabulate(rows, heads, tablefmt="plain", disable_numparse=True)
        total = _number(sum(estimate.flops for estimate in self.estimates.values()))
        return "\n".join([*parts, text, f"{len(rows)} cells, {total} FLOPs estimated, {self._time(folder, beside)}"])

    def _time(self, folder: Path, beside: Path) -> str:
        rates = recorded_rates(beside)
        left = [c for c in self.cells if read_status(cell_folder(folder, c.key))["status"] != "completed"]
        seconds = [self.estimates[c.key].flops * rates.get((c.task, c.policy), math.nan) for c in left]
        if not all(map(math.isfinite, seconds)):
            return f"time unknown (no cell of such a task and policy is recorded in {beside})"
        return f"about {span(math.fsum(seconds) / self.sweep.workers)} at the rate of cells recorded in {beside}"


def plan_sweep(path: Path, overrides: Mapping[str, Any], engine_spec: str = DEFAULT_ENGINE) -> Plan:
    """Read a sweep file and check all of it, trials included; starts nothing and writes nothing.

    Raises:
        UserError: a setting, a plug-in, an axis, a search or a budget cannot work; the arm is named.
    """
    sweep = load_sweep(path, overrides)
    plan = _planned(sweep, load_engine(engine_spec))
    if sweep.tuning is None:
        return plan
    return replace(plan, tuning=_planned(trial_sweep(sweep), load_engine(engine_spec)))


def tuned_plan(plan: Plan, tuned: Tuned) -> Plan:
    """Return the plan with the settings that its trials have shown to be best.

    Raises:
        UserError: settings that were searched apart do not go together.
    """
    return replace(_planned(plan.sweep, load_engine(plan.engine), tuned), tuned=tuned)


def _planned(sweep: SweepConfig, engine: Engine, tuned: Tuned | None = None) -> Plan:
    cells = expand(sweep, engine.identity, check_run, None if tuned is None else tuned.settings)
    by_run: dict[str, Any] = {}
    for cell in cells:
        run = _without_seed(cell.config)
        if run not in by_run:
            by_run[run] = _estimated(engine, cell)
    return Plan(sweep, cells, engine.spec, {cell.key: by_run[_without_seed(cell.config)] for cell in cells})


def _number(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.3g}"


def _without_seed(config: RunConfig) -> str:
    return dump_json({key: value for key, value in dump_config(config).items() if key != "seed"})


def _estimated(engine: Engine, cell: Cell) -> Any:
    try:
        return engine.estimate(cell.config)
    except UserError as error:
        raise UserError(f"arm {cell.arm}: {error}") from error
