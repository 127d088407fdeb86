"""Policy-gradient objectives as plug-in classes: one published algorithm a file, found by being there."""

from typing import Any

from objectives import trust_region
from objectives.base import Batch, Finish, Objective, Origin, Rollout, Step, Targets, TokenLoss, select_rows
from objectives.registry import build, discover, lookup

__all__ = [
    "Batch",
    "Finish",
    "Objective",
    "Origin",
    "Rollout",
    "Step",
    "Targets",
    "TokenLoss",
    "classes",
    "make",
    "names",
    "select_rows",
    "trust_region",
]


def classes() -> dict[str, type[Objective]]:
    """Return {name: class} of every objective in this package."""
    return dict(discover("objectives", Objective))


def names() -> list[str]:
    """Return the names of all objectives in this package, sorted."""
    return sorted(classes())


def make(name: str, **settings: Any) -> Objective:
    """Return the objective ``name`` with ``settings`` over its defaults; ``preset="..."`` picks a named variant.

    Raises:
        ValueError: unknown name, setting or preset (near matches are named), wrong type or range.

    Example:
        >>> make("gspo", clip_high=5e-4).clip_high
        0.0005
    """
    return build("objective", name, lookup("objective", name, classes()), settings)
