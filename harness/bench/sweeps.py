"""A whole sweep against as many runs of TRL, started one after the other as a user would without a harness."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from harness.bench import trl_peer
from harness.bench.measured import in_new_process
from harness.config.errors import UserError

__all__ = ["sweep_table"]

SWEEP = Path("results/quick/sweep.toml")
_TASK = 'axes.task=[{name="arithmetic"}]'


def sweep_table(threads: int, rounds: int, say: Callable[[str], None]) -> tuple[str, dict[str, float]]:
    """Measure the shipped quick sweep on one task, with its report, and TRL's run of as many iterations as a cell has.

    Args:
        threads: of TRL, which has the machine for itself; the sweep uses its own two workers of one thread.
        rounds: TRL runs that are made; the median stands for all of them. Nothing is evaluated in them.
        say: prints a line.

    Raises:
        UserError: the sweep is not here, or does not complete.
    """
    if not SWEEP.is_file():
        raise UserError(f"{SWEEP} is not here: run 'evengrad bench sweep' in the repository's folder")
    with tempfile.TemporaryDirectory() as folder:
        say("sweep: evengrad ...")
        command = [sys.executable, "-m", "harness.cli", "sweep", str(SWEEP), _TASK, "--out", folder]
        seconds = _seconds(lambda: _run(command))
        cells = pd.read_csv(Path(folder) / "records" / "cells.csv")
    iterations = round(cells["iterations"].mean())
    say(f"sweep: {rounds} TRL runs of {iterations} iterations ...")
    runs = [
        _seconds(lambda: in_new_process(trl_peer.iterations, "quick", threads, iterations - 1, False))
        for _ in range(rounds)
    ]
    one = statistics.median(runs)
    found = {"cells": len(cells), "seconds": seconds, "iterations": iterations, "trl_run_seconds": one}
    share = seconds / (len(cells) * one)
    text = (
        f"{len(cells)} cells with evaluations, tables and figures: {seconds:.0f} s. A TRL run of {iterations} "
        f"iterations, nothing evaluated: {one:.1f} s (median of {rounds}); {len(cells)} of them: "
        f"{len(cells) * one:.0f} s. Share: {share:.2f}"
    )
    return text, found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(f"the sweep ended with exit status {done.returncode}: {done.stderr.strip()[-200:]}")


def _seconds(job: Callable[[], object]) -> float:
    begun = time.perf_counter()
    job()
    return time.perf_counter() - begun
