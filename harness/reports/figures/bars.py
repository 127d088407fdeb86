"""Bars by arm on a log axis: how much of the loss a clip silences."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from harness.reports.figures.absent import NoData
from harness.reports.figures.panels import arm_rows, label_axes, scored_rows, seeds_caption, trouble_caption
from harness.reports.figures.style import DARK, SMALL, compose, looks, of_arm
from harness.reports.study import Study

BAR = 0.66
DECADE = 10.0
DEFAULT_SPAN = (1e-4, 1.0)
HEADROOM = 2.5


def clip_fraction(study: Study, baseline: str) -> Figure:
    """Draw the share of loss tokens at which the clip is active, mean over iterations and seeds."""
    note = "Bar: mean over iterations and seeds of the share of loss tokens at which the clip is active"
    return _bars(study, "clip_frac", "share of loss tokens clipped", note)


def dead_fraction(study: Study, baseline: str) -> Figure:
    """Draw the share of loss tokens that have an advantage but no gradient, mean over iterations and seeds."""
    note = "Bar: mean over iterations and seeds of the share of loss tokens with an advantage but no gradient"
    return _bars(study, "dead_frac", "share of loss tokens without gradient", note)


def _bars(study: Study, column: str, label: str, note: str) -> Figure:
    by_cell = study.metrics.groupby("cell", sort=False)[column].mean()
    rows = scored_rows(study)
    if rows["cell"].map(by_cell).isna().all():
        raise NoData(f"metrics.csv has no {column} of a completed cell")
    figure, panels = arm_rows(study)
    looked = looks(study)
    values = {
        (task, arm): of_arm(rows, task, arm)["cell"].map(by_cell).dropna().to_numpy("float64")
        for task in study.tasks
        for arm in study.arms
    }
    low, high = _span(np.concatenate([*values.values(), np.zeros(0)]))
    for panel in panels:
        panel.axes.set_xscale("log")
        panel.axes.xaxis.set_minor_formatter(NullFormatter())
        panel.axes.set_xlim(low, high)
        for place, arm in enumerate(panel.arms):
            seeds, look = values[panel.task, arm], looked[arm]
            mean = float(np.mean(seeds)) if seeds.size else math.nan
            if mean > 0:
                face = "white" if look.dashed else look.color
                hatch = "//////" if look.dashed else None
                panel.axes.barh(place, mean - low, BAR, low, facecolor=face, edgecolor=look.color, hatch=hatch)
                panel.axes.plot(seeds[seeds > 0], np.full(int(np.sum(seeds > 0)), place), "|", color="black", zorder=4)
            text = "n/a" if math.isnan(mean) else "0" if mean == 0 else f"{mean:.2g}"
            where = max(float(np.max(seeds)), mean, low) if seeds.size else low
            panel.axes.annotate(
                text, (where, place), (4, 0), textcoords="offset points", va="center", fontsize=SMALL, color=DARK
            )
    label_axes(panels, label + " (log scale)", "")
    caption = [
        f"{note}; ticks: single seeds; hatched: with a trust region. {seeds_caption(study)}",
        '"0": exactly zero; "n/a": not recorded or no completed cell.',
    ]
    compose(figure, [], [*caption, *trouble_caption(study)])
    return figure


def _span(values: np.ndarray) -> tuple[float, float]:
    """Return decades around the positive values, with room at the right for the numbers."""
    positive = values[values > 0]
    if not positive.size:
        return DEFAULT_SPAN
    low = DECADE ** math.floor(math.log10(float(np.min(positive))) - 0.3)
    high = float(np.max(positive))
    return low, high * max(HEADROOM, (high / low) ** 0.28)
