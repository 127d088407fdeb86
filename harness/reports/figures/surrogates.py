"""The surrogate each objective optimises and the weight it gives to a token's gradient."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
import textwrap

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.reports.figures.absent import NoData
from harness.reports.figures.panels import say_no_data, trouble_caption
from harness.reports.figures.style import DARK, DASHED, PAGE, PALETTE, SMALL, arm_handles, compose, families, looks
from harness.reports.study import Study

SAME = 9
"""Curves equal to this many decimals are drawn once."""
WIDE = 3.2
STEEP_QUANTILE = 0.97
SMALL_COLUMNS = 4
SMALL_HEIGHT = 1.25
TITLE_WIDTH = 34
"""Characters of a small panel's title line."""
RATIO = r"ratio $\pi_\theta / \pi_{old}$"
SIGNS = ((1, "A = +1", "-"), (-1, "A = -1", DASHED))
ONE_RESPONSE = (
    "One response whose tokens all have the ratio on the x axis. Weight: what a token's log-probability is pushed by"
)
JOINED = "Names joined by = have the same curves. Trust regions are left out: they add a term of their own."


def surrogate_shape(study: Study, baseline: str) -> Figure:
    """Draw the surrogate and the gradient weight against a common ratio of all tokens, by sign of the advantage.

    An arm that differs from another only by its trust region is drawn once, and equal curves share a line. More curves
    than there are colours get a small panel each, with the weight alone.
    """
    chosen = {arms[0]: family for family, arms in families(study).items()}
    rows = study.surrogates[study.surrogates["arm"].isin(chosen)]
    if rows.empty:
        raise NoData("surrogates.csv has no rows: no run got as far as writing its surrogate")
    merged = _merge_equal(rows, list(chosen))
    names = {arm: [chosen[member] for member in members] for arm, members in merged.items()}
    return _one_panel_each(study, rows, names) if len(merged) > len(PALETTE) else _together(study, rows, names)


def _one_panel_each(study: Study, rows: pd.DataFrame, names: dict[str, list[str]]) -> Figure:
    lines = math.ceil(len(names) / SMALL_COLUMNS)
    figure = Figure(figsize=(PAGE, SMALL_HEIGHT * lines + 0.4), layout="constrained")
    grid = figure.subplots(lines, SMALL_COLUMNS, sharex=True, sharey=True, squeeze=False)
    _limit(grid[0, 0], rows["weight"].dropna().to_numpy("float64"))
    for axes, (arm, members) in zip(grid.flat, names.items(), strict=False):
        for color, (sign, _, style) in zip(PALETTE, SIGNS, strict=False):
            line = rows[(rows["arm"] == arm) & (rows["advantage"] == sign)].dropna(subset="weight").sort_values("ratio")
            axes.plot(line["ratio"], line["weight"], color=color, linestyle=style)
        axes.axvline(1, color=DARK, linewidth=0.5)
        axes.set_title(textwrap.fill(" = ".join(members), TITLE_WIDTH, break_on_hyphens=False), fontsize=SMALL)
    for place, axes in enumerate(grid.flat):
        if place >= len(names):
            axes.set_axis_off()
        elif place + SMALL_COLUMNS >= len(names):
            axes.tick_params(labelbottom=True)
            axes.set_xlabel(RATIO)
    for axes in grid[:, 0]:
        axes.set_ylabel("weight $c_t$")
    handles = [
        Line2D([], [], label=name, color=color, linestyle=style)
        for color, (_, name, style) in zip(PALETTE, SIGNS, strict=False)
    ]
    compose(figure, handles, [f"{ONE_RESPONSE}. {JOINED}", *trouble_caption(study)])
    return figure


def _together(study: Study, rows: pd.DataFrame, names: dict[str, list[str]]) -> Figure:
    figure = Figure(figsize=(PAGE, 4.0), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True)
    looked = looks(study)
    for column, (sign, title, _) in enumerate(SIGNS):
        for row, (quantity, flip) in enumerate((("loss", -1.0), ("weight", 1.0))):
            axes = grid[row, column]
            here = rows[rows["advantage"] == sign]
            for place, arm in enumerate(names):
                line = here[(here["arm"] == arm) & here[quantity].notna()].sort_values("ratio")
                width = WIDE - (WIDE - 1) * place / max(1, len(names) - 1)
                axes.plot(line["ratio"], flip * line[quantity], color=looked[arm].color, linewidth=width)
            if here.empty:
                say_no_data(axes, "surrogates.csv")
            else:
                _limit(axes, flip * here[quantity].dropna().to_numpy("float64"))
            axes.axvline(1, color=DARK, linewidth=0.5)
            axes.set_title(title if row == 0 else "")
    grid[0, 0].set_ylabel("surrogate\n(to be maximised)")
    grid[1, 0].set_ylabel("gradient weight $c_t$")
    for axes in grid[1]:
        axes.set_xlabel(f"{RATIO} of every token of the response")
    handles = [line for line in arm_handles(study) if line.get_label() in names]
    for handle in handles:
        handle.set_label(" = ".join(names[str(handle.get_label())]))
        handle.set(linestyle="-", linewidth=2)
    surrogate = "surrogate: the function with that slope, A at ratio 1 (a detached loss has no value of its own)"
    compose(figure, handles, [f"{ONE_RESPONSE}; {surrogate}. {JOINED}", *trouble_caption(study)])
    return figure


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
