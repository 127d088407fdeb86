"""Make the compact records of a sweep out of its run folders, byte for byte the same each time.

Seven CSV files, and what the cells were made of (``harness.sweeps.provenance``).

An incomplete sweep has them too: cells that are missing, running or failed are rows with what is known of them.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config.errors import CorruptRecordError, UserError
from harness.reports.study import CONFIG_PREFIX, FURTHER_PREFIXES, SCHEMA
from harness.sweeps.distributions import distributions
from harness.sweeps.files import write_atomic
from harness.sweeps.flat import flat
from harness.sweeps.layout import cell_folder, read_sweep
from harness.sweeps.provenance import write_provenance
from harness.sweeps.records import Stream, read_json, read_status, read_stream

__all__ = ["THIRDS", "compact"]

Row = dict[str, Any]
THIRDS = ("first third", "second third", "last third")
_TOTALS = ("spent_flops", "executed_flops", "eval_flops", "discarded_flops")
_TOTALS += ("generated_tokens", "trained_tokens", "updates", "iterations")
# The last record of a run that did not complete tells these.
_RUNNING_TOTALS = ("spent_flops", "generated_tokens", "updates")
# Settings that have a column of their own.
_SHOWN = ("seed", "task.name", "policy.name", "objective.name", "trust_region.name")


def compact(folder: Path) -> Path:
    """Write ``folder``/records/*.csv, rows in the order of the sweep's cells, and provenance.json.

    Returns:
        The folder of the records.

    Raises:
        CorruptRecordError: a file of a run cannot be read as what it should be.
        UserError: ``folder`` holds no sweep, or its records cannot be written.
    """
    cells = read_sweep(folder)["cells"]
    settings = _differing_settings(cells)
    rows: dict[str, list[Row]] = {name: [] for name in SCHEMA}
    for cell, shown in zip(cells, settings, strict=True):
        _add_cell(rows, cell, cell_folder(folder, cell["key"]), shown)
    records = folder / "records"
    try:
        records.mkdir(exist_ok=True)
        for name, columns in SCHEMA.items():
            write_atomic(records / name, _to_csv(columns, rows[name]))
        write_provenance(folder, records)
    except OSError as error:
        raise UserError(f"cannot write to {records}: {error.strerror}") from error
    return records


def _add_cell(rows: dict[str, list[Row]], cell: Row, path: Path, shown: Row) -> None:
    status, key = read_status(path), {"cell": cell["key"]}
    streams: dict[Stream, list[Row]] = {name: _read(path, name) for name in ("metrics", "evals", "timing")}
    rows["cells.csv"].append(_cell_row(cell, status, streams["metrics"], shown))
    rows["evals.csv"] += [{**row, **key} for row in streams["evals"]]
    rows["metrics.csv"] += [{**row, **key} for row in streams["metrics"]]
    rows["timing.csv"] += [{**row, **key} for row in streams["timing"] if row.get("total")][-1:]
    rows["ratios.csv"] += [{**row, **key} for row in _histogram(streams["metrics"])]
    rows["distributions.csv"] += [{**row, **key} for row in distributions(streams["metrics"])]
    surrogate = path / "surrogate.json"
    if surrogate.exists() and all(row["arm"] != cell["arm"] for row in rows["surrogates.csv"]):
        rows["surrogates.csv"] += [{**row, "arm": cell["arm"]} for row in _surrogate(surrogate)]


def _read(path: Path, name: Stream) -> list[Row]:
    return read_stream(path, name) if path.exists() else []


def _cell_row(cell: Row, status: Mapping[str, Any], metrics: Sequence[Row], shown: Row) -> Row:
    config, facts, totals = cell["config"], cell["facts"], dict(status.get("totals", {}))
    if status["status"] != "completed" and metrics:
        totals = {name: metrics[-1].get(name) for name in _RUNNING_TOTALS} | totals
    phases: Row = totals.pop("phases", None) or {}
    return {
        **shown,
        **dict(flat(phases, "phase.")),
        **{name: totals.get(name) for name in _TOTALS},
        **{name: cell[name] for name in ("arm", "task", "policy", "seed")},
        "cell": cell["key"],
        "status": status["status"],
        "condition": cell.get("condition", ""),
        "failure": status["failure"],
        "cause": status["cause"],
        "objective": facts.get("objective", config["objective"]["name"]),
        "region": facts.get("region", config["trust_region"]["name"]),
        "delta": facts.get("delta"),
        "delta_unit": facts.get("delta_unit", ""),
        "budget_axis": config["budget"]["axis"],
        "budget_amount": config["budget"]["amount"],
    }


def _differing_settings(cells: Sequence[Row]) -> list[Row]:
    """Return for each cell the settings that are not the same in all of them, as ``config.<dotted.key>``."""
    every = [dict(flat(cell["config"], CONFIG_PREFIX)) for cell in cells]
    keys = sorted({key for settings in every for key in settings} - {CONFIG_PREFIX + key for key in _SHOWN})
    varying = [key for key in keys if len({json.dumps(settings.get(key)) for settings in every}) > 1]
    return [{key: settings.get(key) for key in varying} for settings in every]


def _histogram(metrics: Sequence[Row]) -> list[Row]:
    """Return the log-ratio counts of each third of a run's iterations, bins from low to high."""
    sums: dict[tuple[int, float, float], int] = {}
    for position, row in enumerate(metrics):
        histogram = row.get("ratio_hist")
        if not histogram:
            continue
        third, edges = position * len(THIRDS) // len(metrics), histogram["edges"]
        for low, high, count in zip(edges[:-1], edges[1:], histogram["counts"], strict=True):
            sums[third, low, high] = sums.get((third, low, high), 0) + count
    return [
        {"iteration_bin": THIRDS[third], "log_ratio_low": low, "log_ratio_high": high, "count": count}
        for (third, low, high), count in sorted(sums.items())
    ]


def _surrogate(file: Path) -> list[Row]:
    columns, names = read_json(file), ("advantage", "ratio", "loss", "weight")
    if not all(isinstance(columns.get(name), list) for name in names) or len({len(columns[n]) for n in names}) > 1:
        raise CorruptRecordError(f"{file} does not hold lists of one length for {', '.join(names)}; delete its folder")
    return [dict(zip(names, values, strict=True)) for values in zip(*(columns[name] for name in names), strict=True)]


def _to_csv(columns: Sequence[str], rows: Iterable[Row]) -> bytes:
    """Return the columns of the schema and those of ``FURTHER_PREFIXES`` that a row has; missing is empty."""
    listed = list(rows)
    further = {key for row in listed for key in row if key.startswith(FURTHER_PREFIXES)} - set(columns)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = [*columns, *sorted(further)]
    writer.writerow(header)
    writer.writerows([_entry(row.get(column)) for column in header] for row in listed)
    return text.getvalue().encode()


def _entry(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict | bool) else value
