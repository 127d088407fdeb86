"""Read what a cell recorded, and say so where a file is not what it should be. Standard library only."""

import json
from pathlib import Path
from typing import Any, Literal

from harness.config.errors import CorruptRecordError
from harness.sweeps.files import sha256_hex

__all__ = ["STREAMS", "VERIFIED_STREAMS", "Failure", "Stream", "read_json", "read_lines", "read_status", "read_stream"]

Stream = Literal["metrics", "evals", "samples", "timing"]
STREAMS: tuple[Stream, ...] = ("metrics", "evals", "samples", "timing")
Failure = Literal["divergence", "unscored", "budget", "error"]
"""Why a run failed: a loss or gradient was not finite; too many responses could not be scored; the budget allowed no
update; anything else."""
# Seconds differ between equal runs; their digest in status.json would make that file differ too.
VERIFIED_STREAMS: tuple[Stream, ...] = ("metrics", "evals", "samples")


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        CorruptRecordError: it cannot be read, or holds no JSON object.
    """
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CorruptRecordError(f"{path} cannot be read ({error}); {_REMEDY.format(folder=path.parent)}") from error
    if not isinstance(value, dict):
        raise CorruptRecordError(f"{path} holds no JSON object; {_REMEDY.format(folder=path.parent)}")
    return value


def read_status(path: Path) -> dict[str, Any]:
    """Return the status of the cell in the folder ``path``.

    Returns:
        {"status": "missing" | "running" | "completed" | "failed", "cause": text, "failure": of ``Failure``, "" unless
        failed}, and for an ended cell "totals",
        "digests" and "streams". "running" says only that the cell was begun: its process may be dead.

    Raises:
        CorruptRecordError: status.json is unreadable, or the cell is completed and a record is not as it was then.
    """
    file = path / "status.json"
    if not file.exists():
        return {"status": "missing", "cause": "", "failure": ""}
    status = read_json(file)
    if status.get("status") not in ("running", "completed", "failed"):
        raise CorruptRecordError(f"{file} holds no status; {_REMEDY.format(folder=path)}")
    if status["status"] == "completed":
        _verify(path, status)
    return {"cause": "", "failure": "", **status}


def read_stream(path: Path, stream: Stream) -> list[dict[str, Any]]:
    """Return the records of one stream of the cell in ``path``.

    A torn last line is left out unless the cell is completed: its process was killed, or is just writing it.

    Raises:
        CorruptRecordError: any other line is no record; file and line number are named.
    """
    file = path / f"{stream}.jsonl"
    completed = read_status(path)["status"] == "completed"
    if not file.exists():
        if completed:
            raise CorruptRecordError(f"{file} is missing; {_REMEDY.format(folder=path)}")
        return []
    *lines, torn = file.read_bytes().split(b"\n")
    if torn and completed:
        raise CorruptRecordError(f"{file} line {len(lines) + 1} is cut off; {_REMEDY.format(folder=path)}")
    return [_parse(file, number, line) for number, line in enumerate(lines, start=1)]


def read_lines(path: Path, stream: Stream) -> list[dict[str, Any]]:
    """Return the whole lines of a stream that may be written meanwhile, [] if it is absent; no digest is checked.

    Raises:
        CorruptRecordError: a whole line is no record.
    """
    file = path / f"{stream}.jsonl"
    try:
        *lines, _ = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    return [_parse(file, number, line) for number, line in enumerate(lines, start=1)]


_REMEDY = "delete {folder} to run the cell anew"


def _parse(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise CorruptRecordError(f"{file} line {number} is no record; {_REMEDY.format(folder=file.parent)}")
    return record


def _verify(path: Path, status: dict[str, Any]) -> None:
    """Raise unless every stream has the length and digest that a completed cell's status.json tells."""
    unknown = [stream for stream in VERIFIED_STREAMS if stream not in status.get("streams", {})]
    if unknown:
        raise CorruptRecordError(
            f"{path / 'status.json'} was written by an older version of evengrad (no digest of {', '.join(unknown)}); "
            + _REMEDY.format(folder=path)
        )
    for stream in VERIFIED_STREAMS:
        file = path / f"{stream}.jsonl"
        recorded = status.get("streams", {}).get(stream, {})
        content = file.read_bytes() if file.exists() else b""
        if len(content) != recorded.get("bytes"):
            raise CorruptRecordError(
                f"{file} holds {len(content)} bytes, but {recorded.get('bytes')} when the cell was completed; "
                + _REMEDY.format(folder=path)
            )
        if sha256_hex(content) != recorded.get("sha256"):
            raise CorruptRecordError(f"{file} was changed after completion; {_REMEDY.format(folder=path)}")
    for name in status.get("digests", {}):
        if not (path / name).exists():
            raise CorruptRecordError(f"{path / name} is missing; {_REMEDY.format(folder=path)}")
