"""Where the splits of a data set lie: one file each, the files of a folder, one file in all, or a hub data set."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tasks.sources.hub as hub
from tasks.base import SPLITS, Split
from tasks.sources.rows import ENDINGS, Row, read_file, split_ending

__all__ = ["Origin", "find", "find_files", "read", "split_of"]

_ALIASES: Mapping[str, Split] = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
_SHOWN = 200  # characters of a source that an error shows
_SPLIT_NAME = re.compile(rf"(?:.*[-_. ])?({'|'.join(_ALIASES)})", re.DOTALL)


@dataclass(frozen=True)
class Origin:
    """What to read.

    Attributes:
        files: (split, file) pairs; the split is None for a file that holds all of them.
        hub: a data set's hub name, "" where files are read.
    """

    files: tuple[tuple[Split | None, Path], ...] = ()
    hub: str = ""

    def stamp(self) -> tuple[object, ...]:
        """Return a value that changes with what is read: paths, times and sizes of the files, or the hub name."""
        found: list[object] = [self.hub]
        for split, path in self.files:
            try:
                status = path.stat()
            except OSError:  # reading it says what is wrong
                found.append((split, str(path), None))
                continue
            found.append((split, os.path.realpath(path), (status.st_mtime_ns, status.st_size)))
        return tuple(found)


def split_of(name: str) -> Split | None:
    """Return the split that a file's stem tells, e.g. "gsm8k-dev" is validation; None where it tells none."""
    match = _SPLIT_NAME.fullmatch(name.lower())
    return _ALIASES[match[1]] if match else None


def find_files(files: Mapping[Split, str]) -> Origin:
    """Return the origin of one file a split; a path of "" stands for none."""
    return Origin(files=tuple((split, Path(files[split])) for split in SPLITS if files.get(split)))


def find(source: str) -> Origin:
    """Return what ``source`` names: a folder, a file, or else a hub data set; a path that exists comes first.

    Raises:
        ValueError: no such file or folder and no hub name; a folder without a data file, with two files for one split,
            or with several files that name none.
    """
    path = Path(source)
    if os.path.isdir(path):
        return Origin(files=_files_of_folder(path))
    if os.path.lexists(path):
        return Origin(files=((split_of(split_ending(path)[0]), path),))
    if hub.is_name(source):
        return Origin(hub=source)
    raise ValueError(
        f"source {source[:_SHOWN]!r}: no such file or folder, and no hub name (owner/name); check the path (relative "
        "ones start at the working directory)"
    )


def _files_of_folder(folder: Path) -> tuple[tuple[Split | None, Path], ...]:
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and split_ending(path)[1]]
    if not files:
        raise ValueError(f"folder {folder} holds no data file, expected e.g. train.jsonl ({', '.join(ENDINGS)})")
    found: dict[Split, Path] = {}
    for path in files:
        split = split_of(split_ending(path)[0])
        if split in found:
            raise ValueError(
                f"folder {folder} has two files for {split} ({found[split].name}, {path.name}); name the right one "
                f"with {split}=... or move the other away"
            )
        if split is not None:
            found[split] = path
    if found:
        return tuple((split, found[split]) for split in SPLITS if split in found)
    if len(files) > 1:
        names = ", ".join(path.name for path in files[:5])
        raise ValueError(
            f"folder {folder} has {len(files)} data files and none names a split ({names}); give one file as source, "
            "or train=..., validation=..., test=..."
        )
    return ((None, files[0]),)


def read(origin: Origin) -> dict[Split | None, list[Row]]:
    """Return the rows by split, those of a file that holds all splits under None.

    Raises:
        ValueError: a file cannot be read, or the hub data set cannot be had or has no split of a known name.
    """
    if not origin.hub:
        return {split: read_file(path) for split, path in origin.files}
    found: dict[Split | None, list[Row]] = {}
    named: dict[Split, str] = {}
    for name, rows in hub.read(origin.hub, _ALIASES).items():
        split = _ALIASES[name]
        if split in named:
            raise ValueError(
                f"hub data set {origin.hub} has two splits for {split} ({named[split]}, {name}); save them as files "
                "and give these as train=..., validation=..., test=..."
            )
        named[split], found[split] = name, rows
    return found
