"""The commands on studies that are there: ``evengrad compare | diff | status | gc | track``. Heavy imports wait.

Each returns the exit status; what it cannot do is a ``UserError``.
"""

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from harness.arguments import FAILED, OK, add_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table
    from rich.text import Text

    from harness.arguments import Commands
    from harness.sweeps.state import CellState

__all__ = ["add_compare", "add_diff", "add_gc", "add_status", "add_track"]

_RUNS = Path("results/runs")
_KIBI = 1024


def add_compare(commands: "Commands") -> None:
    """Add ``evengrad compare``."""
    command = add_command(
        *(
            commands,
            "compare",
            "Compare two studies, or two arms of studies: paired differences, and what does not pair.",
        ),
        "evengrad compare results/claim:gspo results/runs/mine:gspo --out compared.md",
    )
    for name in ("A", "B"):
        command.add_argument(name.lower(), metavar=name, help="folder of a study, or FOLDER:ARM")
    command.add_argument("--out", type=Path, metavar="FILE", help="write the table there: .md, .csv or .tex")
    command.set_defaults(run=_compare)


def add_diff(commands: "Commands") -> None:
    """Add ``evengrad diff``."""
    command = add_command(
        *(commands, "diff", "Say what two cells differ in: settings, sources, versions, and what came of it."),
        "evengrad diff 0a1b 4c2d --out results/runs/quick",
    )
    for name in ("first", "second"):
        command.add_argument(name, metavar="CELL", help="folder of a run or of a cell, or beginning of a cell's key")
    where = "sweep's folder that keys are looked up in; may be repeated; default: those in results/runs"
    command.add_argument("--out", type=Path, action="append", metavar="DIR", help=where)
    command.set_defaults(run=_diff)


def add_status(commands: "Commands") -> None:
    """Add ``evengrad status``."""
    command = add_command(
        *(commands, "status", "Say how far a sweep is: cells by state, time to go, why cells failed (exit status 1)."),
        "evengrad status results/runs/quick",
    )
    command.add_argument("folder", type=Path, metavar="DIR", help="of a sweep or a run")
    command.add_argument("--all", action="store_true", help="list completed and waiting cells too")
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    command.set_defaults(run=_status)


def add_gc(commands: "Commands") -> None:
    """Add ``evengrad gc``."""
    command = add_command(
        *(
            commands,
            "gc",
            "List what a sweep's folder no longer needs: cells that left it, spent checkpoints, torn files.",
        ),
        "evengrad gc results/runs/quick --delete",
    )
    command.add_argument("folder", type=Path, metavar="DIR", help="of a sweep")
    command.add_argument("--delete", action="store_true", help="delete it; without this nothing is touched")
    command.set_defaults(run=_gc)


def add_track(commands: "Commands") -> None:
    """Add ``evengrad track``."""
    command = add_command(
        *(
            commands,
            "track",
            "Send what a sweep has recorded to W&B or TensorBoard; what was sent before is not sent again.",
        ),
        "evengrad track results/runs/quick --to wandb:online",
    )
    command.add_argument("folder", type=Path, metavar="DIR", help="of a sweep")
    command.add_argument("--to", default="wandb", metavar="TARGET", help="wandb (offline), wandb:online or tensorboard")
    command.set_defaults(run=_track)


def _compare(options: argparse.Namespace) -> int:
    from harness.sweeps.sides import compare, write_table
    from harness.terminal import table, visible, write

    compared = compare(options.a, options.b)
    if options.out:
        write_table(compared, options.out)
    rows = [[visible(entry) for entry in row] for row in compared.rows]
    write([table(compared.header, rows, left=2), "", *(visible(note) for note in compared.notes)])
    return OK


def _diff(options: argparse.Namespace) -> int:
    from harness.sweeps.cell_diff import diff_cells, find_cell
    from harness.terminal import table, visible, write

    folders = options.out or (sorted(_RUNS.iterdir()) if _RUNS.is_dir() else [])
    first, second = (find_cell(word, folders) for word in (options.first, options.second))
    found = diff_cells(first, second)
    parts: list[Table | Text | str] = []
    for name, entries in {**found.identity, "outcome": found.outcome}.items():
        if entries:
            rows = [[visible(entry.name), visible(entry.first), visible(entry.second)] for entry in entries]
            parts += [table([name, visible(str(first)), visible(str(second))], rows, left=3), ""]
    if not found.identity:
        parts.append("The same cell: configuration, sources, versions and hardware class are equal.")
    write([*parts, *(visible(line) for line in found.records)])
    return OK


def _status(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from harness.sweeps.state import STATES, cell_states, seconds_to_go
    from harness.terminal import write

    states = cell_states(options.folder)
    counts = {name: sum(state.state == name for state in states) for name in STATES}
    seconds, at_a_time = seconds_to_go(states)
    code = FAILED if counts["failed"] or counts["damaged"] else OK
    if options.json:
        cells = [asdict(state) | {"fraction": _null(state.fraction)} for state in states]
        record = {"counts": counts, "seconds_to_go": _null(seconds), "at_a_time": at_a_time, "cells": cells}
        write([json.dumps(record, indent=1)])
        return code
    shown = [state for state in states if options.all or state.state not in ("completed", "waiting")]
    write(_status_parts(states, shown, counts, seconds, at_a_time))
    return code


def _status_parts(
    states: "list[CellState]", shown: "list[CellState]", counts: dict[str, int], seconds: float, at_a_time: int
) -> "Iterable[Table | Text | str]":
    from harness.sweeps.progress import describe_seconds
    from harness.terminal import shown as number
    from harness.terminal import table, visible

    words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    done = sum(0.0 if math.isnan(state.fraction) else state.fraction for state in states) / max(1, len(states))
    yield f"{len(states)} cell{'' if len(states) == 1 else 's'}: {words}; {done:.0%} of all budgets spent"
    if not math.isnan(seconds) and seconds > 0:
        pace = f"{at_a_time} at a time, if the others take as long as the completed ones"
        yield f"about {describe_seconds(seconds)} to go, {pace}"
    if counts["stalled"]:
        yield "stalled: begun, but no process is at it; evengrad sweep goes on from its last checkpoint"
    if counts["damaged"]:
        yield "damaged: a file is not what it should be; its cause says what to delete"
    if shown:
        rows = [
            (
                *(visible(s.label), s.state, "-" if math.isnan(s.fraction) else f"{s.fraction:.0%}"),
                *(number(s.score), s.key, visible(s.cause)),
            )
            for s in shown
        ]
        yield table(["cell", "state", "budget", "score", "key", "cause"], rows, left=2)


def _null(value: float) -> float | None:
    return None if math.isnan(value) else value


def _gc(options: argparse.Namespace) -> int:
    from harness.sweeps.garbage import delete, find_garbage
    from harness.terminal import visible, write

    found, busy = find_garbage(options.folder)
    if options.delete:
        found, late = delete(options.folder, found)
        busy += late
    parts = [f"{visible(str(item.path))}  {_size(item.num_bytes)}  {item.why}" for item in found]
    total, word = _size(sum(item.num_bytes for item in found)), "deleted" if options.delete else "can be deleted"
    parts.append(f"{len(found)} files and folders, {total}, {word}" if found else "nothing to delete")
    if found and not options.delete:
        parts.append("nothing was touched; to delete them: the same command with --delete")
    parts += [f"{visible(str(path))} is held by a living process and was left alone" for path in busy]
    write(parts)
    return OK


def _track(options: argparse.Namespace) -> int:
    from harness.config.errors import UserError
    from harness.sweeps.layout import is_study
    from harness.tracking.process import track

    if not is_study(options.folder):
        raise UserError(f"{options.folder} holds no sweep (sweep.json is missing)")
    track(options.folder, options.to)
    return OK


def _size(num_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if num_bytes < _KIBI:
            return f"{num_bytes:.0f} B" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= _KIBI
    return f"{num_bytes:.1f} GiB"
