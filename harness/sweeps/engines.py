"""Find the engine that runs cells, without importing it before it is needed."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.errors import UserError
from harness.config.schema import RunConfig
from harness.sweeps.lease import PATIENCE_SECONDS
from harness.sweeps.processes import Follower, launch, rank
from harness.sweeps.run_folder import RunFolder

__all__ = ["DEFAULT_ENGINE", "Engine", "Notify", "execute", "load_engine"]

DEFAULT_ENGINE = "harness.engine.cells:run_cell"
Notify = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Engine:
    """What a module must give to run cells.

    Attributes:
        spec: "module:function".
        run_cell: runs or resumes a cell and ends with ``folder.finish``.
        identity: everything a cell is a pure function of.
        failure: the error that it raises for a run that failed and is recorded as such.
        estimate: cost of a cell before it runs; UserError if the budget does not cover one update.
    """

    spec: str
    run_cell: Callable[[RunConfig, Any, Notify], None]
    identity: Callable[[RunConfig], Mapping[str, Any]]
    failure: type[Exception]
    estimate: Callable[[RunConfig], Any]


def load_engine(spec: str = DEFAULT_ENGINE) -> Engine:
    """Return the engine ``module:function``.

    The module also gives ``identity`` and ``RunFailed``, and ``estimate_cell`` or else the one of
    ``harness.engine.estimate``, which is imported when it is called.
    """
    module_name, _, function = spec.partition(":")
    try:
        module = importlib.import_module(module_name)
        run_cell = getattr(module, function)
    except (ModuleNotFoundError, AttributeError) as error:
        raise UserError(f"no engine {spec!r}: {error}") from error
    return Engine(spec, run_cell, module.identity, module.RunFailed, getattr(module, "estimate_cell", _estimate))


def execute(
    engine: Engine,
    config: RunConfig,
    path: Path,
    identity: Mapping[str, Any],
    notify: Notify,
    patience_seconds: float = PATIENCE_SECONDS,
) -> None:
    """Run a cell in its folder to its end; whatever stops it is recorded there, but for what another start mends.

    A run of several processes is started as such, unless this is one of them.

    Raises:
        CompletedError: it is completed; BusyError: a living process runs it.
        StorageError: the place cannot be written. LostLeaseError: another process has taken over.
    """
    if config.engine.processes > 1 and rank() is None:
        cause = launch(engine.spec, config, path, notify)
        if cause:
            raise engine.failure(cause)
        return
    if rank():
        engine.run_cell(config, Follower(), lambda _: None)
        return
    with RunFolder.open(path, identity, patience_seconds=patience_seconds) as folder:

        def tell(message: dict[str, Any]) -> None:
            folder.tell(message)
            notify(message)

        engine.run_cell(config, folder, tell)
        if not folder.finished:
            raise RuntimeError("the engine returned and did not finish the cell")


def _estimate(config: RunConfig) -> Any:
    from harness.engine.estimate import estimate_cell

    return estimate_cell(config)
