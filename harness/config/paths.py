"""File names in a configuration are meant from the folder of the file that holds them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["file_and_class", "resolve_paths"]

_FILE_PLUGIN = re.compile(r"^(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)$")


def file_and_class(name: str) -> tuple[Path, str] | None:
    """Return (file, class name) of a plug-in name such as ``path/to/file.py:ClassName``, None for any other name."""
    match = _FILE_PLUGIN.match(name)
    return (Path(match["file"]), match["name"]) if match else None


def resolve_paths(value: Any, folder: Path) -> Any:
    """Return ``value`` with the files of plug-ins, and policies named ``./`` or ``../``, as seen from ``folder``.

    Example:
        >>> resolve_paths({"objective": {"name": "mine.py:Mine"}}, Path("/study"))
        {'objective': {'name': '/study/mine.py:Mine'}}
    """
    if isinstance(value, Mapping):
        return {key: resolve_paths(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve_paths(item, folder) for item in value]
    if isinstance(value, str) and (_FILE_PLUGIN.match(value) or value.startswith(("./", "../"))):
        return str((folder / value).resolve())
    return value
