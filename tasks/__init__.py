"""Tasks with verifiable answers: prompts, gold responses, verdicts. Knows nothing of objectives or harness."""

from tasks.base import SPLITS, VERDICTS, Demonstration, Example, Score, Split, Task, Verdict
from tasks.registry import classes, make, names
from tasks.settings import build

__all__ = [
    "SPLITS",
    "VERDICTS",
    "Demonstration",
    "Example",
    "Score",
    "Split",
    "Task",
    "Verdict",
    "build",
    "classes",
    "make",
    "names",
]
