"""Checks of a task's settings: right type, right range, and an error that says how to fix it."""

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from tasks.base import Task

__all__ = ["build", "near_match", "require"]

_SCALARS: tuple[type, ...] = (bool, int, float, str)


def near_match(given: str, known: Iterable[str]) -> str:
    """Return ``", did you mean 'x'?"`` for the nearest known names, "" where none is near."""
    near = difflib.get_close_matches(given, list(known), n=3, cutoff=0.5)
    return f", did you mean {' or '.join(map(repr, near))}?" if near else ""


def require(condition: bool, setting: str, given: object, expected: str) -> None:
    """Refuse a setting that is out of range.

    Args:
        condition: True where the setting is fine.
        setting: its name.
        given: the value that was passed.
        expected: what would be accepted, with an example, e.g. "an int >= 1, e.g. 512".

    Raises:
        ValueError: ``condition`` is False.
    """
    if not condition:
        raise ValueError(f"setting {setting!r} is {given!r}, expected {expected}")


def _scalar(setting: str, given: object, kind: type) -> object:
    if kind is float and type(given) is int:
        given = float(given)
    fits = type(given) is kind and not (isinstance(given, float) and not math.isfinite(given))
    require(fits, setting, given, f"a finite {kind.__name__}" if kind is float else f"of type {kind.__name__}")
    return given


def _convert(setting: str, given: object, hint: Any) -> object:
    """Return ``given`` as ``hint`` asks; a list (as TOML gives it) is taken for a tuple, an int for a float."""
    if hint in _SCALARS:
        return _scalar(setting, given, hint)
    kinds = get_args(hint)
    if get_origin(hint) is tuple and len(kinds) > 1 and kinds[1] is ... and kinds[0] in _SCALARS:
        expected = f"a list of {kinds[0].__name__}"
        if not isinstance(given, list | tuple):
            raise ValueError(f"setting {setting!r} is {given!r}, expected {expected}, e.g. [{given!r}]")
        return tuple(_scalar(setting, item, kinds[0]) for item in given)
    return given


def build(cls: type[Task], settings: Mapping[str, object]) -> Task:
    """Build a task from settings as a configuration file holds them.

    Args:
        cls: a concrete task, a dataclass.
        settings: name -> value; lists stand for tuples.

    Returns:
        The task.

    Raises:
        ValueError: an unknown setting (near matches and all settings are named), a wrong type or a wrong range.
    """
    if not dataclasses.is_dataclass(cls):
        raise ValueError(f"{cls.__name__} is no dataclass: decorate it with @dataclass(frozen=True)")
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    hints = get_type_hints(cls)
    for setting in settings:
        if setting not in known:
            hint = near_match(setting, known)
            raise ValueError(f"unknown setting {setting!r} of {cls.__name__}{hint}; settings: {', '.join(known)}")
    return cls(**{setting: _convert(setting, given, hints[setting]) for setting, given in settings.items()})
