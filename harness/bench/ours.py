"""An iteration of this engine, as a run makes it: with its records, log and checks."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.bench.measured import Measured
from harness.bench.workloads import WORKLOADS, make_config
from harness.engine.identity import identity
from harness.engine.memory import peak_memory_bytes, reset_peak_memory
from harness.engine.recorder import Recorder
from harness.engine.run import Run, build_run
from harness.engine.train import iterate
from harness.sweeps.run_folder import RunFolder

__all__ = ["iterations", "opened"]

_PHASES = {"sample": ("prefill", "decode"), "old": ("old",), "update": ("update",)}


@contextmanager
def opened(workload: str, threads: int) -> Iterator[tuple[Run, Recorder]]:
    """Build a run and what records it in a folder of its own, its clock running."""
    config = make_config(workload, threads)
    run = build_run(config)
    if WORKLOADS[workload].exact_length:
        run.policy.tokenizer.stop_ids = frozenset()
    with tempfile.TemporaryDirectory() as name, RunFolder.open(Path(name), identity(config)) as folder:
        run.ledger.start()
        yield run, Recorder(run, folder, lambda _: None)
        folder.finish("completed")


def iterations(workload: str, threads: int, rounds: int) -> Measured:
    """Make a first iteration and then measure ``rounds`` of them."""
    seconds: list[float] = []
    with opened(workload, threads) as (run, recorder):
        iterate(run, recorder)
        before, timed, tokens = _flops(run), _seconds(run), run.ledger.spent.generated_tokens
        reset_peak_memory()
        for _ in range(rounds):
            begun = time.perf_counter()
            iterate(run, recorder)
            seconds.append(time.perf_counter() - begun)
        peak = peak_memory_bytes()
    after = _flops(run)
    return Measured(
        seconds=seconds,
        peak_bytes=peak,
        tokens=(run.ledger.spent.generated_tokens - tokens) / rounds,
        phase_seconds={name: spent - timed[name] for name, spent in _seconds(run).items()},
        phase_flops={name: after[name][0] - before[name][0] for name in after},
        executed_flops={name: after[name][1] - before[name][1] for name in after},
    )


def _seconds(run: Run) -> dict[str, float]:
    """Return the seconds so far of the budget's phases and of the diagnostics outside it."""
    return {**run.ledger.train_phases, "diagnostic": run.ledger.seconds.get("diagnostic", 0.0)}


def _flops(run: Run) -> dict[str, tuple[int, int]]:
    """Return useful and executed FLOPs so far, by timed phase."""
    booked = run.ledger.phases
    return {
        name: (sum(booked[part].flops for part in parts), sum(booked[part].executed_flops for part in parts))
        for name, parts in _PHASES.items()
    }
