"""Cells as jobs of Slurm, through submitit; its local executor runs them here. Imports submitit."""

import time
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError, UncompletedJobError

from harness.config.errors import UserError
from harness.config.executor import SlurmConfig
from harness.sweeps.jobs import run_job_of
from harness.sweeps.looking_on import LookingOn
from harness.sweeps.pool import Job, Message

__all__ = ["SlurmCrew"]

_POLL_SECONDS = 0.1
_MINUTE = 60


class SlurmCrew:
    """Jobs of a cluster, one a cell."""

    def __init__(self, engine: str, settings: SlurmConfig, log_folder: Path) -> None:
        """Look for the cluster.

        Args:
            engine: "module:function".
            settings: resources of a job.
            log_folder: gets submitit's files: what is run, and what jobs print.

        Raises:
            UserError: there is no Slurm here, or it knows a setting not.
        """
        self._engine, self._settings = engine, settings
        self._jobs: list[tuple[Any, Job]] = []
        self._looking_on = LookingOn()
        try:
            self._executor = submitit.AutoExecutor(log_folder, cluster=settings.cluster)
        except RuntimeError as error:
            raise UserError(f"executor 'slurm' cannot start: {error}; run it where sbatch is") from error

    def start(self, job: Job) -> None:
        """Submit a job.

        Raises:
            UserError: sbatch refuses it.
        """
        settings = self._settings
        cpus = settings.cpus or job["config"]["engine"]["threads"]
        further: dict[str, Any] = {}
        if settings.cluster == "slurm":
            further = {"slurm_additional_parameters": dict(settings.parameters), "slurm_setup": _threads(cpus)}
            if settings.partition:
                further["slurm_partition"] = settings.partition
        try:
            self._executor.update_parameters(
                name=f"evengrad-{job['key']}",
                timeout_min=settings.minutes,
                mem_gb=settings.memory_gb,
                cpus_per_task=cpus,
                gpus_per_node=settings.gpus,
                **further,
            )
            self._jobs.append((self._executor.submit(run_job_of, self._engine, job), job))
        except (FailedJobError, FailedSubmissionError, OSError) as error:
            raise UserError(f"sbatch refuses a job: {' '.join(str(error).split())}") from error

    def events(self, seconds: float) -> list[tuple[str, Message]]:
        """Return the jobs that ended, after at most ``seconds``, and how far the others are."""
        deadline = time.monotonic() + seconds
        while True:
            found = [(job["key"], _last(handle)) for handle, job in self._jobs if handle.done()]
            if found or time.monotonic() >= deadline:
                ended = {key for key, _ in found}
                self._jobs = [(handle, job) for handle, job in self._jobs if job["key"] not in ended]
                return found + self._looking_on.progress(job for _, job in self._jobs)
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Cancel the jobs that have not ended."""
        for handle, _ in self._jobs:
            handle.cancel(check=False)


def _last(handle: Any) -> Message:
    try:
        return handle.result()
    except FailedJobError as error:
        return {"event": "crashed", "cause": " ".join(str(error).split())[-300:]}
    except UncompletedJobError:
        return {"event": "died", "cause": f"job {handle.job_id}: {handle.state}"}


def _threads(cpus: int) -> list[str]:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return [f"export {name}={cpus}" for name in names]
