"""Where a mirror writes: W&B, or TensorBoard's event files. Their packages are extras, imported when a sink is made."""

import importlib.util
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeGuard

from harness.config.errors import UserError
from harness.sweeps.records import Stream
from harness.tracking.mirror import FOLDER, RunSink, Sink

__all__ = ["TARGETS", "check_target", "make_sink"]

TARGETS = ("wandb", "wandb:offline", "wandb:online", "wandb:disabled", "tensorboard")
"""What ``--track`` takes; wandb alone is offline."""
_PACKAGES = {"wandb": ("wandb", "wandb"), "tensorboard": ("tensorboardX", "tensorboard")}
Mode = Literal["offline", "online", "disabled"]
_MODES: dict[str, Mode] = {"": "offline", "offline": "offline", "online": "online", "disabled": "disabled"}
_REPORT = ("tables", "figures", "records", "page.html")


def check_target(target: str) -> None:
    """Raise UserError if ``target`` is unknown or its package is not installed; imports nothing."""
    if target not in TARGETS:
        raise UserError(f"unknown --track {target!r}: {', '.join(TARGETS)}")
    package, extra = _PACKAGES[target.partition(":")[0]]
    if importlib.util.find_spec(package) is None:
        raise UserError(f"--track {target} needs {package}: pip install 'evengrad[{extra}]'")


def make_sink(target: str, folder: Path) -> Sink:
    """Return the sink; what it writes on this machine lies in ``folder``/tracking."""
    check_target(target)
    name, _, mode = target.partition(":")
    if name == "tensorboard":
        return _TensorBoard(folder)
    return _Wandb(folder, _MODES[mode])


class _Wandb:
    """Runs of W&B: the cell is the group, an attempt a run, tables and figures are artifacts of the sweep.

    Rows carry their iteration and are never logged with ``step``: W&B takes steps in rising order alone and drops the
    others, such as an evaluation that is read behind the iterations after it.
    """

    name = "wandb"

    def __init__(self, folder: Path, mode: Mode) -> None:
        self._folder = folder / FOLDER
        self._mode: Mode = mode
        for variable in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR"):  # artifacts wait here, not in the user's home
            os.environ.setdefault(variable, str(self._folder))

    def open(self, cell: Mapping[str, Any], attempt: int, identity: Mapping[str, Any]) -> RunSink:
        label = f"{cell['arm']} on {cell['task']}, {cell['policy']}, seed {cell['seed']}"
        facts = {name: cell[name] for name in ("arm", "task", "policy", "seed", "key")}
        run = self._init(
            group=f"{label} [{cell['key']}]",
            name=f"{label}, attempt {attempt}",
            job_type="attempt",
            config={**facts, "attempt": attempt, **identity},
            tags=[str(cell["arm"])[:64], str(cell["task"])[:64]],
        )
        run.define_metric("train/*", step_metric="train/iteration")
        run.define_metric("eval/*", step_metric="eval/iteration")
        return _WandbRun(run)

    def report(self, sweep: Mapping[str, Any], folder: Path) -> None:
        import wandb

        parts = [folder / part for part in _REPORT if (folder / part).exists()]
        if not parts:
            return
        run = self._init(group=sweep["name"], name=f"{sweep['name']}, report", job_type="report", config={}, tags=[])
        for part in parts:
            artifact = wandb.Artifact(f"{sweep['name']}-{part.stem}", type=part.stem)
            (artifact.add_dir if part.is_dir() else artifact.add_file)(str(part))
            run.log_artifact(artifact)
        run.finish()

    def _init(self, **said: Any) -> Any:
        import wandb

        self._folder.mkdir(exist_ok=True)
        quiet = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True, init_timeout=30.0
        )
        project = os.environ.get("WANDB_PROJECT") or self._folder.resolve().parent.name
        return wandb.init(
            project=project, dir=str(self._folder), mode=self._mode, reinit="create_new", settings=quiet, **said
        )


class _WandbRun:
    """One attempt."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, stream: Stream, row: Mapping[str, Any]) -> None:
        import wandb

        entries: dict[str, Any] = dict(_numbers(stream, row))
        for name, value in row.items():
            if _is_histogram(value):
                histogram = wandb.Histogram(np_histogram=(value["counts"], value["edges"]))
                entries[f"{_prefix(stream, row)}{name}"] = histogram
        self._run.log(entries)

    def finish(self, status: str, cause: str) -> None:
        self._run.summary["status"], self._run.summary["cause"] = status, cause
        self._run.finish(exit_code=0 if status == "completed" else 1)


class _TensorBoard:
    """Event files of one folder a cell and attempt; no step is written twice, so curves do not jump back."""

    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER / self.name

    def open(self, cell: Mapping[str, Any], attempt: int, identity: Mapping[str, Any]) -> RunSink:
        from tensorboardX import SummaryWriter

        return _TensorBoardRun(SummaryWriter(str(self._folder / str(cell["key"]) / f"attempt-{attempt}")), cell)

    def report(self, sweep: Mapping[str, Any], folder: Path) -> None:
        """TensorBoard keeps no artifacts."""


class _TensorBoardRun:
    def __init__(self, writer: Any, cell: Mapping[str, Any]) -> None:
        self._writer = writer
        self._writer.add_text("cell", f"{cell['arm']} on {cell['task']}, {cell['policy']}, seed {cell['seed']}")

    def log(self, stream: Stream, row: Mapping[str, Any]) -> None:
        for name, value in _numbers(stream, row):
            self._writer.add_scalar(name, value, int(row.get("iteration", 0)))

    def finish(self, status: str, cause: str) -> None:
        self._writer.add_text("status", f"{status} {cause}".strip())
        self._writer.close()


def _numbers(stream: Stream, row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the finite numbers of a row under "train/" or "eval/<split>/", tables flattened, nulls left out."""
    prefix = _prefix(stream, row)
    if stream == "evals" and "iteration" in row:
        yield "eval/iteration", row["iteration"]
    for name, value in row.items():
        if isinstance(value, Mapping) and not _is_histogram(value):
            yield from ((f"{prefix}{name}/{key}", float(item)) for key, item in value.items() if _is_number(item))
        elif _is_number(value):
            yield f"{prefix}{name}", float(value)


def _prefix(stream: Stream, row: Mapping[str, Any]) -> str:
    return "train/" if stream == "metrics" else f"eval/{row.get('split', 'split')}/"


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_histogram(value: Any) -> bool:
    return isinstance(value, Mapping) and {"counts", "edges"} <= value.keys()
