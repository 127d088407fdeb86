"""Lay out panels by task and arm, and state seeds and unfinished cells under each figure."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reports.figures.style import DARK, PAGE, SMALL, families
from harness.reports.scores import UNFINISHED, Trouble, outcomes, troubles
from harness.reports.study import Study

CROWDED = 4
"""More arms than this share no panel: one panel an objective, the others in grey."""
MAX_COLUMNS = 4
MAX_FAMILIES = 12
"""More objectives than this go into one panel a task again: a page cannot hold that many panels."""
PANEL_HEIGHT = 1.75
SMALL_PANEL_HEIGHT = 1.4
ROW_HEIGHT = 0.19
MAX_LISTED = 12
NO_DATA = "no data"


@dataclass(frozen=True)
class Panel:
    """One set of axes: the arms it is about, and those drawn in grey for comparison."""

    axes: Axes
    task: str
    arms: list[str]
    others: list[str]


def task_panels(study: Study, row_height: float = PANEL_HEIGHT, sharey: bool = False) -> tuple[Figure, list[Panel]]:
    """Make one panel a task with all arms in it, at most three panels a row."""
    tasks = study.tasks
    columns = min(3, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    figure, grid = _grid(rows, columns, row_height, sharey=sharey)
    panels = []
    for axes, task in zip(grid.flat, tasks, strict=False):
        axes.set_title(task)
        panels.append(Panel(axes, task, study.arms, []))
    for axes in grid.flat[len(tasks) :]:
        axes.set_axis_off()
    return figure, panels


def family_panels(study: Study) -> tuple[Figure, list[Panel]]:
    """Make one panel a task, or with more than ``CROWDED`` arms (and few objectives) one a task and objective.

    Panels of one task share their y axis.
    """
    grouped = families(study)
    if len(study.arms) <= CROWDED or len(grouped) > MAX_FAMILIES:
        return task_panels(study)
    columns = min(range(3, MAX_COLUMNS + 1), key=lambda wide: (-len(grouped) % wide, -wide))
    lines = math.ceil(len(grouped) / columns)
    figure, grid = _grid(lines * len(study.tasks), columns, SMALL_PANEL_HEIGHT, sharex=True)
    panels = []
    for place, task in enumerate(study.tasks):
        block = grid[place * lines : (place + 1) * lines].flat
        first = block[0]
        for axes, (family, arms) in zip(block, grouped.items(), strict=False):
            axes.set_title(f"{task}\n{family}", fontsize=SMALL)
            if axes is not first:
                axes.sharey(first)
            axes.label_outer(remove_inner_ticks=False)
            panels.append(Panel(axes, task, arms, [arm for arm in study.arms if arm not in arms]))
        for axes in block[len(grouped) :]:
            axes.set_axis_off()
    return figure, panels


def arm_rows(study: Study, sharex: bool = True) -> tuple[Figure, list[Panel]]:
    """Make one panel a task with a row an arm, the first arm on top; panels share the arms' axis."""
    tasks = study.tasks
    columns = min(3, len(tasks))
    lines = math.ceil(len(tasks) / columns)
    height = ROW_HEIGHT * max(len(study.arms), 3) + 0.5
    figure, grid = _grid(lines, columns, height, sharey=True, sharex=sharex)
    panels = []
    for axes, task in zip(grid.flat, tasks, strict=False):
        axes.set_title(task)
        axes.set_yticks(range(len(study.arms)), study.arms)
        axes.set_ylim(len(study.arms) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        panels.append(Panel(axes, task, study.arms, []))
    for axes in grid.flat[len(tasks) :]:
        axes.set_axis_off()
    return figure, panels


def label_axes(panels: list[Panel], x: str, y: str) -> None:
    """Label the outer panels: y in the first column, x under the last panel of each column."""
    for panel in panels:
        spec = panel.axes.get_subplotspec()
        assert spec is not None
        if spec.is_first_col():
            panel.axes.set_ylabel(y)
        below = [other for other in panels if _is_below(other, panel)]
        if not below:
            panel.axes.set_xlabel(x)
            panel.axes.tick_params(labelbottom=True)


def say_no_data(axes: Axes, what: str) -> None:
    """Write in an empty panel that a quantity was not recorded."""
    style = {"ha": "center", "va": "center", "fontsize": SMALL, "color": DARK}
    axes.text(0.5, 0.5, f"{NO_DATA}:\n{what}", transform=axes.transAxes, **style)


def seeds_caption(study: Study) -> str:
    """State the number of seeds, as "n = 3 seeds" or "n = 2 to 3 completed seeds an arm"."""
    counts = outcomes(study).groupby(["task", "arm"], sort=False)["final"].count()
    low, high = int(counts.min()), int(counts.max())
    if low == high:
        return f"n = {high} seed{'' if high == 1 else 's'} an arm and task."
    return f"n = {low} to {high} completed seeds an arm and task."


def trouble_caption(study: Study) -> list[str]:
    """List the unfinished cells, one line a status: "failed: gspo arithmetic seed 2 (nan loss)"."""
    found = troubles(outcomes(study))
    lines = []
    for status in UNFINISHED:
        here = [trouble for trouble in found if trouble.status == status]
        texts = [trouble.text() for trouble in here[:MAX_LISTED]]
        if len(here) > MAX_LISTED:
            texts.append(f"and {_runs(here[MAX_LISTED:])} more, see the comparison table")
        if texts:
            lines.append(f"{status}: {'; '.join(texts)}")
    return lines


def scored_rows(study: Study) -> pd.DataFrame:
    """Return ``outcomes`` of cells with a final score."""
    table = outcomes(study)
    return table[table["final"].notna()]


def _runs(found: list[Trouble]) -> int:
    return sum(len(trouble.runs) for trouble in found)


def _is_below(other: Panel, panel: Panel) -> bool:
    first, second = other.axes.get_subplotspec(), panel.axes.get_subplotspec()
    assert first is not None
    assert second is not None
    return first.colspan.start == second.colspan.start and first.rowspan.start > second.rowspan.start


def _grid(
    rows: int, columns: int, row_height: float, sharex: bool = False, sharey: bool = False
) -> tuple[Figure, np.ndarray]:
    width = PAGE if columns > 1 else PAGE * 0.75
    figure = Figure(figsize=(width, rows * row_height + 0.35), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
