"""What one process says of its measurement, and how it is asked. No torch."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = ["Measured", "in_new_process"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Measured:
    """One trainer on one workload, after a first iteration that does not count.

    Attributes:
        seconds: of each iteration.
        peak_bytes: resident memory of the process at its highest during the iterations.
        tokens: generated an iteration, mean.
        phase_seconds: of all iterations, by phase; empty where the trainer does not say.
        phase_flops: useful FLOPs of all iterations, by the same phases.
        executed_flops: with padding and recomputation.
    """

    seconds: list[float]
    peak_bytes: int
    tokens: float
    phase_seconds: dict[str, float] = field(default_factory=dict)
    phase_flops: dict[str, int] = field(default_factory=dict)
    executed_flops: dict[str, int] = field(default_factory=dict)


def in_new_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Return what ``function`` returns in a process of its own, whose memory and caches nothing else has used."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
