"""Where in a response: ratios by position, clips by length; and the sampler's probabilities beside the trainer's."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.reports.figures.absent import NoData
from harness.reports.figures.counted import counted, map_panels, table
from harness.reports.figures.lines import draw_panels, log_y, runs_by_arm
from harness.reports.figures.panels import are_many, family_panels, label_axes, seeds_caption, trouble_caption
from harness.reports.figures.rows import draw_rows
from harness.reports.figures.style import COLOR_MAP, DASHED, X_LABEL, Y_LABEL, arm_handles, compose
from harness.reports.study import Study

MOST_MAPS = 16
"""With more arms and tasks than this, a map pools the arms of a task."""
LOWEST = 1e-4
"""Share of a column below which a map is white."""
FEWEST = 20
"""Tokens of a run below which a share of clipped ones is not drawn."""
LENGTH = "response length (tokens)"


def ratio_by_position(study: Study, baseline: str) -> Figure:
    """Draw a heat map of the log-ratio against the token's position in its response."""
    rows = counted(study, "ratio_by_position")
    keys, note = _keys(study, rows)
    figure, panels = map_panels([title for title, _ in keys])
    image = None
    for axes, (_, here) in zip(panels, keys, strict=True):
        x, y, counts = table(here)
        share = counts / np.maximum(counts.sum(1, keepdims=True), 1.0)
        shown = np.ma.masked_less(share.T, LOWEST)
        image = axes.pcolormesh(x, np.arange(len(y)), shown, norm=LogNorm(LOWEST, 1.0), cmap=COLOR_MAP, rasterized=True)
        axes.set_xscale("log")
        places = [place for place, end in enumerate(y) if abs(end) in (0.01, 0.1, 1.0)]
        axes.set_yticks(places, [f"{y[place]:g}" for place in places])
    _bar(figure, image, panels, "share of the tokens at a position")
    _label(figure, "position in the response (tokens)", r"$\log(\pi_\theta / \pi_{old})$ (nats)")
    caption = [
        f"Tokens of all updates and completed seeds{note}; columns add up to 1, shares below {LOWEST:g} are white. "
        f"The middle bin is within 0.001 of 0, the outer ones go on. {seeds_caption(study)}"
    ]
    compose(figure, [], [*caption, *trouble_caption(study)])
    return figure


def sampler_trainer(study: Study, baseline: str) -> Figure:
    """Draw the trainer's probability of each sampled token against the one its sampler reported."""
    rows = counted(study, "sampler_probability")
    keys, note = _keys(study, rows)
    figure, panels = map_panels([title for title, _ in keys])
    most, image = max(float(here["count"].sum()) for _, here in keys), None
    for axes, (_, here) in zip(panels, keys, strict=True):
        x, y, counts = table(here)
        shown = np.ma.masked_equal(counts.T / counts.sum(), 0)
        image = axes.pcolormesh(x, y, shown, norm=LogNorm(1 / most, 1.0), cmap=COLOR_MAP, rasterized=True)
        axes.plot([0, 1], [0, 1], color="black", linewidth=0.6, linestyle=DASHED)
        axes.set_aspect("equal")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
    _bar(figure, image, panels, "share of tokens")
    _label(figure, "probability by the sampler", r"by the trainer ($\pi_{old}$)")
    off = _off_diagonal(rows)
    caption = [
        f"Tokens of all updates and completed seeds{note}, bins of 0.05; {off:.2g} of all tokens are two bins or more "
        f"off the diagonal. With a lag the two are also of different weights. {seeds_caption(study)}"
    ]
    handles = [Line2D([], [], color="black", linewidth=0.6, linestyle=DASHED, label="equal")]
    compose(figure, handles, [*caption, *trouble_caption(study)])
    return figure


def clip_by_length(study: Study, baseline: str) -> Figure:
    """Draw the share of loss tokens at which the clip is active against the length of their response."""
    rows = counted(study, "clip_by_length", "no arm clips, or records from before it was logged")
    keys = ["cell", "x_low", "x_high"]
    clipped = rows["count"].where(rows["y_low"] > 0, 0.0)
    sums = rows.assign(clipped=clipped).groupby(keys, sort=True)[["count", "clipped"]].sum().reset_index()
    sums = sums[sums["count"] >= FEWEST]
    if sums.empty:
        raise NoData(f"no response length has {FEWEST} tokens")
    middle = np.sqrt(np.maximum(sums["x_low"], 0.5) * sums["x_high"])
    points = sums[["cell"]].assign(step=sums["x_low"], x=middle, y=sums["clipped"] / sums["count"])
    runs = runs_by_arm(study, points)
    caption = [
        "Two bins of length an octave; tokens of all updates, a run's bin with fewer than "
        f"{FEWEST} tokens is left out. Arms without a clip have no line, 0 none on a log axis. {seeds_caption(study)}"
    ]
    label = "share of loss\ntokens clipped"
    if are_many(study):
        figure = draw_rows(study, runs, LENGTH, label, log=True)
        compose(figure, [], [*caption, *trouble_caption(study)])
        return figure
    figure, panels = family_panels(study)
    draw_panels(study, panels, runs, "no clip", "range")
    for panel in panels:
        panel.axes.set_xscale("log", base=2)
        panel.axes.xaxis.set_major_formatter("{x:g}")
    log_y(panels)
    label_axes(panels, LENGTH, label)
    compose(
        figure, arm_handles(study), [f"Line: mean over seeds; band: their range. {caption[0]}", *trouble_caption(study)]
    )
    return figure


def _keys(study: Study, rows: pd.DataFrame) -> tuple[list[tuple[str, pd.DataFrame]], str]:
    """Return the rows of each map by its title, and what to say where arms are pooled."""
    groups = dict(iter(rows.groupby(["task", "arm"], sort=False)))
    order = [(task, arm) for task in study.tasks for arm in study.arms if (task, arm) in groups]
    if len(order) <= MOST_MAPS:
        return [("\n".join(key), groups[key]) for key in order], ""
    pooled = [(task, rows[rows["task"] == task]) for task in study.tasks]
    return [(task, here) for task, here in pooled if len(here)], " of all arms together"


def _off_diagonal(rows: pd.DataFrame) -> float:
    far = (rows["x_low"] - rows["y_low"]).abs() > 0.075  # noqa: PLR2004
    return float(rows.loc[far, "count"].sum() / rows["count"].sum())


def _bar(figure: Figure, image: object, panels: list[Axes], label: str) -> None:
    bar = figure.colorbar(image, ax=panels, pad=0.01, aspect=30)
    bar.set_label(label)
    bar.ax.minorticks_off()


def _label(figure: Figure, x: str, y: str) -> None:
    figure.supxlabel(x, y=0.0, fontsize="medium", gid=X_LABEL)
    figure.supylabel(y, fontsize="medium", gid=Y_LABEL)
