"""Files that are whole or absent, whatever kills the process: write beside, sync, rename. Standard library only."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from harness.config.errors import CorruptRecordError

__all__ = ["dump_json", "remove_leftovers", "seal", "sha256_hex", "sync_folder", "unseal", "write_atomic"]

_TRAILER_PREFIX = b"\nsha256:"
_TRAILER_LENGTH = len(_TRAILER_PREFIX) + 64 + 1


def sha256_hex(payload: bytes) -> str:
    """Return the digest as 64 hexadecimal digits."""
    return hashlib.sha256(payload).hexdigest()


def dump_json(value: Any) -> str:
    """Return canonical JSON: sorted keys, no spaces.

    Raises:
        ValueError: a number is NaN or infinite; missing is None.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in ``folder`` last through a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, payload: bytes) -> None:
    """Replace ``path`` by ``payload``: a reader sees the old bytes or the new ones, never a part."""
    beside = path.with_name(f".{path.name}.tmp")
    with beside.open("wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed ``write_atomic`` left; only for the one who holds the folder's lock."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink()


def seal(payload: bytes) -> bytes:
    """Return ``payload`` with its digest behind it."""
    return payload + _TRAILER_PREFIX + sha256_hex(payload).encode() + b"\n"


def unseal(path: Path, sealed: bytes) -> bytes:
    """Return the payload of ``sealed``, the content of ``path``.

    Raises:
        CorruptRecordError: the digest is missing or is another's.
    """
    payload, trailer = sealed[:-_TRAILER_LENGTH], sealed[-_TRAILER_LENGTH:]
    if trailer != seal(payload)[-_TRAILER_LENGTH:]:
        raise CorruptRecordError(f"{path} is corrupt; delete it to start the cell anew")
    return payload
