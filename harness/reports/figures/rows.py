"""A heat map with a row an arm, for studies with too many arms to have a panel each."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from harness.reports.figures.lines import Runs, mean_line
from harness.reports.figures.panels import Panel, arm_rows, label_axes
from harness.reports.figures.style import COLOR_MAP, DARK, SMALL, of_arm
from harness.reports.scores import outcomes
from harness.reports.study import Study
from harness.reports.values import Floats

COLUMNS = 100
"""Of the common grid that lines are read on."""
EXTREMES = (0.01, 0.99)
"""Quantiles of all values that the colours reach between."""


def draw_rows(study: Study, runs: Runs, x: str, label: str, log: bool = False) -> Figure:
    """Draw the mean line of every arm as a row whose colour is its y.

    Args:
        study: the records.
        runs: points of the runs.
        x: label of the x axis.
        label: what the colour shows.
        log: whether the colours are on a log axis; values that are not positive are left white.
    """
    figure, panels = arm_rows(study)
    means = {key: mean_line(found) for key, found in runs.items()}
    right = max((float(mean["x"].max()) for mean in means.values() if len(mean)), default=1.0)
    grid = np.linspace(0.0, right, COLUMNS, endpoint=False) + right / COLUMNS / 2
    maps = {panel.task: np.array([_read(means[panel.task, arm], grid) for arm in panel.arms]) for panel in panels}
    draw_maps(study, figure, panels, maps, (0.0, right), label, log)
    label_axes(panels, x, "")
    return figure


def draw_maps(
    study: Study,
    figure: Figure,
    panels: list[Panel],
    maps: dict[str, Floats],
    reach: tuple[float, float],
    label: str,
    log: bool,
) -> None:
    """Draw one map [arms, columns] a task between the ends of ``reach``, with one scale of colours for all."""
    norm = _scale(np.concatenate([values.ravel() for values in maps.values()]), log)
    image = None
    for panel in panels:
        extent = (*reach, len(panel.arms) - 0.5, -0.5)
        values = np.ma.masked_invalid(
            np.where(maps[panel.task] > 0, maps[panel.task], math.nan) if log else maps[panel.task]
        )
        image = panel.axes.imshow(
            values, aspect="auto", interpolation="nearest", extent=extent, norm=norm, cmap=COLOR_MAP
        )
        panel.axes.grid(visible=False)
        _note_unfinished(study, panel)
    assert image is not None
    bar = figure.colorbar(image, ax=[panel.axes for panel in panels], pad=0.01, aspect=40, extend="both")
    bar.set_label(label.replace("\n", " "))
    bar.outline.set_linewidth(0.5)  # pyright: ignore[reportAttributeAccessIssue]


def _scale(values: Floats, log: bool) -> Normalize:
    known = values[np.isfinite(values) & ((values > 0) | (not log))]
    if not known.size:
        return LogNorm(0.1, 1.0) if log else Normalize(0.0, 1.0)
    low, high = (float(end) for end in np.quantile(known, EXTREMES))
    if log:
        return LogNorm(low, max(high, low * 1.01))
    return Normalize(low, high if high > low else low + 1e-9)


def _read(mean: pd.DataFrame, grid: Floats) -> Floats:
    """Read a line on the grid: the y of the nearest point, NaN further behind the last one than half a step."""
    if mean.empty:
        return np.full(grid.shape, math.nan)
    x, y = mean["x"].to_numpy("float64"), mean["y"].to_numpy("float64")
    values = y[np.searchsorted((x[1:] + x[:-1]) / 2, grid)]
    step = x[0] if len(x) == 1 else x[-1] - x[-2]
    return np.where(grid <= x[-1] + step / 2, values, math.nan)


def _note_unfinished(study: Study, panel: Panel) -> None:
    """Write "2/3" behind the row of an arm with unfinished cells."""
    rows = outcomes(study)
    for place, arm in enumerate(panel.arms):
        final = of_arm(rows, panel.task, arm)["final"]
        if final.isna().any():
            where = ("axes fraction", "data")
            text = f"{int(final.notna().sum())}/{len(final)}"
            panel.axes.annotate(text, (1.01, place), xycoords=where, va="center", fontsize=SMALL, color=DARK)
