"""Nested tables as dotted keys. Standard library only."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["flat"]


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of nested tables; an empty table yields nothing.

    Example:
        >>> dict(flat({"update": {"epochs": 4}, "seed": 0}))
        {'update.epochs': 4, 'seed': 0}
    """
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
