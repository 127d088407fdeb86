"""Find plug-in classes by the file they stand in, and build them from settings with errors that teach."""

import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin

__all__ = ["build", "concrete_classes", "discover", "lookup", "suggest"]

Base = TypeVar("Base")


def suggest(name: str, known: typing.Iterable[str]) -> str:
    """Return "; did you mean 'x'?" with near matches of ``name``, then all known names."""
    names = sorted(known)
    near = get_close_matches(name, names, n=3)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"{hint} (known: {', '.join(names) or 'none'})"


def concrete_classes(module: types.ModuleType, base: type[Base]) -> list[type[Base]]:
    """Return the non-abstract subclasses of ``base`` that ``module`` itself defines."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, base)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    ]


@cache
def discover(package: str, base: type[Base]) -> Mapping[str, type[Base]]:
    """Return {file name: class} for every module of ``package`` that defines one concrete ``base``.

    Raises:
        ValueError: a module raises on import, or defines two of them.
    """
    found: dict[str, type[Base]] = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if info.ispkg:
            continue
        name = f"{package}.{info.name}"
        try:
            module = importlib.import_module(name)
        except (ImportError, SyntaxError, ValueError, TypeError, NameError, AttributeError) as error:
            raise ValueError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
        classes = concrete_classes(module, base)
        if len(classes) > 1:
            raise ValueError(f"{name} defines {', '.join(c.__name__ for c in classes)}: one {base.__name__} a file")
        if classes:
            found[info.name] = classes[0]
    return types.MappingProxyType(found)


def lookup(kind: str, name: str, known: Mapping[str, type[Base]]) -> type[Base]:
    """Return ``known[name]``; ValueError with near matches if there is none."""
    if name not in known:
        raise ValueError(f"unknown {kind} {name!r}{suggest(name, known)}")
    return known[name]


def build(kind: str, name: str, cls: type[Base], settings: Mapping[str, Any]) -> Base:
    """Return ``cls(**settings)``, with ``preset`` expanded first; explicit settings win over the preset's.

    Raises:
        ValueError: unknown setting or preset, wrong type, or a value the class itself refuses.
    """
    if not is_dataclass(cls):
        raise ValueError(f"{kind} {name!r}: {cls.__name__} is not a dataclass; write @dataclass(frozen=True) above it")
    chosen = dict(settings)
    preset = chosen.pop("preset", None)
    if preset is not None:
        presets: Mapping[str, Mapping[str, Any]] = getattr(cls, "presets", {})
        if preset not in presets:
            raise ValueError(f"{kind} {name!r} has no preset {preset!r}{suggest(str(preset), presets)}")
        chosen = {**presets[preset], **chosen}
    hints = typing.get_type_hints(cls)
    known = {item.name: item for item in fields(cls) if item.init}
    for key, value in chosen.items():
        if key not in known:
            raise ValueError(f"{kind} {name!r} has no setting {key!r}{suggest(key, known)}")
        if not _fits(value, hints[key]):
            expected = _describe(hints[key])
            raise ValueError(f"{kind} {name!r}: {key} = {value!r} is a {type(value).__name__}, expected {expected}")
    missing = [k for k, f in known.items() if k not in chosen and f.default is MISSING and f.default_factory is MISSING]
    if missing:
        raise ValueError(f"{kind} {name!r} needs {', '.join(missing)}")
    typed = {key: float(value) if hints[key] is float else value for key, value in chosen.items()}
    try:
        return cls(**typed)
    except ValueError as error:
        raise ValueError(f"{kind} {name!r}: {error}") from error


def _fits(value: object, hint: Any) -> bool:
    """Whether a TOML or JSON value may stand for an annotated field: an int may for a float, a bool for neither."""
    origin = get_origin(hint)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(hint))
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, choice) for choice in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is None:
        return value is None
    return isinstance(value, origin or hint)


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(choice) for choice in get_args(hint))
    return getattr(hint, "__name__", str(hint))
