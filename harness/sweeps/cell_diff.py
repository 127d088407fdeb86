"""What two cells differ in: configuration, sources, versions, and what came of it; for ``evengrad diff``. No torch."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.errors import UserError
from harness.sweeps.flat import flat
from harness.sweeps.layout import is_study
from harness.sweeps.records import read_json, read_status, read_stream

__all__ = ["CellDiff", "Difference", "diff_cells", "find_cell"]

Row = dict[str, Any]
_ABSENT = "absent"
_LISTED = 6
_STREAMS = ("metrics", "evals", "samples")
_PLACES = ("iteration", "split", "fraction", "id")


@dataclass(frozen=True)
class Difference:
    """One entry that differs, as text; "absent" where one side has none."""

    name: str
    first: str
    second: str


@dataclass(frozen=True)
class CellDiff:
    """Two cells side by side.

    Attributes:
        identity: table ("config", "sources", ...) -> what differs in it; empty for the same cell.
        outcome: status, totals and final scores that differ.
        records: a line a stream: equal, or where it first differs and in what.
    """

    identity: Mapping[str, Sequence[Difference]]
    outcome: Sequence[Difference]
    records: Sequence[str]


def find_cell(word: str, folders: Iterable[Path]) -> Path:
    """Return the folder of a cell: ``word`` is one, or the beginning of a key in one of the sweeps' folders.

    Raises:
        UserError: there is none, or several.
    """
    if (Path(word) / "config.json").is_file():
        return Path(word)
    searched = [folder for folder in folders if is_study(folder)]
    found = [
        path
        for folder in searched
        for path in sorted((folder / "cells").glob("*"))
        if path.name.startswith(word) and (path / "config.json").is_file()
    ]
    if len(found) == 1 and word:
        return found[0]
    listed = ", ".join(map(str, found[:_LISTED])) + (", ..." if len(found) > _LISTED else "")
    if found:
        raise UserError(f"{word!r} fits {len(found)} cells, give more of the key or a folder: {listed}")
    places = ", ".join(map(str, searched)) or "no folder of a sweep"
    raise UserError(f"{word!r} is no cell's folder, and no begun cell has such a key in {places}: see evengrad status")


def diff_cells(first: Path, second: Path) -> CellDiff:
    """Compare two cells' folders.

    Raises:
        CorruptRecordError: a file of theirs is not what it should be.
    """
    mine, theirs = read_json(first / "config.json"), read_json(second / "config.json")
    tables = list(dict.fromkeys([*mine, *theirs]))
    identity = {table: differences(mine.get(table), theirs.get(table)) for table in tables}
    outcome = differences(_outcome(first), _outcome(second))
    records = [_compare(stream, read_stream(first, stream), read_stream(second, stream)) for stream in _STREAMS]
    return CellDiff({table: found for table, found in identity.items() if found}, outcome, records)


def differences(first: Any, second: Any) -> list[Difference]:
    """Return the entries of two trees that differ, by dotted key in order."""
    mine, theirs = (dict(flat(one)) if isinstance(one, Mapping) else {"": one} for one in (first, second))
    names = sorted(mine.keys() | theirs.keys())
    absent = object()
    pairs = ((name, mine.get(name, absent), theirs.get(name, absent)) for name in names)
    return [Difference(name, _text(a, absent), _text(b, absent)) for name, a, b in pairs if a != b]


def _outcome(path: Path) -> Row:
    """Return status, totals and the last score of each split."""
    status = read_status(path)
    scores = {f"{row['split']} score at {row['fraction']:g}": row["score"] for row in _last(read_stream(path, "evals"))}
    return {"status": status["status"], "cause": status["cause"], **status.get("totals", {}), **scores}


def _last(evals: Sequence[Row]) -> list[Row]:
    return list({row["split"]: row for row in evals if "split" in row}.values())


def _compare(stream: str, first: Sequence[Row], second: Sequence[Row]) -> str:
    """Return "metrics: equal, 40 rows", or where the rows first differ."""
    for position, (mine, theirs) in enumerate(zip(first, second, strict=False)):
        if mine != theirs:
            names = [found.name for found in differences(mine, theirs)]
            place = ", ".join(f"{name} {mine[name]}" for name in _PLACES if mine.get(name) is not None)
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            place = place or f"row {position + 1}"
            return f"{stream}: differ from row {position + 1} ({place}) on, in {', '.join(names[:_LISTED])}{more}"
    if len(first) != len(second):
        return f"{stream}: equal as far as both go, {len(first)} and {len(second)} rows"
    return f"{stream}: equal, {len(first)} rows" if first else f"{stream}: none"


def _text(value: Any, absent: object) -> str:
    if value is absent:
        return _ABSENT
    return value if isinstance(value, str) and value else json.dumps(value)
