"""Range checks of hyper-parameters; each raises a ValueError that says what was given and what would do."""

import math
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

__all__ = ["refuse_unread", "require_at_least", "require_between", "require_positive"]


def require_positive(**settings: float) -> None:
    """Refuse a value that is not a finite number above 0."""
    for name, value in settings.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} = {value!r} must be above 0")


def require_at_least(bound: float, **settings: float) -> None:
    """Refuse a value below ``bound`` or NaN; infinity is allowed."""
    for name, value in settings.items():
        if not value >= bound:
            raise ValueError(f"{name} = {value!r} must be at least {bound:g}")


def require_between(low: float, high: float, **settings: float) -> None:
    """Refuse a value outside [low, high]."""
    for name, value in settings.items():
        if not low <= value <= high:
            raise ValueError(f"{name} = {value!r} must be between {low:g} and {high:g}")


def refuse_unread(settings: Any, names: Iterable[str], why: str) -> None:
    """Refuse a field of the dataclass ``settings`` that has another value than its default and that nothing reads."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name in names and value != field.default:
            raise ValueError(f"{field.name} = {value!r} is not read with {why}; leave it out")
