"""A file that extends others: ``extends = "base.toml"``, read first, with the file's own tables over it. No torch."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.config.errors import UserError

__all__ = ["PLUGINS", "inherited"]

PLUGINS = ("task", "objective", "trust_region")
_EXTENDS = "extends"


def inherited(path: Path, read: Callable[[Path], Mapping[str, Any]], below: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the tables of a file over those of the files that it extends, the first one lowest.

    Tables are merged key by key, arms by their names, those of new names behind the others; any other list or value
    replaces the one below it, and a plug-in of another name all settings of the one below it.

    Args:
        path: the file.
        read: returns the tables of one file.
        below: files that extend this one.

    Raises:
        UserError: a file extends itself by some way, or ``extends`` names something else than files.
    """
    place = path.resolve()
    if place in below:
        names = " -> ".join(file.name for file in (*below[below.index(place) :], place))
        raise UserError(f"{path} extends itself: {names}")
    tables = dict(read(path))
    bases = tables.pop(_EXTENDS, [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise UserError(f'{path}: extends = {bases!r} should be a file or a list of files, e.g. extends = "base.toml"')
    merged: dict[str, Any] = {}
    for base in bases:
        merged = _merge(merged, inherited(path.parent / base, read, (*below, place)))
    return _merge(merged, tables)


def _merge(tables: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(tables)
    for key, value in own.items():
        there = merged.get(key)
        if key == "arms" and _are_tables(there) and _are_tables(value):
            merged[key] = _merge_arms(there, value)
        elif isinstance(value, Mapping) and isinstance(there, Mapping):
            renamed = key in PLUGINS and value.get("name", there.get("name")) != there.get("name")
            merged[key] = dict(value) if renamed else _merge(there, value)
        else:
            merged[key] = value
    return merged


def _merge_arms(arms: Any, own: Any) -> list[Any]:
    """Return both lists as one; arms without a name are left for the schema to refuse."""
    named = {arm.get("name", f"{number}"): arm for number, arm in enumerate(arms)}
    for number, arm in enumerate(own, len(named)):
        name = arm.get("name", f"{number}")
        named[name] = _merge(named.get(name, {}), arm)
    return list(named.values())


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
