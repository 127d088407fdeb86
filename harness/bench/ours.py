"""An iteration of this engine, as a run makes it: with its records, log and checks."""

import tempfile
import time
from pathlib import Path

from harness.bench.measured import Measured
from harness.bench.workloads import WORKLOADS, make_config
from harness.engine.memory import peak_memory_bytes, reset_peak_memory
from harness.engine.recorder import Recorder
from harness.engine.run import Run, build_run
from harness.engine.train import identity, iterate
from harness.sweeps.run_folder import RunFolder

__all__ = ["iterations"]

_PHASES = {"sample": ("prefill", "decode"), "old": ("old",), "update": ("update",)}


def iterations(workload: str, threads: int, rounds: int) -> Measured:
    """Make a first iteration and then measure ``rounds`` of them."""
    config = make_config(workload, threads)
    run = build_run(config)
    if WORKLOADS[workload].exact_length:
        run.policy.tokenizer.stop_ids = frozenset()
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as name, RunFolder.open(Path(name), identity(config)) as folder:
        recorder = Recorder(run, folder, lambda _: None)
        run.ledger.start()
        iterate(run, recorder)
        before, timed, tokens = _flops(run), dict(run.ledger.train_phases), run.ledger.spent.generated_tokens
        reset_peak_memory()
        for _ in range(rounds):
            begun = time.perf_counter()
            iterate(run, recorder)
            seconds.append(time.perf_counter() - begun)
        peak = peak_memory_bytes()
        folder.finish("completed")
    after = _flops(run)
    return Measured(
        seconds=seconds,
        peak_bytes=peak,
        tokens=(run.ledger.spent.generated_tokens - tokens) / rounds,
        phase_seconds={name: spent - timed[name] for name, spent in run.ledger.train_phases.items()},
        phase_flops={name: after[name][0] - before[name][0] for name in after},
        executed_flops={name: after[name][1] - before[name][1] for name in after},
    )


def _flops(run: Run) -> dict[str, tuple[int, int]]:
    """Return useful and executed FLOPs so far, by timed phase."""
    booked = run.ledger.phases
    return {
        name: (sum(booked[part].flops for part in parts), sum(booked[part].executed_flops for part in parts))
        for name, parts in _PHASES.items()
    }
