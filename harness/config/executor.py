"""Where the cells of a sweep run. Imports no torch."""

from typing import Literal

from pydantic import Field

from harness.config.parts import Section

__all__ = ["ExecutorConfig", "RayConfig", "SlurmConfig"]


class RayConfig(Section):
    """Cells as tasks of a Ray cluster; every node sees the sweep's folder under the same path."""

    address: str | None = Field(
        None,
        description='"auto" or "ray://host:10001"; RAY_ADDRESS, or else a cluster of this machine, if not given',
    )
    cpus: float | None = Field(None, gt=0, description="CPUs of a cell; engine.threads of the run if not given")
    gpus: float = Field(0, ge=0, description="GPUs of a cell")
    resources: dict[str, float] = Field(default_factory=dict, description="custom resources of a cell")


class SlurmConfig(Section):
    """Cells as jobs of Slurm, through submitit; every node sees the sweep's folder under the same path."""

    cluster: Literal["slurm", "local", "debug"] = Field(
        "slurm", description="submitit's executor: Slurm, processes of this machine, or this very process"
    )
    partition: str | None = Field(None, description="the cluster's default if not given")
    minutes: int = Field(240, ge=1, description="time limit of a job; a cell that it ends goes on in another job")
    memory_gb: float = Field(8, gt=0, description="memory of a job, GB")
    gpus: int = Field(0, ge=0, description="GPUs of a job")
    cpus: int | None = Field(None, ge=1, description="CPUs of a job; engine.threads of the run if not given")
    parameters: dict[str, str | int | bool] = Field(
        default_factory=dict, description='further options of sbatch, for instance { account = "lab", qos = "low" }'
    )


class ExecutorConfig(Section):
    """What runs the cells of a sweep; nothing of it is in a cell's key."""

    name: Literal["local", "ray", "slurm"] = Field("local", description="processes of this machine, Ray, or Slurm")
    lease_seconds: float = Field(
        60,
        gt=0,
        description="a process of another machine that is not heard of for so long counts as dead; its cell goes on",
    )
    ray: RayConfig = RayConfig()  # pyright: ignore[reportCallIssue]
    slurm: SlurmConfig = SlurmConfig()  # pyright: ignore[reportCallIssue]
