"""Rows of distributions.csv, and panels for maps of two numbers."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.reports.figures.absent import NoData
from harness.reports.figures.panels import TITLE_WIDTH, scored_rows
from harness.reports.figures.style import COLUMN, PAGE, SMALL
from harness.reports.study import Study
from harness.reports.values import Floats

MAX_COLUMNS = 4
HEIGHT = 1.45


def counted(study: Study, name: str, absent: str = "") -> pd.DataFrame:
    """Return the counts of one name of the completed cells, with columns task and arm.

    Raises:
        NoData: there are none; ``absent`` says which runs have them.
    """
    rows = study.distributions[study.distributions["name"] == name]
    rows = rows.merge(scored_rows(study)[["cell", "task", "arm"]], on="cell")
    if rows.empty:
        why = absent or "records from before it was logged"
        raise NoData(f"distributions.csv has no {name} of a completed cell: {why}")
    return rows


def map_panels(titles: list[str]) -> tuple[Figure, list[Axes]]:
    """Make a small panel a title, at most ``MAX_COLUMNS`` in a row, with shared axes."""
    columns = min(MAX_COLUMNS, len(titles))
    lines = math.ceil(len(titles) / columns)
    wide = PAGE if columns > 1 else COLUMN
    figure = Figure(figsize=(wide, lines * (HEIGHT if columns > 1 else 2 * HEIGHT) + 0.3), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for place, axes in enumerate(grid.flat):
        if place >= len(titles):
            axes.set_axis_off()
            continue
        axes.set_title(
            "\n".join(textwrap.fill(line, TITLE_WIDTH + 4) for line in titles[place].split("\n")), fontsize=SMALL
        )
        axes.grid(visible=False)
        if place + columns >= len(titles):
            axes.tick_params(labelbottom=True)
    return figure, list(grid.flat[: len(titles)])


def table(rows: pd.DataFrame) -> tuple[Floats, Floats, Floats]:
    """Return the edges of x, those of y, and the counts [x, y] of rows of distributions.csv."""
    x, y = (_edges(rows, axis) for axis in "xy")
    counts = np.zeros((len(x) - 1, len(y) - 1))
    places = [np.searchsorted(edges, rows[f"{axis}_low"].to_numpy("float64")) for axis, edges in (("x", x), ("y", y))]
    np.add.at(counts, tuple(places), rows["count"].to_numpy("float64"))
    return x, y, counts


def _edges(rows: pd.DataFrame, axis: str) -> Floats:
    """Return all edges between the lowest and the highest; bins that no row names become one."""
    return np.unique(rows[[f"{axis}_low", f"{axis}_high"]].to_numpy("float64"))
