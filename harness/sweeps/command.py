"""What ``evengrad sweep`` and ``evengrad train`` do: plan, run what is not yet done, compact, report."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from tabulate import tabulate

from harness.compatibility import check_run
from harness.config.errors import UserError
from harness.config.loading import load_run, load_sweep
from harness.config.schema import RunConfig, SweepConfig
from harness.sweeps.engines import DEFAULT_ENGINE, Engine, execute, load_engine
from harness.sweeps.files import dump_json
from harness.sweeps.grid import Cell, dump_config, expand, schedule
from harness.sweeps.layout import cell_folder, is_study, read_sweep
from harness.sweeps.local import Outcome, run_cells
from harness.sweeps.progress import Progress
from harness.sweeps.records import read_json, read_status
from harness.sweeps.study import StudyFolder, records_of

__all__ = ["DEFAULT_FOLDER", "Plan", "plan_sweep", "run_plan", "train", "write_reports"]

DEFAULT_FOLDER = Path("results/runs")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """A checked sweep.

    Attributes:
        sweep: as asked.
        cells: in the order of the sweep.
        engine: "module:function".
        estimates: key -> estimated cost of the cell.
    """

    sweep: SweepConfig
    cells: list[Cell]
    engine: str
    estimates: Mapping[str, Any]

    def table(self, folder: Path) -> str:
        """Return the cells with their estimated cost and their status in ``folder``."""
        heads = ("arm", "task", "policy", "seed", "status", "FLOPs", "iterations", "updates", "key")
        rows = [
            (
                *(cell.arm, cell.task, cell.policy, cell.seed, read_status(cell_folder(folder, cell.key))["status"]),
                *(_number(estimate.flops), _number(estimate.iterations), _number(estimate.updates), cell.key),
            )
            for cell, estimate in ((cell, self.estimates[cell.key]) for cell in self.cells)
        ]
        total = _number(sum(estimate.flops for estimate in self.estimates.values()))
        text = tabulate(rows, heads, tablefmt="plain", disable_numparse=True)
        return f"{text}\n{len(rows)} cells, {total} FLOPs estimated"


def plan_sweep(path: Path, overrides: Mapping[str, Any], engine_spec: str = DEFAULT_ENGINE) -> Plan:
    """Read a sweep file and check all of it; starts nothing and writes nothing.

    Raises:
        UserError: a setting, a plug-in, an axis or a budget cannot work; the arm is named.
    """
    sweep = load_sweep(path, overrides)
    engine = load_engine(engine_spec)
    cells = expand(sweep, engine.identity, check_run)
    by_run: dict[str, Any] = {}
    for cell in cells:
        run = _without_seed(cell.config)
        if run not in by_run:
            by_run[run] = _estimated(engine, cell)
    return Plan(sweep, cells, engine_spec, {cell.key: by_run[_without_seed(cell.config)] for cell in cells})


def run_plan(
    plan: Plan,
    folder: Path,
    say: Say,
    *,
    workers: int | None = None,
    retry_failed: bool = False,
    report: bool = True,
) -> int:
    """Run the cells that are not completed, write the records and the report.

    Args:
        plan: what to run.
        folder: the sweep's folder.
        say: prints a line.
        workers: cells at a time; the sweep's own number if None.
        retry_failed: run cells again that failed before.
        report: whether to write records, tables and figures.

    Returns:
        The exit status: 1 if any cell failed, else 0.

    Raises:
        UserError: ``folder`` is not this sweep's, or a completed cell's records were damaged.
    """
    with StudyFolder.open(folder, plan.sweep, plan.cells) as study:
        if study.dropped:
            say(f"{len(study.dropped)} cells of an earlier form of this sweep stay in {folder / 'cells'}, unreported")
        before = {cell.key: read_status(study.cell(cell.key)) for cell in plan.cells}
        settled = ("completed",) if retry_failed else ("completed", "failed")
        todo = schedule(cell for cell in plan.cells if before[cell.key]["status"] not in settled)
        counts = [sum(status["status"] == word for status in before.values()) for word in settled]
        for cell in plan.cells:
            if before[cell.key]["status"] == "completed":  # it may have been killed just before this
                (study.cell(cell.key) / "checkpoint").unlink(missing_ok=True)
        outcomes: dict[str, Outcome] = {}
        if todo:
            progress = Progress(len(plan.cells), counts[0], sum(counts[1:]), Console(stderr=True, highlight=False))
            with progress:
                outcomes = run_cells(
                    todo,
                    {cell.key: study.cell(cell.key) for cell in todo},
                    workers=min(workers or plan.sweep.workers, len(todo)),
                    log_folder=folder,
                    listener=progress,
                    engine=plan.engine,
                )
        if report:
            _report(plan, study, say)
        return _conclude(plan, study, outcomes, say)


def write_reports(
    folder: Path,
    out: Path,
    *,
    baseline: str | None = None,
    figures: Sequence[str] | None = None,
    style: str | None = None,
    formats: Sequence[str] | None = None,
    say: Say = lambda _: None,
) -> list[Path]:
    """Write the tables and figures of a sweep's folder or of committed records.

    Args:
        folder: a sweep's folder (its records are made anew), or one that holds the CSV files, or records/ with them.
        out: gets tables/ and figures/.
        baseline: an arm; the sweep's own if None.
        figures: names; all if None.
        style: a matplotlib style file.
        formats: of the figures; all if None.
        say: told of each figure that is left out for want of data.

    Raises:
        UserError: there are no records, a name is unknown, or a figure asked for by name has no data.
    """
    from harness.reports.report import FORMATS, write_report
    from harness.reports.study import load_study

    if is_study(folder):
        baseline = baseline or read_sweep(folder)["baseline"]
    try:
        chosen = {"baseline": baseline, "figures": figures, "style": style, "formats": formats or FORMATS, "say": say}
        return write_report(load_study(records_of(folder)), out, **chosen)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


def train(path: Path, overrides: Mapping[str, Any], folder: Path | None, say: Say, engine_spec: str) -> int:
    """Run or resume one run in this process. Returns the exit status."""
    config = load_run(path, overrides)
    engine = load_engine(engine_spec)
    check_run(config)
    engine.estimate(config)
    place = folder or DEFAULT_FOLDER / path.stem
    identity = engine.identity(config)
    shown = {"tenths": -1}

    def notify(message: Mapping[str, Any]) -> None:
        tenths = int(message["fraction"] * 10)
        if tenths > shown["tenths"]:
            shown["tenths"] = tenths
            score = message.get("score")
            say(f"{message['fraction']:.0%} of the budget" + ("" if score is None else f", score {score:.3f}"))

    try:
        if not _already_there(place, identity):
            execute(engine, config, place, identity, notify)
    except engine.failure as error:
        say(f"failed: {' '.join(str(error).split())}")
        return 1
    say(f"completed: {place}")
    return 0


def _already_there(place: Path, identity: Mapping[str, Any]) -> bool:
    """Whether this very run is completed in ``place``; another run there is for the folder's lock to refuse."""
    if read_status(place)["status"] != "completed":
        return False
    return dump_json(read_json(place / "config.json")) == dump_json(identity)


def _report(plan: Plan, study: StudyFolder, say: Say) -> None:
    """Write the records, and of a sweep with any completed cell the tables and figures."""
    from harness.sweeps.compact import compact

    compact(study.path)
    if any(read_status(study.cell(cell.key))["status"] == "completed" for cell in plan.cells):
        say(f"{len(write_reports(study.path, study.path))} tables and figures in {study.path}")


def _conclude(plan: Plan, study: StudyFolder, outcomes: Mapping[str, Outcome], say: Say) -> int:
    after = {cell.key: read_status(study.cell(cell.key)) for cell in plan.cells}
    failed = [cell for cell in plan.cells if after[cell.key]["status"] != "completed"]
    say(f"{len(plan.cells) - len(failed)} of {len(plan.cells)} cells completed, {len(outcomes)} run now")
    if not failed:
        return 0
    causes = {key: status["cause"] or status["status"] for key, status in after.items()}
    causes |= {key: outcome.cause for key, outcome in outcomes.items()}
    rows = [(c.arm, c.task, c.policy, c.seed, causes[c.key]) for c in failed]
    say(tabulate(rows, ("failed arm", "task", "policy", "seed", "cause"), tablefmt="plain", disable_numparse=True))
    say("to run them again: the same command with --retry-failed")
    return 1


def _number(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.3g}"


def _without_seed(config: RunConfig) -> str:
    return dump_json({key: value for key, value in dump_config(config).items() if key != "seed"})


def _estimated(engine: Engine, cell: Cell) -> Any:
    try:
        return engine.estimate(cell.config)
    except UserError as error:
        raise UserError(f"arm {cell.arm}: {error}") from error
