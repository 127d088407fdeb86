"""Finding tasks by presence: a module of the package with one concrete Task is a task, its file name is the name.

A module that makes several tasks names them itself, in ``TASKS: dict[str, type[Task]]``.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from types import ModuleType

from tasks.base import Task
from tasks.settings import build, near_match

__all__ = ["classes", "make", "names"]

# Modules that hold no task by design; skipping them keeps a look-up from importing what it does not need.
_HELPERS = frozenset(
    {"answers", "base", "code_task", "contract", "registry", "sandbox", "settings", "sources", "splits"}
)


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"tasks.{name}")
    except Exception as error:
        raise ValueError(
            f"tasks/{name}.py cannot be imported ({type(error).__name__}: {error}); fix it or move it out of tasks/"
        ) from error


def _task_classes(name: str, module: ModuleType) -> Mapping[str, type[Task]]:
    """Return the tasks that ``module`` defines by name, none where it defines none."""
    if hasattr(module, "TASKS"):
        return module.TASKS
    own = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Task)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    ]
    if len(own) > 1:
        found = ", ".join(sorted(cls.__name__ for cls in own))
        raise ValueError(
            f"{module.__name__} defines {len(own)} tasks ({found}), expected one; give each its own file or name them "
            "in TASKS"
        )
    return {name: own[0]} if own else {}


def classes() -> dict[str, type[Task]]:
    """Return {name: class} of all tasks, sorted by name.

    Raises:
        ValueError: a module of the package cannot be imported, defines two tasks without naming them, or a name that
            another one has.
    """
    importlib.invalidate_caches()
    found: dict[str, type[Task]] = {}
    for module in sorted(
        {info.name for info in pkgutil.iter_modules(importlib.import_module("tasks").__path__)} - _HELPERS
    ):
        own = _task_classes(module, _load(module))
        if twice := sorted(found.keys() & own.keys()):
            raise ValueError(f"tasks/{module}.py defines {twice[0]!r}, which another file has defined; rename it")
        found.update(own)
    return dict(sorted(found.items()))


def names() -> list[str]:
    """Return the names of all tasks, sorted; raises as ``classes`` does."""
    return list(classes())


def make(name: str, **settings: object) -> Task:
    """Build a task by name.

    Args:
        name: one of ``names()``.
        settings: the task's fields; lists stand for tuples.

    Returns:
        The task.

    Raises:
        ValueError: unknown name, unknown setting, wrong type or wrong range; the message says what is accepted.

    Example:
        >>> make("arithmetic", operands=[2], max_operand=9).prompt(...)
    """
    known = classes()
    if name not in known:
        raise ValueError(f"unknown task {name!r}{near_match(name, known)}; tasks: {', '.join(known)}")
    return build(known[name], settings)
