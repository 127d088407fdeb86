"""Read, override and resolve configurations; every fault becomes one line that names key, value and near matches."""

import copy
import json
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from harness.config.errors import UserError
from harness.config.inheritance import PLUGINS, inherited
from harness.config.paths import resolve_paths
from harness.config.schema import Plugin, RunConfig
from harness.config.sweep import SweepConfig

__all__ = [
    "apply_overrides",
    "canonical_json",
    "is_setting",
    "load_run",
    "load_sweep",
    "parse_assignments",
    "read_toml",
    "resolve_run",
    "set_dotted",
]

Model = TypeVar("Model", bound=BaseModel)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises:
        UserError: it cannot be read, or is no TOML; the line is named.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Return {dotted key: value} of ``key=value`` words; the value is read as TOML, a bare word as text."""
    parsed: dict[str, Any] = {}
    for word in assignments:
        key, equals, text = word.partition("=")
        if not equals or not key.strip():
            raise UserError(f"{word!r} is no setting: write key=value, for instance update.learning_rate=1e-4")
        try:
            parsed[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            parsed[key.strip()] = text
    return parsed


def set_dotted(tables: dict[str, Any], key: str, value: Any) -> None:
    """Set ``tables[a][b][c]`` for the key "a.b.c", making tables on the way."""
    *parents, last = key.split(".")
    for part in parents:
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            raise UserError(f"{key}: {part} is a value, not a table")
    tables[last] = value


def apply_overrides(tables: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``tables`` with ``overrides`` laid over: dotted keys are set, tables are merged.

    A plug-in that changes its name loses the settings of the former one: they belong to another class. Names come
    first, whatever the order of ``overrides``.
    """
    merged = copy.deepcopy(dict(tables))
    for key, value in sorted(overrides.items(), key=lambda item: not item[0].endswith(".name")):
        if isinstance(value, Mapping):
            below = merged.get(key, {})
            if not isinstance(below, Mapping):
                raise UserError(f"{key} = {below!r} should be a table")
            renamed = key in PLUGINS and value.get("name", ...) != below.get("name")
            merged[key] = apply_overrides({} if renamed and "name" in value else below, value)
        else:
            _forget_settings(merged, key, value)
            set_dotted(merged, key, copy.deepcopy(value))
    return merged


def is_setting(key: str) -> bool:
    """Whether a dotted key may be set in a run; below a plug-in any key may (its class decides)."""
    model: Any = RunConfig
    for position, part in enumerate(key.split(".")):
        if model is Plugin and position > 0:
            return True
        if not (isinstance(model, type) and issubclass(model, BaseModel)) or part not in model.model_fields:
            return False
        model = model.model_fields[part].annotation
    return not (isinstance(model, type) and issubclass(model, BaseModel))


def resolve_run(tables: Mapping[str, Any], source: str = "run") -> RunConfig:
    """Return the validated run; UserError in one line otherwise."""
    return _validate(RunConfig, tables, source)


def load_run(path: Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Return the run of a TOML file with dotted ``overrides`` over it.

    Files that it names are meant from its own folder, those in ``overrides`` from the working directory.
    """
    return resolve_run(_overridden(path, overrides or {}), str(path))


def load_sweep(path: Path, overrides: Mapping[str, Any] | None = None) -> SweepConfig:
    """Return the sweep of a TOML file with dotted ``overrides``; a run's key may be given with or without ``base.``.

    Files that it names are meant from its own folder, those in ``overrides`` from the working directory.
    """
    keys = {k: f"base.{k}" if k.split(".")[0] in RunConfig.model_fields else k for k in overrides or {}}
    if "base.seed" in keys.values():
        raise UserError("a sweep takes seeds=[0, 1], not seed")
    return _validate(SweepConfig, _overridden(path, {keys[k]: v for k, v in (overrides or {}).items()}), str(path))


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values have equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _forget_settings(tables: dict[str, Any], key: str, value: Any) -> None:
    """Empty the table of a plug-in if ``key`` is its name and ``value`` another one than before."""
    *parents, last = key.split(".")
    if last != "name" or not parents or parents[-1] not in PLUGINS:
        return
    below: Any = tables
    for part in parents:
        below = below.get(part) if isinstance(below, dict) else None
    if isinstance(below, dict) and below.get("name") != value:
        below.clear()


def _overridden(path: Path, overrides: Mapping[str, Any]) -> dict[str, Any]:
    tables = inherited(path, lambda file: resolve_paths(read_toml(file), file.parent))
    return apply_overrides(tables, resolve_paths(overrides, Path.cwd()))


def _validate(model: type[Model], tables: Mapping[str, Any], source: str) -> Model:
    try:
        return model.model_validate(tables)
    except ValidationError as error:
        raise UserError(f"{source}: " + "; ".join(_explain(model, item) for item in error.errors())) from None


def _explain(model: type[BaseModel], item: Any) -> str:
    """One fault of pydantic's list as a sentence: where, what was given, what would do."""
    path = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        known = _fields_at(model, item["loc"][:-1])
        near = get_close_matches(str(item["loc"][-1]), known, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return f"unknown key {path}{hint} (known: {', '.join(sorted(known))})"
    if item["type"] == "missing":
        return f"{path} is missing"
    message = item["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    return f"{path} = {item['input']!r} {message}" if path else message


def _fields_at(model: Any, location: Iterable[Any]) -> list[str]:
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        nested = [kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type)]
        model = next((kind for kind in nested if issubclass(kind, BaseModel)), model)
    return list(model.model_fields)
