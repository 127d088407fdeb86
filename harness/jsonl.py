"""Read a hand-made file of JSON lines; every fault is one line that names the file's line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.config.errors import UserError

__all__ = ["read_rows"]


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("FILE line 3", object) for every line that is not blank.

    Raises:
        UserError: the file cannot be read, or a line is no UTF-8, no JSON, no object, or has a key twice.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            place = f"{path} line {number}"
            yield place, _parse(place, line)


def _parse(place: str, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"), object_pairs_hook=_unique)
    except _TwiceError as error:
        raise UserError(f"{place}: key {error.args[0]!a} is there twice") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{place} is not UTF-8 text (byte {error.start + 1} of the line)") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{place} is not valid JSON: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place} is not valid JSON: {error}") from None
    if not isinstance(row, dict):
        raise UserError(f"{place} should be a JSON object, got {ascii(row)[:40]}")
    return row


class _TwiceError(ValueError):
    """A key that an object has two times."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(next(key for position, key in enumerate(keys) if key in keys[:position]))
    return row
