"""What ``evengrad sweep`` and ``evengrad train`` do: plan, run what is not yet done, compact, report."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from tabulate import tabulate

from harness.compatibility import check_run
from harness.config.errors import StorageError
from harness.config.loading import load_run
from harness.sweeps.engines import execute, load_engine
from harness.sweeps.executors import check_executor, run_cells
from harness.sweeps.files import dump_json
from harness.sweeps.grid import Cell, schedule
from harness.sweeps.planning import Plan, tuned_plan
from harness.sweeps.pool import Outcome
from harness.sweeps.progress import Progress
from harness.sweeps.records import read_json, read_status
from harness.sweeps.reporting import write_reports
from harness.sweeps.reuse import studies_in, take_over
from harness.sweeps.storage import writing
from harness.sweeps.study import StudyFolder, enter
from harness.sweeps.tuning import FOLDER, WORST, judge, write_tuning

__all__ = ["DEFAULT_FOLDER", "run_plan", "run_sweep", "train"]

DEFAULT_FOLDER = Path("results/runs")
Say = Callable[[str], None]


def run_sweep(plan: Plan, folder: Path, say: Say, **options: Any) -> int:
    """Run the trials of a tuned sweep, choose, and run the sweep; of any other, run it (``run_plan``).

    Raises:
        UserError: as ``run_plan``; or a trial was not run to its end, and not because it diverged.
    """
    if plan.tuning is not None:
        say(f"tuning: {len(plan.tuning.cells)} cells of trials in {folder / FOLDER}")
        run_plan(plan.tuning, folder / FOLDER, say, **{**options, "report": False})
        tuned = judge(plan.sweep, plan.tuning.cells, folder / FOLDER)
        diverged = sum(found.num_diverged for found in tuned.judged)
        if diverged:
            say(f"tuning: {diverged} cells of trials diverged and count as the worst score, {WORST:g}")
        plan = tuned_plan(plan, tuned)
        for line in tuned.lines():
            say(line)
    return run_plan(plan, folder, say, **options)


def run_plan(
    plan: Plan,
    folder: Path,
    say: Say,
    *,
    workers: int | None = None,
    retry_failed: bool = False,
    join: bool = False,
    report: bool = True,
    reuse: Sequence[Path] = (),
) -> int:
    """Run the cells that are not completed, write the records and the report.

    Args:
        plan: what to run.
        folder: the sweep's folder.
        say: prints a line.
        workers: cells at a time; the sweep's own number if None.
        retry_failed: run cells again that failed before.
        join: share the work of a sweep that another process runs in ``folder``; that one reports.
        report: whether to write records, tables and figures.
        reuse: cells that sweeps in these folders have completed are copied, not run.

    Returns:
        The exit status: 1 if any cell failed, else 0.

    Raises:
        UserError: ``folder`` is not this sweep's, or a completed cell's records were damaged.
        StorageError: a disk is full; the cells go on from their checkpoints when the same command is given again.
    """
    check_executor(plan.sweep.executor)
    with enter(folder, plan.sweep, plan.cells, join) as study:
        for line in study.dropped_lines():
            say(line)
        others = [] if join else [other for place in reuse for other in studies_in(place)]
        taken = take_over(plan.cells, folder, others)
        if taken:
            say(f"{len(taken)} of {len(plan.cells)} cells were completed by another sweep: copied")
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
            retried = frozenset(cell.key for cell in todo if before[cell.key]["status"] == "failed")
            outcomes = _run(plan, study, todo, progress, workers or plan.sweep.workers, retried, join)
        study.check()
        if report and not join:
            with writing(folder):
                _report(plan, study, say)
        return _conclude(plan, study, outcomes, say)


def _run(
    plan: Plan,
    study: StudyFolder,
    todo: Sequence[Cell],
    progress: Progress,
    workers: int,
    retried: frozenset[str],
    join: bool,
) -> dict[str, Outcome]:
    """Run cells and return how each ended.

    Raises:
        StorageError: one could not be written.
    """
    with progress:
        outcomes = run_cells(
            todo,
            {cell.key: study.cell(cell.key) for cell in todo},
            workers=min(workers, len(todo)),
            log_folder=study.path,
            listener=progress,
            engine=plan.engine,
            executor=plan.sweep.executor,
            retried=retried,
            log_prefix=f"worker-{socket.gethostname()}-{os.getpid()}-" if join else "worker-",
        )
    stopped = [outcome.cause for outcome in outcomes.values() if outcome.status == "stopped"]
    if stopped:
        study.check()
        raise StorageError(stopped[0])
    return outcomes


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

    records = compact(study.path)
    if plan.tuned is not None:
        write_tuning(records, plan.tuned.rows())
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
