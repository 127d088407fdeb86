"""What there is to choose from, and whether a plug-in keeps its contract: ``evengrad list`` and ``evengrad check``."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from harness import plugins
from harness.config.errors import UserError

__all__ = ["KINDS", "check", "describe"]

Claim = tuple[str, str | None]


def describe(kind: str) -> list[str]:
    """Return the lines that ``evengrad list kind`` prints; ``kind`` is one of ``KINDS``."""
    return KINDS[kind]()


def check(name: str) -> list[Claim]:
    """Run the contract of a plug-in, built with its default settings.

    Args:
        name: ``path/to/file.py:ClassName``, or the name of a plug-in of the package.

    Returns:
        (claim, None or what is wrong), one for every claim.

    Raises:
        UserError: there is no such plug-in, or it cannot be built without settings.
    """
    import objectives
    from harness.config.schema import Plugin
    from objectives.trust_region import TrustRegion
    from tasks import Task

    plugin = Plugin(name=name)
    cls = plugins.find_any(name)
    if issubclass(cls, Task):
        return _check_task(plugins.task(Plugin(name=name, **dict(cls.sample))))
    if issubclass(cls, objectives.Objective):
        return _check_other(plugins.objective(plugin))
    if issubclass(cls, TrustRegion):
        return _check_other(plugins.trust_region(plugin))
    raise UserError(f"{name} is neither an Objective nor a TrustRegion nor a Task: its class must derive from one")


def _check_other(built: Any) -> list[Claim]:
    from objectives import contract

    try:
        return contract.run(built)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody's class may raise anything
        return [("The contract can be run.", f"{type(error).__name__}: {error}")]


def _check_task(task: Any) -> list[Claim]:
    from tasks.contract import CHECKS

    return [(_first_line(promise), _broken(promise, task)) for promise in CHECKS]


def _broken(promise: Callable[[Any], None], task: Any) -> str | None:
    """Return what is wrong, None if the promise is kept; a task may raise anything, and that breaks it too."""
    try:
        promise(task)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody's task may raise anything, and stop nothing
        return f"{type(error).__name__}: {error}"
    return None


def _first_line(item: Any) -> str:
    return (inspect.getdoc(item) or "").partition("\n")[0]


def _describe_kind(kind: plugins.Kind) -> list[str]:
    """Return the lines of a kind's classes, and behind them one for each entry point that cannot be used."""
    classes, faults = plugins.known_classes(kind)
    broken = [f"{name}: BROKEN entry point: {' '.join(fault.split())}" for name, fault in sorted(faults.items())]
    return [*_describe_classes(classes), *broken]


def _describe_classes(classes: Mapping[str, type]) -> list[str]:
    """Return for each class: name and summary, its settings with defaults, its presets."""
    lines: list[str] = []
    for name, cls in sorted(classes.items()):
        summary = (inspect.getdoc(inspect.getmodule(cls)) or "").partition("\n")[0] or _first_line(cls)
        lines.append(f"{name}: {summary}")
        settings = [_setting(item) for item in dataclasses.fields(cls) if item.init]
        lines.append(f"    settings: {', '.join(settings) or 'none'}")
        for preset, values in getattr(cls, "presets", {}).items():
            changed = ", ".join(f"{key}={value!r}" for key, value in values.items())
            lines.append(f"    preset {preset}: {changed or 'the defaults'}")
    return lines


def _setting(item: "dataclasses.Field[Any]") -> str:
    if item.default is not dataclasses.MISSING:
        return f"{item.name}={item.default!r}"
    if item.default_factory is not dataclasses.MISSING:
        return f"{item.name}={item.default_factory()!r}"
    return f"{item.name} (must be given)"


def _objectives() -> list[str]:
    return _describe_kind("objective")


def _regions() -> list[str]:
    return _describe_kind("trust region")


def _tasks() -> list[str]:
    return _describe_kind("task")


def _policies() -> list[str]:
    from harness.engine.embedded import PRESETS, available

    shipped = available()
    return [*_describe_presets(PRESETS, shipped), "any directory or hub name of a causal language model"]


def _describe_presets(presets: Iterable[str], shipped: Iterable[tuple[str, str, int]]) -> list[str]:
    lines: list[str] = []
    listed = list(shipped)
    for preset in presets:
        tasks = dict.fromkeys(task for name, task, _ in listed if name == preset)
        starts = [f"{t} ({', '.join(str(n) for p, u, n in listed if (p, u) == (preset, t))})" for t in tasks]
        lines.append(f"{preset}: embedded, warm starts for {'; '.join(starts) or 'no task yet'}")
    return lines


def _figures() -> list[str]:
    from harness.reports.figures import FIGURES

    return [f"{name}: {_first_line(draw)}" for name, draw in FIGURES.items()]


KINDS: dict[str, Callable[[], list[str]]] = {
    "objectives": _objectives,
    "regions": _regions,
    "tasks": _tasks,
    "policies": _policies,
    "figures": _figures,
}
