"""Reading the rows of a data file; every fault is one line that names the file and the line."""

import csv
import gzip
import io
import json
import math
import stat
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ENDINGS", "Row", "read_file", "split_ending"]

ENDINGS = (".jsonl", ".jsonl.gz", ".json", ".csv")
_PATH_SHOWN = 200  # characters of a path
_SHOWN = 60  # characters of a bad value that an error shows


@dataclass(frozen=True)
class Row:
    """One record of a data set.

    Attributes:
        place: where it comes from, for errors, e.g. "test.jsonl line 7".
        values: field -> value; plain JSON values, in a .csv file text alone.
    """

    place: str
    values: Mapping[str, Any]


def split_ending(path: Path) -> tuple[str, str]:
    """Return the stem and the ending, e.g. ("gsm8k-test", ".jsonl.gz"); the ending is "" where it is not supported."""
    name = path.name
    for ending in sorted(ENDINGS, key=len, reverse=True):
        if name.lower().endswith(ending):
            return name[: -len(ending)], ending
    return path.stem, ""


def read_file(path: str | Path) -> list[Row]:
    """Return the rows of a .jsonl, .jsonl.gz, .json (a list of objects) or .csv file (with a header), in order.

    UTF-8, with or without a byte order mark; blank lines are skipped.

    Raises:
        ValueError: the file is missing, a folder, empty, cut short, of another ending or not UTF-8, a record is no
            object, holds a name twice or a number that JSON does not have; one line with file and line number.
    """
    path = Path(path)
    _, ending = split_ending(path)
    text = _text(path, ending)
    if not text.strip():
        raise ValueError(f"{path} is empty, expected one record at least")
    rows = list(_READERS[ending](path, text))
    if not rows:
        raise ValueError(f"{path} holds no records, expected one at least")
    return rows


def _text(path: Path, ending: str) -> str:
    """Return the decoded file; line ends are kept."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ValueError(f"{path} is a folder, expected a file ({', '.join(ENDINGS)})")
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path} is no regular file, expected one ({', '.join(ENDINGS)})")
        if not ending:
            raise ValueError(f"{path}: unknown ending, expected one of {', '.join(ENDINGS)}; convert or rename it")
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ValueError(
            f"{path}: no such file; check the path (relative ones start at the working directory)"
        ) from error
    except OSError as error:
        shown = str(path) if len(str(path)) <= _PATH_SHOWN else f"{str(path)[:_PATH_SHOWN]}..."
        raise ValueError(f"{shown} cannot be read ({error.strerror}); check the path and its permissions") from error
    if ending.endswith(".gz"):
        data = _unzip(path, data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        bad = data[error.start]
        raise ValueError(f"{path} line {line}: not UTF-8 (byte 0x{bad:02x}); convert the file to UTF-8") from error


def _unzip(path: Path, data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is damaged or cut short ({error}); fetch the .gz file again") from error


def _rows_of_jsonl(path: Path, text: str) -> Iterator[Row]:
    # Only "\n" ends a line: published data holds U+2028 inside strings, which splitlines() would cut.
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = f"{path.name} line {number}"
            cut = number == len(lines)  # the last line and no line end after it
            yield Row(place, _object(place, _parse(line, place, "the file may be cut short" if cut else "")))


def _rows_of_json(path: Path, text: str) -> Iterator[Row]:
    found = _parse(text, path.name, "expected one list of objects; name a file of one object a line .jsonl")
    if not isinstance(found, list):
        raise ValueError(f"{path.name} holds {_describe(found)}, expected a list of objects")
    for number, value in enumerate(found, start=1):
        place = f"{path.name} item {number}"
        yield Row(place, _object(place, value))


def _rows_of_csv(path: Path, text: str) -> Iterator[Row]:
    csv.field_size_limit(len(text) + 1)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    number = 1
    try:
        for cells in reader:
            place, number = f"{path.name} line {number}", reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = cells
                _refuse_twice(place, header)
            elif len(cells) != len(header):
                raise ValueError(f"{place}: {len(cells)} cells, expected {len(header)} ({', '.join(header)})")
            else:
                yield Row(place, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise ValueError(f"{path.name} line {number}: not valid CSV ({error}); quote the cell or close it") from error


_READERS = {".jsonl": _rows_of_jsonl, ".jsonl.gz": _rows_of_jsonl, ".json": _rows_of_json, ".csv": _rows_of_csv}


def _refuse_twice(place: str, names: list[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{place}: field {twice[0]!r} occurs twice in one record; rename or remove one")


class _NotJsonError(ValueError):
    """What json accepts and JSON does not have; the text says what was found."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _NotJsonError(f"field {twice!r} occurs twice in one record; rename or remove one")
    return found


def _constant(name: str) -> float:
    raise _NotJsonError(f"{name} is no JSON number; write a number, or null where it is missing")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _NotJsonError(f"{digits[:_SHOWN]} is too large for a float; write it as text")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)


def _parse(text: str, place: str, hint: str) -> Any:
    """Return the value of a JSON text; ``hint`` ends the message where the syntax is wrong."""
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        line = f" line {error.lineno}" if error.lineno > 1 else ""
        tail = f"; {hint}" if hint else "; mend or remove the line"
        raise ValueError(f"{place}{line}: not valid JSON ({error.msg} at column {error.colno}){tail}") from error
    except _NotJsonError as error:
        raise ValueError(f"{place}: {error}") from error
    except (RecursionError, ValueError) as error:  # nested too deeply, or an integer of more digits than int() takes
        cause = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"{place}: cannot be read ({cause}); remove the record") from error


def _object(place: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place}: found {_describe(value)}, expected an object with named fields")
    return value


def _describe(value: object) -> str:
    kind = {dict: "an object", list: "a list", str: "a text", type(None): "null", bool: "a truth value"}
    return kind.get(type(value), "a number")
