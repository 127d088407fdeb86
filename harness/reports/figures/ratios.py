"""How far updates move: the distribution of token log-ratios, and of their variance within a response."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.reports.figures.absent import NoData
from harness.reports.figures.counted import counted
from harness.reports.figures.panels import (
    Panel,
    are_many,
    arm_rows,
    family_panels,
    label_axes,
    say_no_data,
    scored_rows,
    seeds_caption,
    trouble_caption,
)
from harness.reports.figures.rows import draw_maps
from harness.reports.figures.style import DARK, GREY, arm_handles, compose, looks
from harness.reports.study import Study

TAIL = 5e-4
"""Share of tokens that the x axis may leave out at each end."""
LOG_RATIO = r"token $\log(\pi_\theta / \pi_{old})$ (nats)"
VARIANCE = r"variance of $\log(\pi_\theta / \pi_{old})$ within a response (nats$^2$)"

Densities = dict[tuple[str, str], pd.DataFrame]
"""(task, arm) -> columns low, high, share, density."""


def ratio_distribution(study: Study, baseline: str) -> Figure:
    """Draw the density of the token log-ratio log(pi_theta / pi_old) over all updates and seeds, on a log axis."""
    rows = study.ratios[study.ratios["count"].notna()]
    rows = rows.rename(columns={"log_ratio_low": "low", "log_ratio_high": "high"})
    rows = rows.merge(scored_rows(study)[["cell", "task", "arm"]], on="cell")
    if rows.empty:
        raise NoData("ratios.csv has no counts of a completed cell")
    densities = _densities(study, rows)
    reach = _common_span(list(densities.values()))
    caption = [
        "Tokens of all updates, iterations and completed seeds; an empty bin leaves a gap. "
        f"The axis shows all but {2 * TAIL:.1%} of the tokens of the widest arm. {seeds_caption(study)}"
    ]
    if are_many(study):
        return _maps(study, densities, reach, LOG_RATIO, "density (per nat)", caption)
    figure, panels = family_panels(study)
    _lines(study, panels, densities, "density")
    for panel in panels:
        panel.axes.set_yscale("log", nonpositive="mask")
        panel.axes.axvline(0, color=DARK, linewidth=0.5)
        panel.axes.set_xlim(*reach)
    label_axes(panels, LOG_RATIO, "density (per nat)")
    compose(figure, arm_handles(study), [*caption, *trouble_caption(study)])
    return figure


def log_ratio_variance(study: Study, baseline: str) -> Figure:
    """Draw how the variance of the token log-ratios within a response is distributed (SAPO's check of small steps)."""
    rows = counted(study, "log_ratio_variance").rename(columns={"x_low": "low", "x_high": "high"})
    caption = [
        "Responses of all updates, iterations and completed seeds, two bins a decade; the first bin holds what did not "
        f"move, such as the first update of a rollout. {seeds_caption(study)}"
    ]
    densities = _densities(study, rows)
    if are_many(study):
        for density in densities.values():
            density[["low", "high"]] = np.log10(density[["low", "high"]])
        reach = (math.log10(rows["low"].min()), math.log10(rows["high"].max()))
        label = r"$\log_{10}$ of the " + VARIANCE
        return _maps(study, densities, reach, label, "share of responses", caption, "share")
    figure, panels = family_panels(study)
    _lines(study, panels, densities, "share")
    for panel in panels:
        panel.axes.set_xscale("log")
        panel.axes.set_ylim(bottom=0)
    label_axes(panels, VARIANCE, "share of responses")
    compose(figure, arm_handles(study), [*caption, *trouble_caption(study)])
    return figure


def _densities(study: Study, rows: pd.DataFrame) -> Densities:
    groups = {key: _density(group) for key, group in rows.groupby(["task", "arm"], sort=False)}
    nothing = pd.DataFrame(columns=["low", "high", "share", "density"], dtype="float64")
    return {(task, arm): groups.get((task, arm), nothing) for task in study.tasks for arm in study.arms}


def _density(rows: pd.DataFrame) -> pd.DataFrame:
    """Pool histograms over cells and iterations; share counts open ends."""
    pooled = rows.groupby(["low", "high"], sort=True)["count"].sum().reset_index()
    total = float(pooled["count"].sum())
    if total <= 0:
        return pd.DataFrame(columns=["low", "high", "share", "density"], dtype="float64")
    pooled["share"] = pooled["count"] / total
    pooled["density"] = pooled["share"] / (pooled["high"] - pooled["low"])
    return pooled


def _lines(study: Study, panels: list[Panel], densities: Densities, column: str) -> None:
    looked = looks(study)
    for panel in panels:
        for arm in panel.others:
            _stairs(panel, densities[panel.task, arm], column, color=GREY, linewidth=0.7, zorder=1)
        drawn = []
        for place, arm in enumerate(panel.arms):
            look = looked[arm]
            mark = {"marker": look.marker, "markerfacecolor": look.face, "markevery": (2 * place + 1, 8)}
            drawn.append(_stairs(panel, densities[panel.task, arm], column, zorder=3, **look.line, **mark))
        if not any(drawn):
            say_no_data(panel.axes, "no completed cell")


def _stairs(panel: Panel, density: pd.DataFrame, column: str, **style) -> bool:
    finite = density[np.isfinite(density["low"]) & np.isfinite(density["high"])]
    if finite.empty:
        return False
    x = finite[["low", "high"]].to_numpy("float64").ravel()
    y = np.repeat(finite[column].to_numpy("float64"), 2)
    panel.axes.plot(x, np.where(y > 0, y, math.nan), **style)
    return True


def _maps(
    study: Study,
    densities: Densities,
    reach: tuple[float, float],
    x: str,
    label: str,
    caption: list[str],
    column: str = "density",
) -> Figure:
    """Draw a row an arm, its colour the density on a log scale."""
    figure, panels = arm_rows(study)
    grid = np.linspace(*reach, 200, endpoint=False) + (reach[1] - reach[0]) / 400
    maps = {}
    for panel in panels:
        maps[panel.task] = np.array([_at(densities[panel.task, arm], grid, column) for arm in panel.arms])
    draw_maps(study, figure, panels, maps, reach, label, log=True)
    label_axes(panels, x, "")
    compose(figure, [], [*caption, *trouble_caption(study)])
    return figure


def _at(density: pd.DataFrame, grid: np.ndarray, column: str) -> np.ndarray:
    if density.empty:
        return np.full(grid.shape, math.nan)
    low, high = (density[name].to_numpy("float64") for name in ("low", "high"))
    place = np.clip(np.searchsorted(low, grid, side="right") - 1, 0, len(low) - 1)
    inside = (grid >= low[place]) & (grid < high[place])
    return np.where(inside, density[column].to_numpy("float64")[place], math.nan)


def _common_span(densities: list[pd.DataFrame]) -> tuple[float, float]:
    """Return the x range that holds all but ``TAIL`` of each end of every arm, the same to the left and right."""
    reach = 0.0
    for density in densities:
        below = density["share"].cumsum()
        inside = density[(below > TAIL) & (below - density["share"] < 1 - TAIL)]
        ends = np.abs(inside[["low", "high"]].to_numpy("float64"))
        reach = max(reach, float(np.max(ends[np.isfinite(ends)], initial=0.0)))
    return (-reach, reach) if reach else (-1.0, 1.0)
