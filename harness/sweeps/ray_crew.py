"""Cells as tasks of a Ray cluster: of this machine, or of many that share the sweep's folder. Imports ray."""

import logging
import os
import socket
import time
from types import TracebackType
from typing import Any

import ray
from ray.exceptions import RayError

from harness.config.errors import UserError
from harness.config.executor import RayConfig
from harness.sweeps.jobs import run_job_of
from harness.sweeps.looking_on import LookingOn
from harness.sweeps.pool import Job, Message

__all__ = ["RayCrew"]

_CONNECT_SECONDS = 10
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class RayCrew:
    """Tasks of a cluster; Ray never starts one a second time, that is for the pool, which counts."""

    def __init__(self, engine: str, settings: RayConfig) -> None:
        """Connect to the cluster, or start one on this machine.

        Raises:
            UserError: there is no cluster at the address.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._engine, self._settings = engine, settings
        self._jobs: dict[Any, Job] = {}
        self._looking_on = LookingOn()
        address = settings.address or os.environ.get("RAY_ADDRESS")
        with _Connecting(address or "this machine"):
            _check_listens(address)
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
                include_dashboard=None if address else False,
            )

    def start(self, job: Job) -> None:
        """Submit a task; it waits until the cluster has room for it."""
        threads = job["config"]["engine"]["threads"]
        settings = self._settings
        task = ray.remote(run_job_of).options(
            name=job["key"],
            max_retries=0,
            num_cpus=settings.cpus or threads,
            num_gpus=settings.gpus,
            resources=settings.resources or None,
            runtime_env={"env_vars": dict.fromkeys(_THREAD_VARIABLES, str(threads))},
        )
        self._jobs[task.remote(self._engine, job)] = job

    def events(self, seconds: float) -> list[tuple[str, Message]]:
        """Return the jobs that ended, after at most ``seconds``, and how far the others are."""
        if not self._jobs:
            time.sleep(seconds)
            return []
        ready, _ = ray.wait(list(self._jobs), num_returns=1, timeout=seconds)
        found: list[tuple[str, Message]] = []
        for reference in ready:
            job = self._jobs.pop(reference)
            try:
                message = ray.get(reference)
            except RayError as error:
                message = {"event": "died", "cause": f"Ray: {type(error).__name__}"}
            found.append((job["key"], message))
        return found + self._looking_on.progress(self._jobs.values())

    def stop(self) -> None:
        """Cancel the tasks and leave the cluster, which ends if it was started here."""
        for reference in self._jobs:
            ray.cancel(reference, force=True)
        ray.shutdown()


def _check_listens(address: str | None) -> None:
    """Raise OSError if nothing listens at "host:port" or "ray://host:port": Ray itself would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()


class _Connecting:
    """Makes whatever Ray raises when it does not start or connect, plain ``Exception`` too, a UserError."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, Exception):
            reason = " ".join(str(error).split())
            raise UserError(f"no Ray cluster at {self._place}: {reason}") from error
