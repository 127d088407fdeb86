"""Draw the runs of each arm as a mean line with a band, and a trust region's bound as a labelled line."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from harness.reports.figures.panels import Panel, say_no_data
from harness.reports.figures.style import DARK, GREY, SMALL, Look, looks
from harness.reports.scores import outcomes
from harness.reports.statistics import mean_interval
from harness.reports.study import Study

BAND_FROM = 3
"""Seeds from which a t interval is drawn; below, the single seeds are."""
BAND_ALPHA = 0.18
FAINT = 0.45
STRIP = 0.03
"""Distance between the interval bars at the right end, share of the x range."""
STRIP_WIDTH = 0.4
NUM_MARKERS = 6
"""Markers on a line, about."""
SLACK = 0.1
"""Decades by which a curve's margin may pass a power of ten without widening the axis."""

Band = Literal["interval", "range", "ends", "none"]
"""A t interval all along, the range over seeds, a t interval at the last point only, or nothing."""
Runs = dict[tuple[str, str], pd.DataFrame]
"""(task, arm) -> columns step, x, y, run, done; one row a point of a run."""
_COLUMNS = ["step", "x", "y", "run", "done"]


def runs_by_arm(study: Study, points: pd.DataFrame) -> Runs:
    """Sort the points of all runs by task and arm.

    Args:
        study: the records.
        points: columns cell, step, x and y; a cell's rows in the order they are drawn in.
    """
    known = outcomes(study)
    known = known.loc[known["cell"] != "", ["cell", "task", "arm", "run", "final"]]
    merged = points.merge(known, on="cell").assign(done=lambda rows: rows["final"].notna())
    groups = {key: rows[_COLUMNS] for key, rows in merged.groupby(["task", "arm"], sort=False)}
    nothing = pd.DataFrame(columns=_COLUMNS).astype({"done": bool})
    return {(task, arm): groups.get((task, arm), nothing) for task in study.tasks for arm in study.arms}


def mean_line(found: pd.DataFrame) -> pd.DataFrame:
    """Average the completed runs step by step, over the steps that all of them have: columns step, x, y, low, high."""
    done = found[found["done"]]
    if done.empty:
        return pd.DataFrame(columns=["step", "x", "y", "low", "high"], dtype="float64")
    steps, places = np.unique(done["step"].to_numpy(), return_inverse=True)
    x, y = (done[name].to_numpy("float64") for name in ("x", "y"))
    low, high = np.full(len(steps), math.inf), np.full(len(steps), -math.inf)
    np.fmin.at(low, places, y)
    np.fmax.at(high, places, y)
    counts = np.bincount(places)
    mean = pd.DataFrame(
        {
            "step": steps,
            "x": np.bincount(places, x) / counts,
            "y": np.bincount(places, y) / counts,
            "low": low,
            "high": high,
        }
    )
    return mean[counts == done["run"].nunique()].reset_index(drop=True)


def draw_panels(study: Study, panels: list[Panel], runs: Runs, what: str, band: Band) -> tuple[bool, bool]:
    """Draw each panel's arms.

    Returns:
        Whether an arm had too few seeds for a t interval, and whether a run ended in a cross.
    """
    looked, few, crossed = looks(study), False, False
    means = {key: mean_line(found) for key, found in runs.items()}
    for panel in panels:
        _draw_others(panel.axes, [means[panel.task, arm] for arm in panel.others])
        end = max(
            (float(means[panel.task, arm]["x"].max()) for arm in panel.arms if len(means[panel.task, arm])), default=0
        )
        for place, arm in enumerate(panel.arms):
            found, mean, look = runs[panel.task, arm], means[panel.task, arm], looked[arm]
            few = 0 < found.loc[found["done"], "run"].nunique() < BAND_FROM or few
            crossed = bool((~found["done"]).any()) or crossed
            _draw_band(
                panel.axes,
                found,
                mean,
                look,
                band,
                end * (1 + min(STRIP, STRIP_WIDTH / len(panel.arms)) * (place + 1.5)),
            )
            _draw_undone(panel.axes, found, look)
            every = max(1, len(mean) // NUM_MARKERS)
            style = {"marker": look.marker, "markerfacecolor": look.face, "markevery": (place % every, every)}
            panel.axes.plot(mean["x"], mean["y"], zorder=3, **look.line, **style)
        if all(runs[panel.task, arm].empty for arm in panel.arms):
            say_no_data(panel.axes, what)
    return few, crossed


def draw_bounds(study: Study, panels: list[Panel], unit: str) -> bool:
    """Draw each trust region's bound of a unit as a dashed line with its value; return whether there was one."""
    cells = study.cells[(study.cells["delta_unit"] == unit) & study.cells["delta"].notna()]
    drawn = False
    for panel in panels:
        here = cells[(cells["task"] == panel.task) & cells["arm"].isin(panel.arms)]
        bounds = sorted(set(here["delta"].astype("float64")))
        for delta in bounds:
            panel.axes.axhline(delta, color=DARK, linestyle=(0, (6, 2)), linewidth=0.9, zorder=4)
        if bounds:  # one label: where a tuning chose several, they lie close
            text = "\n".join(["delta", *(f"{delta:g}" for delta in reversed(bounds))])
            where = ("axes fraction", "data")
            panel.axes.annotate(text, (1.01, bounds[-1]), xycoords=where, va="center", fontsize=SMALL)
            drawn = True
    return drawn


def log_y(panels: list[Panel]) -> None:
    """Give panels with a positive value a log y axis of whole decades, with labels at powers of ten and no others."""
    for panel in panels:
        axes = panel.axes
        if not any((np.asarray(line.get_ydata(), "float64") > 0).any() for line in axes.get_lines()):
            continue
        whole_decades(axes)


def whole_decades(axes: Axes) -> None:
    """Make y logarithmic, from one power of ten to another, with labels at these alone."""
    axes.set_yscale("log", nonpositive="mask")
    reach = [*axes.get_ylim(), axes.dataLim.minposy, axes.dataLim.y1]
    exponents = [math.log10(value) for value in reach if value > 0 and math.isfinite(value)]
    low, high = math.floor(min(exponents) + SLACK), math.ceil(max(exponents) - SLACK)
    axes.set_ylim(10.0 ** min(low, high - 1), 10.0**high)
    axes.yaxis.set_minor_locator(NullLocator())


def _draw_others(axes: Axes, means: list[pd.DataFrame]) -> None:
    """Draw the other arms' lines in grey: one line with gaps, which is much less to draw than one an arm."""
    gap = [math.nan]
    x = np.concatenate([gap, *([*mean["x"], math.nan] for mean in means)])
    y = np.concatenate([gap, *([*mean["y"], math.nan] for mean in means)])
    if means:
        axes.plot(x, y, color=GREY, linewidth=0.7, zorder=1)


def _draw_band(axes: Axes, found: pd.DataFrame, mean: pd.DataFrame, look: Look, band: Band, bar_at: float) -> None:
    done = found[found["done"]]
    seeds = done["run"].nunique()
    if mean.empty or band == "none" or (band != "interval" and seeds == 1):
        return
    if band == "range":
        axes.fill_between(mean["x"], mean["low"], mean["high"], color=look.color, alpha=BAND_ALPHA, linewidth=0)
    elif band == "ends" and seeds >= BAND_FROM:
        last = mean_interval(done.loc[done["step"] == done["step"].max(), "y"])
        bar = {"color": look.color, "capsize": 1.5, "linewidth": 1}
        axes.errorbar(
            bar_at, last.mean, yerr=last.half_width, fmt=look.marker, markerfacecolor=look.face, markersize=3, **bar
        )
    elif band == "interval" and seeds >= BAND_FROM:
        half = done.groupby("step", sort=True)["y"].agg(lambda y: mean_interval(y).half_width)
        half = half.loc[mean["step"]].to_numpy("float64")
        low, high = mean["y"] - half, mean["y"] + half
        axes.fill_between(mean["x"], low, high, color=look.color, alpha=BAND_ALPHA, linewidth=0)
    elif band == "interval":
        for _, line in done.groupby("run", sort=False):
            axes.plot(line["x"], line["y"], alpha=FAINT, linewidth=0.7, **look.line)


def _draw_undone(axes: Axes, found: pd.DataFrame, look: Look) -> None:
    for _, line in found[~found["done"]].groupby("run", sort=False):
        axes.plot(line["x"], line["y"], linewidth=0.7, **look.line)
        end = line.iloc[-1]
        axes.plot([end["x"]], [end["y"]], "x", color=look.color, markersize=6, markeredgewidth=1.6, zorder=6)
