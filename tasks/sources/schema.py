"""The fields that a data set must have, checked row by row before anything is read from them."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tasks.sources.rows import Row

__all__ = ["Field", "Kind", "check"]

Kind = Literal["str", "int", "number", "bool", "int or str", "list", "list of str", "object", "any"]
_SHOWN = 40  # characters of a bad value that an error shows
_NEAR = 0.75  # similarity of a misspelt name; "question" and "solution" have 0.62


def _is_str(value: Any) -> bool:
    return isinstance(value, str)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_FITS: dict[Kind, Callable[[Any], bool]] = {
    "str": _is_str,
    "int": _is_int,
    "number": lambda value: _is_int(value) or isinstance(value, float),
    "bool": lambda value: isinstance(value, bool),
    "int or str": lambda value: _is_int(value) or _is_str(value),
    "list": lambda value: isinstance(value, list),
    "list of str": lambda value: isinstance(value, list) and all(map(_is_str, value)),
    "object": lambda value: isinstance(value, dict),
    "any": lambda value: value is not None,
}


@dataclass(frozen=True)
class Field:
    """One named field of a row.

    Attributes:
        name: exactly as in the data.
        kind: what its value must be; a truth value is no number.
        required: False where rows may lack it; null then counts as lacking (a hub fills up missing fields with it).
        nullable: True where a required field may be null.
    """

    name: str
    kind: Kind
    required: bool = True
    nullable: bool = False

    def __post_init__(self) -> None:
        """Refuse an unknown kind."""
        if self.kind not in get_args(Kind):
            known = ", ".join(get_args(Kind))
            raise ValueError(f"field {self.name!r} has the kind {self.kind!r}, expected one of {known}")


def check(row: Row, fields: Sequence[Field]) -> None:
    """Refuse a row that lacks a field or has a value of another kind; further fields are allowed.

    Raises:
        ValueError: one line with the place, the field, what was found and what was expected.
    """
    for field in fields:
        if field.name in row.values:
            _check_value(row, field, row.values[field.name])
        elif field.required:
            near = difflib.get_close_matches(field.name, list(row.values), n=1, cutoff=_NEAR)
            hint = f", did you mean {near[0]!r}?" if near else ";"
            found = ", ".join(map(ascii, row.values)) or "none"
            raise ValueError(f"{row.place}: no field {field.name!r} ({field.kind}){hint} fields found: {found[:200]}")


def _check_value(row: Row, field: Field, value: Any) -> None:
    if value is None and (field.nullable or not field.required):
        return
    if not _FITS[field.kind](value):
        shown = "null" if value is None else f"{ascii(value)[:_SHOWN]} ({type(value).__name__})"
        raise ValueError(f"{row.place}: field {field.name!r} is {shown}, expected {field.kind}")
    if not _encodable(value):
        raise ValueError(f"{row.place}: field {field.name!r} holds half a surrogate pair, expected whole characters")


def _encodable(value: Any) -> bool:
    """Return whether all text within can be written as UTF-8; a lone surrogate of a JSON escape cannot."""
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            left += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            left += part
        elif isinstance(part, str) and not part.isascii() and any("\ud800" <= c <= "\udfff" for c in part):
            return False
    return True
