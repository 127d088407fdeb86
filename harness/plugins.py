"""Build the plug-ins a run names: of the packages, of a file (``path/to/file.py:ClassName``), of an entry point.

Heavy imports wait until a plug-in is built. Every fault is a ``UserError`` in one line.
"""

import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.config.errors import UserError
from harness.config.paths import file_and_class
from harness.config.schema import Plugin, RunConfig
from harness.sources import hash_sources

if TYPE_CHECKING:
    from objectives import Objective
    from objectives.trust_region import TrustRegion
    from tasks import Task

__all__ = [
    "Kind",
    "file_class",
    "find_any",
    "known_classes",
    "label",
    "objective",
    "portable",
    "source_hash",
    "task",
    "task_class",
    "trust_region",
]

Kind = Literal["objective", "trust region", "task"]
_GROUPS: dict[Kind, str] = {
    "objective": "evengrad.objectives",
    "trust region": "evengrad.trust_regions",
    "task": "evengrad.tasks",
}


def objective(plugin: Plugin) -> "Objective":
    """Return the objective with its settings; UserError for an unknown name, a bad file or a bad setting."""
    return _build("objective", plugin)


def trust_region(plugin: Plugin) -> "TrustRegion":
    """Return the trust region with its settings; UserError for an unknown name, a bad file or a bad setting."""
    return _build("trust region", plugin)


def task(plugin: Plugin) -> "Task":
    """Return the task with its settings; UserError for an unknown name, a bad file or a bad setting."""
    return _build("task", plugin)


def label(plugin: Plugin) -> str:
    """Return a short name for tables: the class of a file's plug-in, the name of any other."""
    place = file_and_class(plugin.name)
    return place[1] if place else plugin.name


def portable(config: RunConfig) -> dict[str, Any]:
    """Return the run as plain JSON values, the same on every machine: no place of a file, plug-ins by their class."""
    tables = config.model_dump(mode="json")
    for name in ("task", "objective", "trust_region"):
        tables[name]["name"] = label(getattr(config, name))
    for name in task_class(config.task).places:
        tables["task"].pop(name, None)  # the task's fingerprint stands for its data
    for name in ("policy", "teacher"):
        tables[name]["weights"] = bool(tables[name]["weights"])  # their hash stands for them
    return tables


def task_class(plugin: Plugin) -> type["Task"]:
    """Return the class of a task; UserError where there is none."""
    return _find_class("task", plugin.name)


def source_hash(kind: Kind, plugin: Plugin) -> str:
    """Return the SHA-256 of the source that decides what the plug-in computes.

    It covers the file of its class and every module of the packages objectives and tasks that this file imports,
    directly or not; a new objective beside it changes nothing.
    """
    file = inspect.getsourcefile(_find_class(kind, plugin.name))
    if file is None:
        raise UserError(f"{kind} {plugin.name!r} has no source file to hash")
    return hash_sources(Path(file))


def file_class(name: str) -> type:
    """Return the class of ``path/to/file.py:ClassName``.

    Raises:
        UserError: no such file or class, or the file raises on import; file, line and cause are named.
    """
    place = file_and_class(name)
    if place is None:
        raise UserError(f"{name!r} is no plug-in file: write path/to/file.py:ClassName")
    path, class_name = place
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    module = _import_file(path.resolve(), source)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        classes = [k for k, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__]
        raise UserError(f"{path} has no class {class_name}; its classes: {', '.join(sorted(classes)) or 'none'}")
    return found


def known_classes(kind: Kind) -> tuple[dict[str, type], dict[str, str]]:
    """Return {name: class} of the package and of the entry points, and {name: fault} of entry points without one."""
    classes, faults = dict(_known(kind)[1]), dict[str, str]()
    for point in _entry_points(_GROUPS[kind]):
        try:
            found = _find_class(kind, point.name)
            if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
                raise UserError(f"{point.value} is no dataclass: decorate it with @dataclass(frozen=True)")
        except UserError as error:
            faults[point.name] = str(error)
        else:
            classes[point.name] = found
    return classes, faults


def find_any(name: str) -> type:
    """Return the class of a plug-in of whatever kind; UserError if there is none of that name."""
    if file_and_class(name):
        return file_class(name)
    kind: Kind
    for kind in _GROUPS:
        if name in _known(kind)[1] or name in {point.name for point in _entry_points(_GROUPS[kind])}:
            return _find_class(kind, name)
    raise UserError(f"unknown plug-in {name!r}: write path/to/file.py:ClassName, or a name of evengrad list")


def _build(kind: Kind, plugin: Plugin) -> Any:
    cls = _find_class(kind, plugin.name)
    try:
        if kind == "task":
            from tasks.settings import build as build_task

            return build_task(cls, plugin.settings)
        from objectives.registry import build

        return build(kind, label(plugin), cls, plugin.settings)
    except (ValueError, TypeError) as error:
        prefix = "" if str(error).startswith(kind) else f"{kind} {label(plugin)!r}: "
        raise UserError(f"{prefix}{error}") from error
    except (Exception, SystemExit) as error:  # somebody's class may raise anything
        cause = f"{type(error).__name__}: {error}"
        raise UserError(f"{kind} {label(plugin)!r} cannot be built: {cause}") from error


def _find_class(kind: Kind, name: str) -> Any:
    """Return the class of a name: a file's, else the package's, else an entry point's."""
    base, classes = _known(kind)
    if file_and_class(name):
        found = file_class(name)
    else:
        points = {point.name: point for point in _entry_points(_GROUPS[kind])}
        if name in points and name in classes:
            raise UserError(f"{kind} {name!r} is in the package and in the entry points {_GROUPS[kind]}: rename yours")
        if name not in points and name not in classes:
            from objectives.registry import suggest

            raise UserError(f"unknown {kind} {name!r}{suggest(name, [*classes, *points])}")
        found = classes[name] if name in classes else _load_point(kind, points[name])
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UserError(f"{name} is no {kind}: its class must derive from {base.__module__}.{base.__name__}")
    if inspect.isabstract(found):
        raise UserError(f"{name} is abstract: it lacks {', '.join(sorted(found.__abstractmethods__))}")
    return found


def _known(kind: Kind) -> tuple[type, Mapping[str, type]]:
    try:
        if kind == "task":
            import tasks

            return tasks.Task, tasks.classes()
        import objectives

        if kind == "objective":
            return objectives.Objective, objectives.classes()
        return objectives.trust_region.TrustRegion, objectives.trust_region.classes()
    except ValueError as error:
        raise UserError(str(error)) from error


def _entry_points(group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
    return _entry_points_of(group, tuple(sys.path), importlib.metadata.entry_points)


@functools.lru_cache(maxsize=64)
def _entry_points_of(
    group: str, path: tuple[str, ...], look_up: Callable[..., Any]
) -> tuple[importlib.metadata.EntryPoint, ...]:
    """Return a group's entry points; reading them takes milliseconds and is done once a search path."""
    del path
    return tuple(look_up(group=group))


def _load_point(kind: Kind, point: importlib.metadata.EntryPoint) -> Any:
    return _guarded(f"{kind} {point.name!r} (entry point {point.value})", None, point.load)


def _import_file(path: Path, source: bytes) -> Any:
    """Import a file under a name made of its place and content: an edited file is another module."""
    name = f"evengrad_plugin_{path.stem}_{hashlib.sha256(str(path).encode() + source).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    loader = spec.loader
    try:
        _guarded(str(path), path, lambda: loader.exec_module(module))
    except UserError:
        del sys.modules[name]
        raise
    return module


def _guarded(what: str, path: Path | None, load: Callable[[], Any]) -> Any:
    """Run somebody's module; whatever it raises becomes one line that names the file's line."""
    try:
        return load()
    except (Exception, SystemExit) as error:  # somebody's module may raise anything; its exit is not ours
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        where = f"{what}, line {line}" if line else what
        cause = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UserError(f"{where}: {type(error).__name__}: {cause}") from error
