"""Finding tasks by presence: a module of the package with one concrete Task is a task, its file name is the name."""

import importlib
import inspect
import pkgutil
from types import ModuleType

import tasks
from tasks.base import Task
from tasks.settings import build, near_match

__all__ = ["make", "names"]

# Modules that hold no task by design; skipping them keeps a look-up from importing what it does not need.
_HELPERS = frozenset({"base", "contract", "registry", "sandbox", "settings", "splits"})


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"tasks.{name}")
    except Exception as error:
        raise ValueError(
            f"tasks/{name}.py cannot be imported ({type(error).__name__}: {error}); fix it or move it out of tasks/"
        ) from error


def _task_class(module: ModuleType) -> type[Task] | None:
    """Return the one concrete task that ``module`` defines, None where it defines none."""
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
        raise ValueError(f"{module.__name__} defines {len(own)} tasks ({found}), expected one; give each its own file")
    return own[0] if own else None


def _classes() -> dict[str, type[Task]]:
    importlib.invalidate_caches()
    found = sorted({info.name for info in pkgutil.iter_modules(tasks.__path__)} - _HELPERS)
    classes = {name: _task_class(_load(name)) for name in found}
    return {name: cls for name, cls in classes.items() if cls is not None}


def names() -> list[str]:
    """Return the names of all tasks, sorted.

    Raises:
        ValueError: a module of the package cannot be imported or defines two tasks.
    """
    return list(_classes())


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
    classes = _classes()
    if name not in classes:
        raise ValueError(f"unknown task {name!r}{near_match(name, classes)}; tasks: {', '.join(classes)}")
    return build(classes[name], settings)
