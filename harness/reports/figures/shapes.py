"""Shapes: the distribution of log-ratios during updates, and the surrogate each objective optimises."""

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
    say_no_data,
    scored_rows,
    seeds_caption,
    trouble_caption,
)
from harness.reports.figures.style import DARK, GREY, PAGE, arm_handles, compose, families, looks, of_arm
from harness.reports.study import Study

TAIL = 5e-4
"""Share of tokens that the x axis may leave out at each end."""
SAME = 9
"""Curves equal to this many decimals are drawn once."""
WIDE = 3.2
STEEP_QUANTILE = 0.97


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
    compose(figure, arm_handles(study), [*caption, *trouble_caption(study)])
    return figure


def surrogate_shape(study: Study, baseline: str) -> Figure:
    """Draw the surrogate and the gradient weight against a common ratio of all tokens, by sign of the advantage.

    An arm that differs from another only by its trust region is drawn once, and equal curves share a line.
    """
    figure = Figure(figsize=(PAGE, 4.0), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True)
    looked = looks(study)
    chosen = {arms[0]: family for family, arms in families(study).items()}
    rows = study.surrogates[study.surrogates["arm"].isin(chosen)]
    merged = _merge_equal(rows, list(chosen))
    handles = [line for line in arm_handles(study) if line.get_label() in merged]
    for column, (sign, name) in enumerate(((1, "A = +1"), (-1, "A = -1"))):
        for row, (quantity, flip) in enumerate((("loss", -1.0), ("weight", 1.0))):
            axes = grid[row, column]
            here = rows[rows["advantage"] == sign]
            for place, arm in enumerate(merged):
                line = here[(here["arm"] == arm) & here[quantity].notna()].sort_values("ratio")
                width = WIDE - (WIDE - 1) * place / max(1, len(merged) - 1)
                axes.plot(line["ratio"], flip * line[quantity], color=looked[arm].color, linewidth=width)
            if here.empty:
                say_no_data(axes, "surrogates.csv")
            else:
                _limit(axes, flip * here[quantity].dropna().to_numpy("float64"))
            axes.axvline(1, color=DARK, linewidth=0.5)
            axes.set_title(name if row == 0 else "")
    grid[0, 0].set_ylabel("surrogate\n(to be maximised)")
    grid[1, 0].set_ylabel("gradient weight $c_t$")
    for axes in grid[1]:
        axes.set_xlabel(r"ratio $\pi_\theta / \pi_{old}$ of every token of the response")
    for handle in handles:
        handle.set_label(" = ".join(chosen[arm] for arm in merged[str(handle.get_label())]))
        handle.set(linestyle="-", linewidth=2)
    caption = [
        "One response whose tokens all have the ratio on the x axis. Weight: what a token's log-probability is pushed "
        "by; surrogate: the function with that slope, A at ratio 1 (a detached loss has no value of its own). Names "
        "joined by = have the same curves. Trust regions are left out: they add a term of their own."
    ]
    compose(figure, handles, [*caption, *trouble_caption(study)])
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


def _merge_equal(rows: pd.DataFrame, arms: list[str]) -> dict[str, list[str]]:
    """Group arms whose curves agree; the first of each group stands for it."""
    groups: dict[tuple, list[str]] = {}
    for arm in arms:
        line = rows[rows["arm"] == arm].sort_values(["advantage", "ratio"])
        key = tuple(line[["advantage", "ratio", "loss", "weight"]].round(SAME).fillna(math.inf).itertuples(index=False))
        if key:
            groups.setdefault(key, []).append(arm)
    return {members[0]: members for members in groups.values()}


def _limit(axes, values: np.ndarray) -> None:
    """Keep a few steep ends from flattening the rest, if most values lie far inside them."""
    low, high = (float(end) for end in np.quantile(values, [1 - STEEP_QUANTILE, STEEP_QUANTILE]))
    span = max(high - low, 1e-9)
    if float(np.max(values)) > high + span or float(np.min(values)) < low - span:
        axes.set_ylim(low - 0.5 * span, high + 0.5 * span)
