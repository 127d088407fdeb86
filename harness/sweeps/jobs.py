"""What a worker of any kind does with a job: run the cell in its folder, and say in one message how that ended."""

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.config.errors import BusyError, CompletedError, LostLeaseError, StorageError, UserError
from harness.config.schema import RunConfig
from harness.sweeps.engines import Engine, execute, load_engine
from harness.sweeps.grid import key_of
from harness.sweeps.storage import is_of_storage

__all__ = ["crash_cause", "run_job", "run_job_of"]


def run_job(engine: Engine, job: Mapping[str, Any], notify: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run a job to its end.

    Args:
        engine: runs it.
        job: "key", "folder", "config" and "patience_seconds" of a cell.
        notify: told {"fraction", "score", "iteration"} as it goes.

    Returns:
        The last message of the job, as ``harness.sweeps.pool.Crew`` describes it; an error nobody foresaw is raised.
    """
    key, path = job["key"], Path(job["folder"])
    try:
        config = RunConfig.model_validate(job["config"])
        identity = engine.identity(config)
        if key_of(identity) != key:
            raise UserError("its source was changed while the sweep runs: start the sweep again")
        execute(engine, config, path, identity, notify, job["patience_seconds"])
    except CompletedError:  # by another process, between the look of the sweep's process and this one's
        pass
    except (BusyError, LostLeaseError) as error:
        return {"event": "busy", "cause": _line(error)}
    except StorageError as error:
        return {"event": "ended", "status": "stopped", "cause": _line(error)}
    except OSError as error:
        if not is_of_storage(error):
            raise
        return {"event": "ended", "status": "stopped", "cause": f"no room to write: {_line(error)}"}
    except (engine.failure, UserError) as error:
        return {"event": "ended", "status": "failed", "cause": _line(error)}
    return {"event": "ended", "status": "completed", "cause": ""}


def run_job_of(engine: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Run a job of ``engine`` ("module:function") on a machine of a cluster; an error is its last message too."""
    with _LastMessage() as last:
        last.message = run_job(load_engine(engine), job, lambda _: None)
    return last.message


class _LastMessage:
    """Makes an error that nobody foresaw a message: it ends a job, not the worker, which a cluster gives other jobs."""

    message: dict[str, Any]

    def __enter__(self) -> "_LastMessage":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind is None or not isinstance(error, Exception):
            return False
        traceback.print_exception(kind, error, trace)
        self.message = {"event": "crashed", "cause": crash_cause(kind, error, trace)}
        return True


def crash_cause(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> str:
    """Return one line for an error nobody foresaw, with its place."""
    frames = traceback.extract_tb(trace)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{kind.__name__}: {error}{where}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
