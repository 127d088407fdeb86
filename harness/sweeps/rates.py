"""How long cells take: from those that studies beside this one have recorded."""

import csv
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["recorded_rates", "span"]

MINUTE, HOUR = 60, 3600


def recorded_rates(folder: Path) -> dict[tuple[str, str], float]:
    """Return the median of seconds a useful FLOP, evaluation included, of completed cells by (task, policy).

    Args:
        folder: the records of every study in it, and of its trials, are read.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for records in sorted([*folder.glob("*/records"), *folder.glob("*/*/records")]):
        seconds = {row["cell"]: row["seconds"] for row in _rows(records / "timing.csv")}
        for row in _rows(records / "cells.csv"):
            spent, taken = _positive(row.get("spent_flops")), _positive(seconds.get(row["cell"]))
            if row["status"] == "completed" and spent and taken:
                found.setdefault((row["task"], row["policy"]), []).append(taken / spent)
    return {kind: statistics.median(rates) for kind, rates in found.items()}


def span(seconds: float) -> str:
    """Return a time in words, e.g. "12 s", "7 min" or "3.5 h"."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


def _rows(file: Path) -> Iterator[Mapping[str, str]]:
    if file.is_file():
        with file.open(encoding="utf-8", newline="") as lines:
            yield from csv.DictReader(lines)


def _positive(entry: str | None) -> float:
    """Return a number of a record, 0 where it is none."""
    try:
        return float(entry or 0)
    except ValueError:
        return 0.0
