"""The distribution of log-ratios during updates."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.reports.figures.panels import (
    Panel,
    family_panels,
    label_axes,
    legend_lines,
    say_no_data,
    scored_rows,
    seeds_caption,
    trouble_caption,
)
from harness.reports.figures.style import DARK, GREY, compose, looks, of_arm
from harness.reports.study import Study

TAIL = 5e-4
"""Share of tokens that the x axis may leave out at each end."""


def ratio_distribution(study: Study, baseline: str) -> Figure:
    """Draw the density of the token log-ratio log(pi_theta / pi_old) over all updates and seeds, log y axis."""
    figure, panels = family_panels(study)
    looked, rows = looks(study), scored_rows(study)
    ratios = study.ratios[study.ratios["count"].notna()]
    densities = {
        (task, arm): _density(ratios[ratios["cell"].isin(of_arm(rows, task, arm)["cell"])])
        for task in study.tasks
        for arm in study.arms
    }
    for panel in panels:
        for arm in panel.others:
            _stairs(panel, densities[panel.task, arm], color=GREY, linewidth=0.7, zorder=1)
        drawn = [_stairs(panel, densities[panel.task, arm], zorder=3, **looked[arm].line) for arm in panel.arms]
        panel.axes.set_yscale("log", nonpositive="mask")
        panel.axes.axvline(0, color=DARK, linewidth=0.5)
        if not any(drawn):
            say_no_data(panel.axes, "ratios.csv")
    for panel in panels:
        panel.axes.set_xlim(*_common_span([densities[panel.task, arm] for arm in study.arms]))
    label_axes(panels, r"token $\log(\pi_\theta / \pi_{old})$ (nats)", "density (per nat)")
    caption = [
        "Tokens of all updates, iterations and completed seeds; an empty bin leaves a gap. "
        f"The axis shows all but {2 * TAIL:.1%} of the tokens of the widest arm. {seeds_caption(study)}"
    ]
    compose(figure, legend_lines(study, panels), [*caption, *trouble_caption(study)])
    return figure


def _density(rows: pd.DataFrame) -> pd.DataFrame:
    """Pool histograms over cells and iterations: columns low, high, share, density; share counts open ends."""
    pooled = rows.groupby(["log_ratio_low", "log_ratio_high"], sort=True)["count"].sum().reset_index()
    pooled.columns = ["low", "high", "count"]
    total = float(pooled["count"].sum())
    if total <= 0:
        return pd.DataFrame(columns=["low", "high", "share", "density"], dtype="float64")
    pooled["share"] = pooled["count"] / total
    pooled["density"] = pooled["share"] / (pooled["high"] - pooled["low"])
    return pooled


def _stairs(panel: Panel, density: pd.DataFrame, **style) -> bool:
    finite = density[np.isfinite(density["low"]) & np.isfinite(density["high"])]
    if finite.empty:
        return False
    x = finite[["low", "high"]].to_numpy("float64").ravel()
    y = np.repeat(finite["density"].to_numpy("float64"), 2)
    panel.axes.plot(x, np.where(y > 0, y, math.nan), **style)
    return True


def _common_span(densities: list[pd.DataFrame]) -> tuple[float, float]:
    """Return the x range that holds all but ``TAIL`` of each end of every arm, the same to the left and right."""
    reach = 0.0
    for density in densities:
        below = density["share"].cumsum()
        inside = density[(below > TAIL) & (below - density["share"] < 1 - TAIL)]
        ends = np.abs(inside[["low", "high"]].to_numpy("float64"))
        reach = max(reach, float(np.max(ends[np.isfinite(ends)], initial=0.0)))
    return (-reach, reach) if reach else (-1.0, 1.0)
