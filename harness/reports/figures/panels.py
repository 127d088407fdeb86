"""Lay out panels by task and arm, and state seeds and unfinished cells under each figure."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
import textwrap
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reports.figures.style import COLUMN, DARK, PAGE, SMALL, X_LABEL, families
from harness.reports.scores import UNFINISHED, Trouble, outcomes, troubles
from harness.reports.study import Study

CROWDED = 4
"""More arms than this share no panel: one panel an objective, the others in grey."""
MAX_COLUMNS = 5
MANY = 12
"""More panels a task than this are not drawn: each arm becomes a row of a heat map (``rows``)."""
MOST = 30
"""Likewise of panels in all."""
MAX_VARIANTS = 3
"""A panel holds that many arms of one objective; with more each shares a panel with the first alone."""
PANEL_HEIGHT = 1.9
SMALL_PANEL_HEIGHT = 1.3
TITLE_WIDTH = 20
"""Characters of a small panel's title line."""
ROW_HEIGHT, LOW_ROW_HEIGHT, MANY_ROWS = 0.19, 0.125, 30
"""Inches of an arm's row; the lower one from ``MANY_ROWS`` arms on."""
LONG_NAME = 16
"""Names of arms with more characters leave no room for a panel of one column's width beside them."""
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
    """Make one panel a task with all arms in it."""
    tasks = study.tasks
    columns = task_columns(len(tasks))
    rows = math.ceil(len(tasks) / columns)
    figure, grid = _grid(rows, columns, row_height, sharey=sharey)
    panels = []
    for axes, task in zip(grid.flat, tasks, strict=False):
        axes.set_title(task)
        panels.append(Panel(axes, task, study.arms, []))
    for axes in grid.flat[len(tasks) :]:
        axes.set_axis_off()
    return figure, panels


def task_columns(num: int) -> int:
    """Return the columns that panels of ``num`` tasks stand in: at most three, and no row with a single one."""
    return 2 if num == 4 else min(3, num)  # noqa: PLR2004


def are_many(study: Study) -> bool:
    """Say whether the arms are too many for ``family_panels``."""
    num = len(_panel_arms(study)) if len(study.arms) > CROWDED else 1
    return num > MANY or num * len(study.tasks) > MOST


def family_panels(study: Study) -> tuple[Figure, list[Panel]]:
    """Make one panel a task, or with more than ``CROWDED`` arms one a task and objective.

    Panels of one task share their y axis.
    """
    if len(study.arms) <= CROWDED:
        return task_panels(study)
    grouped = _panel_arms(study)
    columns = min(range(3, MAX_COLUMNS + 1), key=lambda wide: (math.ceil(len(grouped) / wide), -len(grouped) % wide))
    lines = math.ceil(len(grouped) / columns)
    figure, grid = _grid(lines * len(study.tasks), columns, SMALL_PANEL_HEIGHT, sharex=True)
    panels = []
    for place, task in enumerate(study.tasks):
        block = grid[place * lines : (place + 1) * lines].flat
        first = block[0]
        for axes, (family, arms) in zip(block, grouped.items(), strict=False):
            wrapped = textwrap.fill(family.replace("+", " +"), TITLE_WIDTH)
            axes.set_title(f"{task}\n{wrapped}", fontsize=SMALL)
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
    columns = task_columns(len(tasks))
    lines = math.ceil(len(tasks) / columns)
    each = LOW_ROW_HEIGHT if len(study.arms) > MANY_ROWS else ROW_HEIGHT
    wide = max(map(len, study.arms)) > LONG_NAME
    figure, grid = _grid(lines, columns, each * max(len(study.arms), 3) + 0.5, sharex, sharey=True, wide=wide)
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
    """Label y in the first column and x once below; the last panel of each column has the numbers of its x axis."""
    figure = panels[0].axes.figure
    figure.supxlabel(x, y=0.0, fontsize="medium", gid=X_LABEL)
    for panel in panels:
        spec = panel.axes.get_subplotspec()
        assert spec is not None
        if spec.is_first_col():
            panel.axes.set_ylabel(y)
        if not any(_is_below(other, panel) for other in panels):
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
    """Return ``outcomes`` of cells with a ``score``: the final one, or the last one of a run that diverged."""
    table = outcomes(study)
    return table[table["score"].notna()]


def _panel_arms(study: Study) -> dict[str, list[str]]:
    """Return the arms of each panel of a task, by title."""
    panels = {}
    for family, arms in families(study).items():
        if len(arms) <= MAX_VARIANTS:
            panels[family] = arms
        else:
            panels |= {arms[0]: arms[:1]} | {arm: [arms[0], arm] for arm in arms[1:]}
    return panels


def _runs(found: list[Trouble]) -> int:
    return sum(len(trouble.runs) for trouble in found)


def _is_below(other: Panel, panel: Panel) -> bool:
    first, second = other.axes.get_subplotspec(), panel.axes.get_subplotspec()
    assert first is not None
    assert second is not None
    return first.colspan.start == second.colspan.start and first.rowspan.start > second.rowspan.start


def _grid(
    rows: int, columns: int, row_height: float, sharex: bool = False, sharey: bool = False, wide: bool = False
) -> tuple[Figure, np.ndarray]:
    width = PAGE if columns > 1 or wide else COLUMN
    figure = Figure(figsize=(width, rows * row_height + 0.35), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
