"""A task whose verdicts are found by several processes, each for its part of the responses; all then have them all."""

import copy
from collections.abc import Sequence
from functools import partial

from harness.engine.world import World
from tasks.base import Example, Score, Task

__all__ = ["share_task"]


def share_task(task: Task, world: World) -> Task:
    """Return ``task`` with its scoring shared; itself for one process.

    A verdict may depend on the clock of the machine that finds it: sharing it keeps the processes of one mind.
    """
    if world.size == 1:
        return task
    shared = copy.copy(task)
    object.__setattr__(shared, "score_many", partial(_score_many, task, world))  # a frozen dataclass
    return shared


def _score_many(task: Task, world: World, pairs: Sequence[tuple[Example, str]]) -> list[Score]:
    mine = task.score_many(list(pairs[world.rank :: world.size]))
    return world.undeal(mine, len(pairs))
