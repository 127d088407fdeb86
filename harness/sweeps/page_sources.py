"""What the report's page takes from a study's folder beside the records: provenance, and samples to read. No torch.

A sweep's folder has all of it: sweep.json, the identities of its cells and their samples. Compact records hold no
samples, and may have the sweep's file beside them; what they lack, the page says.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config.errors import CorruptRecordError
from harness.reports.page.content import CellSamples, PageSources, Provenance
from harness.sweeps.files import dump_json
from harness.sweeps.flat import flat
from harness.sweeps.layout import cell_folder, is_study, read_sweep
from harness.sweeps.provenance import FILE as PROVENANCE
from harness.sweeps.provenance import identities, shared
from harness.sweeps.records import read_stream

__all__ = ["page_sources", "representative"]

Row = dict[str, Any]
SAMPLED_CELLS = 60
"""Cells whose samples are on the page: the first seed of every arm, task and policy, then the second, ..."""
TEXT_CHARACTERS = 2_000
"""Of a prompt or response on the page."""
_SWEEP_FILE = "sweep.toml"
_SHOWN_TEXTS = ("id", "prompt", "response", "reason", "split", "difficulty", "verdict")
_NUMBERS = ("value", "fraction")
_HASH_CHARACTERS = 16


def page_sources(folder: Path) -> PageSources:
    """Read what is there; a sweep's folder, or one of compact records.

    Raises:
        CorruptRecordError: a file of a cell is not what it should be.
    """
    if not is_study(folder):
        note = "None: compact records hold no responses. evengrad report on the sweep's own folder shows them."
        return PageSources(_from_records(folder), (), note)
    sweep = read_sweep(folder)
    ordered = _by_seed(sweep["cells"])
    found = [shown for cell in ordered[:SAMPLED_CELLS] if (shown := _samples(folder, cell))]
    return PageSources(_from_sweep(folder, sweep), found, _samples_note(len(found), len(ordered)))


def representative(rows: Sequence[Row]) -> list[tuple[str, Row]]:
    """Choose up to three different rows of one point: the best, a typical and the worst one.

    Best and worst have the highest and the lowest reward; among equals the one of median length is taken. Typical is,
    of the remaining rows with the commonest verdict of all, the one of median length. Responses without a reward (they
    could not be scored) are chosen only where nothing else is left. Independent of the order of the rows but for
    equal lengths.
    """
    left = list(rows)
    chosen: list[tuple[str, Row]] = []
    values = [row["value"] for row in left if row["value"] is not None]
    common = Counter(row["verdict"] for row in rows).most_common(1)
    for role, wanted in (("best", max(values, default=None)), ("worst", min(values, default=None)), ("typical", None)):
        if role == "typical":
            fitting = [row for row in left if row["verdict"] == common[0][0]] or left
        else:
            fitting = [row for row in left if row["value"] == wanted]
        if fitting:
            row = sorted(fitting, key=lambda row: len(row["response"]))[(len(fitting) - 1) // 2]
            left = [other for other in left if other is not row]
            chosen.append((role, row))
    order = ("best", "typical", "worst")
    return sorted(chosen, key=lambda pair: order.index(pair[0]))


def _by_seed(cells: Sequence[Row]) -> list[Row]:
    position: dict[int, int] = {}
    for cell in cells:
        position.setdefault(cell["seed"], len(position))
    return sorted(cells, key=lambda cell: position[cell["seed"]])


def _samples(folder: Path, cell: Row) -> CellSamples | None:
    path = cell_folder(folder, cell["key"])
    rows = [_sample(row) for row in read_stream(path, "samples")] if path.is_dir() else []
    rows = [row for row in rows if row["response"] and row["verdict"]]
    if not rows:
        return None
    points = [(row["fraction"] or 0.0, row["split"] == "test") for row in rows]
    last = [row for row, point in zip(rows, points, strict=True) if point == max(points)]
    label = f"{cell['arm']} on {cell['task']}, {cell['policy']}, seed {cell['seed']}"
    return CellSamples(cell["key"], label, representative(last))


def _sample(row: Mapping[str, Any]) -> Row:
    """Return what the page shows of a line of samples.jsonl, long texts cut; what is no text or number is missing."""
    texts = {name: _cut(row.get(name)) for name in _SHOWN_TEXTS}
    numbers = {name: row.get(name) if isinstance(row.get(name), int | float) else None for name in _NUMBERS}
    return {**texts, **numbers}


def _cut(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    if len(text) <= TEXT_CHARACTERS:
        return text
    return f"{text[:TEXT_CHARACTERS]} [... {len(text) - TEXT_CHARACTERS:,} more characters]"


def _samples_note(shown: int, total: int) -> str:
    if not shown:
        return "None yet: no cell has written responses."
    which = f"all {total} cells" if shown == total else f"{shown} of {total} cells, the first seeds of every arm"
    return (
        f"Of {which}: the best, a typical and the worst response at the last point that was evaluated, on test where "
        "test was. evengrad samples DIR --cell KEY shows the others."
    )


def _from_sweep(folder: Path, sweep: Row) -> Provenance:
    cells = sweep["cells"]
    seeds = ", ".join(map(str, sweep.get("seeds", dict.fromkeys(cell["seed"] for cell in cells))))
    settings = shared({cell["key"]: dict(flat(cell["config"])) for cell in cells})
    known = _facts(folder)
    notes = [] if known else ["Versions and hardware are not known yet: no cell has begun."]
    facts = [("sweep", sweep["name"]), ("cells", str(len(cells))), ("seeds", seeds), *known]
    return Provenance(sweep["name"], sweep.get("description", ""), _sweep_text(folder), _texts(settings), facts, notes)


def _facts(folder: Path) -> list[tuple[str, str]]:
    """Return versions, hardware class and source hashes of the cells that were begun; several where they differ."""
    values: dict[str, Counter[str]] = {}
    for identity in identities(folder).values():
        for key, value in _texts(identity).items():
            if key.split(".")[0] in ("versions", "hardware", "engine", "sources"):
                short = value[:_HASH_CHARACTERS] if key.startswith("sources.") else value
                values.setdefault(key, Counter())[short] += 1
    return [(_fact(key), _several(found)) for key, found in values.items()]


def _fact(key: str) -> str:
    table, _, name = key.partition(".")
    return {"versions": name, "sources": f"source of {name.replace('_', ' ')}"}.get(table, key)


def _several(found: Counter[str]) -> str:
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{value} ({count} cells)" for value, count in sorted(found.items()))


def _from_records(folder: Path) -> Provenance:
    text, facts, notes = _sweep_text(folder), list[tuple[str, str]](), list[str]()
    name, description = folder.resolve().name, ""
    if text:
        try:
            sweep = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise CorruptRecordError(f"{folder / _SWEEP_FILE} is not valid TOML: {error}") from error
        name, description = str(sweep.get("name", name)), str(sweep.get("description", ""))
        facts = [("sweep", name), ("seeds", ", ".join(map(str, sweep.get("seeds", []))))]
    else:
        notes.append(f"The sweep's file is not beside the records ({_SWEEP_FILE}).")
    found, prefix = shared(identities(folder)), "config."
    settings = {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}
    if not found:
        lacking = "versions, hardware class and the settings that all cells share"
        notes.append(f"These records do not hold {lacking} ({PROVENANCE} is missing): the sweep's own folder has them.")
    return Provenance(name, description, text, _texts(settings), [*facts, *_facts(folder)], notes)


def _sweep_text(folder: Path) -> str:
    file = folder / _SWEEP_FILE
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) and value else dump_json(value) for key, value in values.items()}
