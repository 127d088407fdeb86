"""Choose who runs the cells of a sweep: processes of this machine, a Ray cluster, or Slurm."""

import importlib.util
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.config.errors import UserError
from harness.config.executor import ExecutorConfig
from harness.sweeps.engines import DEFAULT_ENGINE
from harness.sweeps.grid import Cell
from harness.sweeps.pool import Crew, Listener, Outcome, Pool

__all__ = ["check_executor", "run_cells"]

_EXTRAS = {"ray": ("ray", "ray"), "slurm": ("submitit", "slurm")}


def check_executor(executor: ExecutorConfig) -> None:
    """Raise UserError if the package of an executor is not installed; imports nothing."""
    module, extra = _EXTRAS.get(executor.name, ("", ""))
    if module and importlib.util.find_spec(module) is None:
        raise UserError(
            f"executor {executor.name!r} needs {module}, which is not installed: pip install 'evengrad[{extra}]', "
            "or take --executor local"
        )


def run_cells(
    cells: Iterable[Cell],
    folders: Mapping[str, Path],
    *,
    workers: int,
    log_folder: Path,
    listener: Listener,
    engine: str = DEFAULT_ENGINE,
    executor: ExecutorConfig | None = None,
    retried: frozenset[str] = frozenset(),
    log_prefix: str = "worker-",
) -> dict[str, Outcome]:
    """Run the cells, in their order, ``workers`` at a time.

    Args:
        cells: what to run.
        folders: key -> folder of the cell.
        workers: cells at a time.
        log_folder: gets what workers print, by executor: ``worker-0.log``, ``slurm/``; Ray keeps it in its session.
        listener: is told of everything, in this thread.
        engine: "module:function".
        executor: where they run; processes of this machine if None.
        retried: keys of cells that failed before and are to run all the same.
        log_prefix: of the names of local workers' logs.

    Returns:
        Key -> outcome; a cell that was not begun since a disk is full has none.

    Raises:
        UserError: the executor's package is missing, or it cannot start.
    """
    executor = executor or ExecutorConfig()  # pyright: ignore[reportCallIssue]
    check_executor(executor)
    crew = _crew(executor, engine, log_folder, log_prefix)
    pool = Pool(deque(cells), folders, crew, listener, executor.lease_seconds, retried)
    pool.run(workers)
    return pool.outcomes


def _crew(executor: ExecutorConfig, engine: str, log_folder: Path, log_prefix: str) -> Crew:
    if executor.name == "ray":
        from harness.sweeps.ray_crew import RayCrew

        return RayCrew(engine, executor.ray)
    if executor.name == "slurm":
        from harness.sweeps.slurm_crew import SlurmCrew

        return SlurmCrew(engine, executor.slurm, log_folder / "slurm")
    from harness.sweeps.local import LocalCrew

    return LocalCrew(engine, log_folder, log_prefix)
