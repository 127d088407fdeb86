"""Files that are whole or absent, whatever kills the process: write beside, sync, rename. Standard library only.

Every call that changes a file of a sweep goes through ``os`` here, so that tests can stop a process before any of them.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.config.errors import CorruptRecordError

__all__ = [
    "append_to",
    "close",
    "create",
    "dump_json",
    "link",
    "make_folder",
    "open_stream",
    "overwrite",
    "remove",
    "remove_leftovers",
    "seal",
    "sha256_hex",
    "sync",
    "sync_folder",
    "unseal",
    "write_atomic",
]

_MODE = 0o644
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


def make_folder(folder: Path) -> None:
    """Make ``folder`` and those above it, where they are not there."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise


def open_stream(path: Path) -> int:
    """Return a descriptor that adds to the end of ``path``; the file is made if it is not there."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _MODE)


def append_to(descriptor: int, payload: bytes) -> None:
    """Write all of ``payload``; what a full disk took of it stays, as a torn line does."""
    rest = memoryview(payload)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync(descriptor: int) -> None:
    """Make what was written last through a power cut."""
    os.fsync(descriptor)


def close(descriptor: int) -> None:
    """Close a descriptor."""
    os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in ``folder`` last through a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create(path: Path, payload: bytes) -> None:
    """Write a file that is not there yet; FileExistsError if it is. Not whole before this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    try:
        append_to(descriptor, payload)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def overwrite(path: Path, payload: bytes) -> None:
    """Write ``payload`` over the first bytes of a file; FileNotFoundError if it is gone."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        append_to(descriptor, payload)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link(path: Path, name: Path) -> None:
    """Give the file ``path`` a second name, at once and whole; FileExistsError if the name is taken."""
    os.link(path, name)


def remove(path: Path) -> None:
    """Remove a file if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def write_atomic(path: Path, payload: bytes, permit: Callable[[], None] = lambda: None) -> None:
    """Replace ``path`` by ``payload``: a reader sees the old bytes or the new ones, never a part.

    Args:
        path: the file.
        payload: its new content.
        permit: called right before the file is replaced; what it raises leaves the old bytes.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        create(beside, payload)
        permit()
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(beside)
        raise
    sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed ``write_atomic`` left; only for the one who holds the folder's lease."""
    for leftover in folder.glob(".*.tmp"):
        remove(leftover)


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
