"""``evengrad bench``: measure the workloads, print the tables, write the numbers."""

import importlib.util
import json
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tabulate import tabulate

from harness.bench.measured import Measured, in_new_process
from harness.bench.workloads import WORKLOADS, make_config

__all__ = ["bench"]

_PACKAGES = ("evengrad", "torch", "transformers", "trl")


def bench(workloads: Sequence[str], threads: int, rounds: int, out: Path | None, say: Callable[[str], None]) -> None:
    """Measure ``workloads`` one after the other, each trainer in processes of its own, and print what was found.

    Raises:
        UserError: a workload's model is not installed.
    """
    engines = [name for name in workloads if name != "sweep"]
    for name in engines:
        make_config(name, threads)
    found: dict[str, Any] = {name: _measure(name, threads, rounds, say) for name in engines}
    facts = {"machine": _machine(threads), "versions": _versions(), "rounds": rounds}
    for name in engines:
        parts = found[name]
        say(f"\n## {name}: {WORKLOADS[name].what}\n")
        for table in (_trainers(parts), _samplers(parts), _phases(parts)):
            say(table + "\n")
        shares = ", ".join(f"{kind} {share:.0%}" for kind, share in parts["operators"].items())
        say(f"What is not products alone, of an iteration's time under the profiler: {shares}.\n")
    if "sweep" in workloads:
        from harness.bench.sweeps import sweep_table

        text, found["sweep"] = sweep_table(threads, rounds, say)
        say(f"\n## sweep\n\n{text}\n")
    say(f"{facts['machine']}; " + ", ".join(f"{name} {number}" for name, number in facts["versions"].items()))
    say(f"median of {rounds} iterations after one that does not count; a process each; nothing else should be running")
    if out is not None:
        out.write_text(json.dumps({**facts, "workloads": found}, indent=1, default=asdict) + "\n")


def _measure(name: str, threads: int, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return what was measured of a workload, by name."""
    from harness.bench import generation, operators, ours, products, trl_peer

    jobs: dict[str, tuple[Any, ...]] = {
        "evengrad": (ours.iterations, name, threads, rounds),
        "TRL": (trl_peer.iterations, name, threads, rounds, False),
        "TRL, checkpointing": (trl_peer.iterations, name, threads, rounds, True),
        "native sampler": (generation.native, name, threads, rounds),
        "generate": (generation.generate, name, threads, rounds),
        "products": (products.phase_rates, name, threads),
        "operators": (operators.operator_shares, name, threads),
    }
    if importlib.util.find_spec("trl") is None:
        say("TRL is not installed and left out: pip install trl==1.16.0")
        jobs = {key: job for key, job in jobs.items() if not key.startswith("TRL")}
    found: dict[str, Any] = {}
    for key, job in jobs.items():
        say(f"{name}: {key} ...")
        found[key] = in_new_process(*job)
    return found


def _trainers(parts: dict[str, Any]) -> str:
    measured: dict[str, Measured] = {name: part for name, part in parts.items() if isinstance(part, Measured)}
    base = statistics.median(measured["evengrad"].seconds)
    rows = [
        [
            name,
            f"{(seconds := statistics.median(one.seconds)):.2f}",
            f"{base / seconds:.2f}",
            f"{one.peak_bytes / 2**30:.2f}",
            f"{measured['evengrad'].peak_bytes / one.peak_bytes:.2f}",
            f"{one.tokens:.0f}",
        ]
        for name, one in measured.items()
    ]
    heads = ["trainer", "s an iteration", "evengrad's share", "peak GiB", "evengrad's share", "tokens"]
    return tabulate(rows, heads, "pipe", disable_numparse=True)


def _samplers(parts: dict[str, Any]) -> str:
    names = ("native sampler", "generate")
    rates = {name: statistics.median(parts[name].tokens_per_second) for name in names}
    rows = [
        [
            name,
            f"{rates[name]:.0f}",
            f"{rates[name] / rates['generate']:.2f}",
            "-" if (gap := parts[name].logprob_gap) is None else f"{gap:.1e}",
        ]
        for name in names
    ]
    heads = ["sampler", "tokens/s", "of generate's", "largest gap to the trainer's log-probabilities"]
    return tabulate(rows, heads, "pipe", disable_numparse=True)


def _phases(parts: dict[str, Any]) -> str:
    """Return where our time went, and how much of what the products alone would need it was."""
    ours: Measured = parts["evengrad"]
    rounds, total = len(ours.seconds), sum(ours.seconds)
    rows = []
    for phase, seconds in sorted(ours.phase_seconds.items(), key=lambda item: -item[1]):
        row = [phase, f"{seconds / rounds:.3f}", f"{seconds / total:.1%}"]
        if phase in ours.phase_flops:
            rate, useful = ours.phase_flops[phase] / seconds, ours.phase_flops[phase] / ours.executed_flops[phase]
            best = parts["products"][phase]
            row += [f"{rate / 1e9:.1f}", f"{best / 1e9:.1f}", f"{rate / best:.0%}", f"{useful:.0%}"]
        rows.append(row + ["-"] * (7 - len(row)))
    rest = total - sum(ours.phase_seconds.values())
    rows.append(["all else", f"{rest / rounds:.3f}", f"{rest / total:.1%}", *["-"] * 4])
    heads = ["phase", "s", "share", "useful GFLOP/s", "products alone", "reached", "useful of executed"]
    return tabulate(rows, heads, "pipe", disable_numparse=True)


def _machine(threads: int) -> str:
    names = [line.split(":", 1)[1].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {threads} torch thread(s)"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _versions() -> dict[str, str]:
    return {name: version(name) for name in _PACKAGES if importlib.util.find_spec(_module(name)) is not None}


def _module(package: str) -> str:
    return {"evengrad": "harness"}.get(package, package)
