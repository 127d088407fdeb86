"""``evengrad samples``: choose scored responses of a run, a sweep's cell or a file, and lay them out for reading."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rich.text import Text

from harness.config.errors import UserError
from harness.jsonl import read_rows
from harness.sweeps.layout import cell_folder, is_study, read_sweep
from harness.sweeps.records import read_stream
from harness.terminal import VERDICT_STYLES, visible
from tasks.base import VERDICTS

__all__ = ["Filter", "choose", "read_samples", "sample_parts"]

Row = dict[str, Any]
LAST = "last"
_SAMPLES = "samples.jsonl"
_TOLERANCE = 1e-9
_LISTED = 6
_QUOTED = 40


@dataclass(frozen=True)
class Filter:
    """Which samples to show; None does not choose.

    Attributes:
        verdict: one of ``tasks.VERDICTS``.
        split: "train", "validation" or "test".
        difficulty: a label.
        id: of an example.
        point: fraction of the budget, as text, or "last": the last point of each split.
    """

    verdict: str | None = None
    split: str | None = None
    difficulty: str | None = None
    id: str | None = None
    point: str | None = None


def read_samples(place: Path, cell: str | None = None) -> list[Row]:
    """Return the samples of a run's folder, of a cell of a sweep's folder, or of a file.

    Args:
        place: where they are.
        cell: beginning of a key, or of a label such as "grpo on arithmetic", of a sweep's cell.

    Raises:
        UserError: there are none, a row is no scored response, or ``cell`` does not single out a cell.
    """
    if is_study(place):
        place = _cell(place, cell)
    elif cell is not None:
        raise UserError(f"--cell {cell} chooses from a sweep's folder, and {place} is none (sweep.json is missing)")
    if place.is_dir():
        if not (place / _SAMPLES).is_file():
            raise UserError(f"{place} holds no samples ({_SAMPLES} is missing): give the folder of a run or of a sweep")
        rows = [(f"{place / _SAMPLES} line {i}", row) for i, row in enumerate(read_stream(place, "samples"), 1)]
    elif place.name == _SAMPLES and (place.parent / "status.json").is_file():
        return read_samples(place.parent)
    else:
        rows = list(read_rows(place))
    if not rows:
        raise UserError(f"{place} holds no samples yet")
    return [_checked(where, row) for where, row in rows]


def choose(rows: Sequence[Row], wanted: Filter) -> list[Row]:
    """Return the rows that pass the filter.

    Raises:
        UserError: nothing in ``rows`` has such a split, difficulty, id or point at all, or the verdict is unknown.
    """
    if wanted.verdict is not None and wanted.verdict not in VERDICTS:
        raise UserError(f"unknown verdict {wanted.verdict!r}{_near(wanted.verdict, VERDICTS)}: {', '.join(VERDICTS)}")
    chosen = list(rows)
    for name in ("split", "difficulty", "id"):
        value = getattr(wanted, name)
        if value is not None:
            chosen = _matching(chosen, name, value)
    if wanted.point is not None:
        chosen = _at_point(chosen, wanted.point)
    return [row for row in chosen if wanted.verdict in (None, row["verdict"])]


def sample_parts(rows: Sequence[Row], total: int, limit: int | None) -> Iterator[Text]:
    """Yield the chosen samples for reading, ``limit`` at most, and at the end how many of ``total`` they are."""
    shown = rows[:limit]
    for number, row in enumerate(shown, start=1):
        yield _headline(number, len(shown), row)
        yield from _block("prompt", row.get("prompt") or "")
        yield from _block("response", row["response"])
        if row.get("reason"):
            yield from _block("reason", row["reason"])
        yield Text("")
    counts = Counter(row["verdict"] for row in rows)
    verdicts = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
    match = f"{len(rows)} of {total} samples match" + (f": {verdicts}" if rows else "")
    yield Text(match + (f"; {len(shown)} shown" if len(shown) < len(rows) else ""), "dim")


def _cell(folder: Path, prefix: str | None) -> Path:
    cells = [(cell["key"], _label(cell)) for cell in read_sweep(folder)["cells"]]
    found = [(key, label) for key, label in cells if prefix is None or key.startswith(prefix)]
    found = found or [(key, label) for key, label in cells if label.startswith(prefix or "")]
    if len(found) == 1:
        key, label = found[0]
        if not (cell_folder(folder, key) / _SAMPLES).is_file():
            raise UserError(f"cell {key} ({label}) has no samples yet: it has not been run, or not in {folder}")
        return cell_folder(folder, key)
    listed = "; ".join(f"{key} ({label})" for key, label in (found or cells)[:_LISTED])
    more = f"; and {len(found or cells) - _LISTED} more" if len(found or cells) > _LISTED else ""
    if prefix is None:
        raise UserError(f"{folder} has {len(cells)} cells: choose one by --cell KEY: {listed}{more}")
    which = f"fits {len(found)} cells, give more of the key" if found else "fits no cell"
    raise UserError(f"--cell {prefix} {which}: {listed}{more}")


def _label(cell: Row) -> str:
    return f"{cell['arm']} on {cell['task']}, {cell['policy']}, seed {cell['seed']}"


def _checked(where: str, row: Row) -> Row:
    for name in ("id", "response"):
        if not isinstance(row.get(name), str):
            raise UserError(f"{where} is no sample: {name} should be text (keys there: {visible(', '.join(row))})")
    if row.get("verdict") not in VERDICTS:
        raise UserError(f"{where} has no verdict: score the file first with evengrad verify TASK --responses FILE")
    for name in ("split", "difficulty", "prompt", "reason"):
        if not isinstance(row.get(name), str | None):
            raise UserError(f"{where}: {name} should be text or null, got {ascii(row[name])[:_QUOTED]}")
    for name in ("value", "fraction", "sample_index"):
        if not _is_number(row.get(name, 0)):
            raise UserError(f"{where}: {name} should be a number or null, got {ascii(row[name])[:_QUOTED]}")
    return row


def _is_number(value: object) -> bool:
    """Whether it is null or a number that a float can hold; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        return False
    return value is None or abs(value) <= sys.float_info.max or isinstance(value, float)


def _matching(rows: Sequence[Row], name: str, value: str) -> list[Row]:
    found = [row for row in rows if row.get(name) == value]
    if not found:
        there = list(dict.fromkeys(str(row[name]) for row in rows if row.get(name) not in (None, "")))
        listed = ", ".join(visible(word) for word in there[:_LISTED]) + (", ..." if len(there) > _LISTED else "")
        raise UserError(f"no sample has {name} {value!r}{_near(value, there)}; there are: {listed or 'none'}")
    return found


def _at_point(rows: Sequence[Row], point: str) -> list[Row]:
    there = sorted({row["fraction"] for row in rows if isinstance(row.get("fraction"), int | float)})
    if not there:
        raise UserError(f"--point {point}: these samples belong to no point of a run; leave it out")
    if point == LAST:
        last = {split: max(fractions) for split, fractions in _by_split(rows).items()}
        return [row for row in rows if row.get("fraction") == last.get(row.get("split"))]
    try:
        wanted = float(point)
    except ValueError:
        raise UserError(f"--point {point} should be {LAST} or a fraction of the budget such as 0.5") from None
    found = [row for row in rows if row.get("fraction") is not None and abs(row["fraction"] - wanted) <= _TOLERANCE]
    if not found:
        raise UserError(f"no sample at point {point}; there are: {', '.join(f'{value:g}' for value in there)}")
    return found


def _by_split(rows: Iterable[Row]) -> dict[Any, list[float]]:
    found: dict[Any, list[float]] = {}
    for row in rows:
        if isinstance(row.get("fraction"), int | float):
            found.setdefault(row.get("split"), []).append(row["fraction"])
    return found


def _near(value: str, known: Iterable[str]) -> str:
    near = get_close_matches(value, list(known), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


_FACTS: tuple[tuple[str, Callable[[Any], str]], ...] = (
    ("value", lambda value: f"reward {value:g}"),
    ("split", str),
    ("fraction", lambda value: f"point {value:g}"),
    ("difficulty", str),
    ("id", str),
    ("sample_index", lambda value: f"sample {value}"),
)


def _headline(number: int, total: int, row: Row) -> Text:
    """Return e.g. "[3/57] wrong | reward 0 | test | point 1 | 2 operands | test-0a1b | sample 0"."""
    facts = [visible(say(row[name])) for name, say in _FACTS if row.get(name) not in (None, "")]
    verdict = (f" {row['verdict']}", f"bold {VERDICT_STYLES[row['verdict']]}")
    return Text.assemble((f"[{number}/{total}]", "bold"), verdict, (f" | {' | '.join(facts)}", "dim"))


def _block(name: str, text: str) -> Iterator[Text]:
    """Yield ``text`` with its name in front of the first line and the others set in below."""
    for position, line in enumerate(visible(text, lines=True).split("\n")):
        label = f"  {name if position == 0 else '':<9}"
        yield Text.assemble((label, "dim"), line if text else "(empty)")
