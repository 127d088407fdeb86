"""Dots with intervals by arm: final scores, and paired differences to the baseline."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.reports.comparison import budget_text, compare
from harness.reports.figures.panels import (
    arm_rows,
    label_axes,
    say_no_data,
    scored_rows,
    seeds_caption,
    trouble_caption,
)
from harness.reports.figures.style import DARK, SMALL, Look, compose, looks, of_arm
from harness.reports.scores import outcomes, pairs, score_name
from harness.reports.statistics import mean_interval
from harness.reports.study import Study

SEED_OFFSET = 0.24
BIG = 5
CUT_AT = 2
MARGIN = 0.12
LEGEND_GREY = "#666666"


def final_scores(study: Study, baseline: str) -> Figure:
    """Draw each arm's test score at the end of the budget: mean, t interval, seeds, and the warm start."""
    figure, panels = arm_rows(study, sharex=False)
    looked, table, scored = looks(study), outcomes(study), scored_rows(study)
    frame = compare(study, baseline).set_index(["task", "arm"])
    for panel in panels:
        here = table[table["task"] == panel.task]
        start = float(here.groupby(["policy", "seed"])["start"].first().mean())
        if not math.isnan(start):
            panel.axes.axvline(start, color=DARK, linestyle=":", linewidth=1)
        for place, arm in enumerate(panel.arms):
            seeds = of_arm(scored, panel.task, arm)["score"].to_numpy("float64")
            interval, look = mean_interval(seeds), looked[arm]
            if not interval.num:
                _note(panel.axes, place, "n/a")
                continue
            panel.axes.plot(seeds, np.full(len(seeds), place + SEED_OFFSET), "|", color=look.color, markersize=4)
            half = 0.0 if math.isnan(interval.half_width) else interval.half_width
            panel.axes.errorbar(interval.mean, place, xerr=half or None, capsize=2, **_dot(look))
            expected = len(of_arm(here, panel.task, arm))
            if interval.num < expected:
                _note(panel.axes, place, f"{interval.num}/{expected}", right=True)
        _fit(panel.axes, frame.loc[panel.task], "final_score", "completed", [start])
    label_axes(panels, f"test score ({score_name(study)})", "")
    handles: list[Artist] = [
        Line2D([], [], color=LEGEND_GREY, marker="o", label="mean, 95% t interval"),
        Line2D([], [], color=LEGEND_GREY, marker="o", markerfacecolor="white", label="with trust region"),
        Line2D([], [], color=LEGEND_GREY, marker="|", linestyle="", label="one seed"),
        Line2D([], [], color=DARK, linestyle=":", label="warm start"),
    ]
    caption = [f"Test split, last state inside {budget_text(study)}. {seeds_caption(study)}{_few(study)}"]
    compose(figure, handles, [*caption, *trouble_caption(study)])
    return figure


def paired_differences(study: Study, baseline: str) -> Figure:
    """Draw each arm's paired difference to the baseline with its interval and the detectable difference."""
    figure, panels = arm_rows(study, sharex=False)
    looked, table = looks(study), outcomes(study)
    frame = compare(study, baseline).set_index(["task", "arm"])
    for panel in panels:
        panel.axes.axvline(0, color=DARK, linewidth=0.9)
        if panel.arms == [baseline]:
            say_no_data(panel.axes, "no arm besides the baseline")
        for place, arm in enumerate(panel.arms):
            row = frame.loc[(panel.task, arm)]
            if arm == baseline:
                _note(panel.axes, place, "baseline")
                continue
            if not row["num_pairs"]:
                _note(panel.axes, place, "n/a")
                continue
            first, second = pairs(table, "score", panel.task, arm, baseline)
            _draw_difference(panel.axes, place, row, first - second, looked[arm])
            if row["num_pairs"] < row["total"]:
                _note(panel.axes, place, f"{row['num_pairs']:.0f}/{row['total']:.0f}", right=True)
        _fit(panel.axes, frame.loc[panel.task], "difference", "num_pairs", [0.0])
    label_axes(panels, f"difference in test score to {baseline}", "")
    handles: list[Artist] = [
        Line2D([], [], color=LEGEND_GREY, marker="o", label="mean difference, 95% t interval"),
        Line2D([], [], color=LEGEND_GREY, marker="|", linestyle="", label="one pair"),
        Line2D(
            [],
            [],
            color="black",
            marker="d",
            linestyle="",
            markerfacecolor="none",
            label="minimum detectable difference",
        ),
    ]
    caption = [
        "Pairs share task, policy and seed; a pair with an unfinished cell is dropped (pairs/planned at the right). "
        f"Detectable: a paired t test at 0.05 has power 0.8 there. {seeds_caption(study)}{_few(study)}",
        *trouble_caption(study),
    ]
    compose(figure, handles, caption)
    return figure


def _draw_difference(axes: Axes, place: int, row: pd.Series, gaps: np.ndarray, look: Look) -> None:
    gaps = gaps[~np.isnan(gaps)]
    axes.plot(gaps, np.full(len(gaps), place + SEED_OFFSET), "|", color=look.color, markersize=4)
    half = float(row["difference_high"]) - float(row["difference"])
    axes.errorbar(float(row["difference"]), place, xerr=None if math.isnan(half) else half, capsize=2, **_dot(look))
    reach = float(row["minimum_detectable_difference"])
    if not math.isnan(reach):
        axes.plot([-reach, reach], [place, place], "d", color="black", markersize=3, markerfacecolor="none")


def _dot(look: Look) -> dict:
    return {
        **{"fmt": look.marker, "color": look.color, "markersize": BIG, "markerfacecolor": look.face},
        **{"linewidth": 1.2, "zorder": 3},
    }


def _note(axes: Axes, place: int, text: str, right: bool = False) -> None:
    """Write beside a row: inside at the left, or outside at the right."""
    where = 1.01 if right else 0.02
    coordinates = ("axes fraction", "data")
    style = {"xycoords": coordinates, "textcoords": "offset points", "va": "center", "fontsize": SMALL, "color": DARK}
    background = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    axes.annotate(text, (where, place), (4 if right else 0, 0), bbox=background, **style)


def _fit(axes: Axes, rows: pd.DataFrame, mean: str, num: str, always: list[float]) -> None:
    """Cut intervals of two runs, which are often ten times the others, at the edge and mark the cut with an arrow."""
    solid, loose = rows[rows[num] > CUT_AT], rows[rows[num] == CUT_AT]
    if solid.empty or loose.empty:
        return
    ends = [solid[mean] - _half(solid, mean), solid[mean] + _half(solid, mean), rows[mean]]
    if mean == "difference":
        ends += [solid["minimum_detectable_difference"], -solid["minimum_detectable_difference"]]
    values = np.concatenate([*(end.to_numpy("float64") for end in ends), always])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = MARGIN * (high - low)
    low, high = low - margin, high + margin
    axes.set_xlim(low, high)
    for arm, row in loose.iterrows():
        place = list(rows.index).index(arm)
        half = float(_half(loose, mean)[arm])
        if row[mean] - half < low:
            axes.plot([low], [place], "<", color=DARK, clip_on=False, zorder=5)
        if row[mean] + half > high:
            axes.plot([high], [place], ">", color=DARK, clip_on=False, zorder=5)


def _half(rows: pd.DataFrame, mean: str) -> pd.Series:
    return rows["final_half_width"] if mean == "final_score" else rows["difference_high"] - rows["difference"]


def _few(study: Study) -> str:
    counts = scored_rows(study).groupby(["task", "arm"])["score"].count()
    text = " An arrow: a two-seed interval goes on beyond the axis." if (counts == CUT_AT).any() else ""
    return text + (" One seed has no interval: n/a (1 seed)." if (counts == 1).any() else "")
