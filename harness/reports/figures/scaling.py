"""Score against compute as a law: the sigmoid of log-compute, and the frontier of what a score costs."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportReturnType=false

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from harness.reports.comparison import AXIS_WORDS
from harness.reports.figures.absent import NoData
from harness.reports.figures.curves import SCORE_HEIGHT, scaled, validation_points
from harness.reports.figures.lines import Runs, mean_line, runs_by_arm
from harness.reports.figures.panels import label_axes, say_no_data, seeds_caption, task_panels, trouble_caption
from harness.reports.figures.style import DARK, DASHED, GREY, Look, compose, looks
from harness.reports.fits import Curves, curves, fit_frame
from harness.reports.scores import score_name
from harness.reports.sigmoid import sigmoid
from harness.reports.study import Study

FURTHER = 4.0
"""A fit is drawn up to that many times the last compute."""
MAX_FITS = 8
"""Fits whose parameters stand in the caption."""
FLOPS = "useful FLOPs"


def sigmoid_fit(study: Study, baseline: str) -> Figure:
    """Draw the sigmoids of tables/fits through the mean validation scores, with dashes where they extrapolate."""
    frame, found = fit_frame(study), curves(study)
    fitted = {(row.task, row.arm): row for row in frame.itertuples() if not row.refusal}
    refused: dict[str, list[str]] = {}
    for row in frame.itertuples():
        if row.refusal:
            refused.setdefault(row.refusal, []).append(f"{row.arm} {row.task}")
    if not fitted:
        raise NoData("no fit: " + "; ".join(f"{reason} ({_listed(arms)})" for reason, arms in refused.items()))
    figure, panels = task_panels(study, SCORE_HEIGHT)
    looked = looks(study)
    known = [one.compute for one in found.values() if one.compute.size]
    first, last = min(float(one[1]) for one in known), max(float(one[-1]) for one in known)
    unit, label = scaled(pd.Series([last]), _budget_words(study))
    for panel in panels:
        for arm in panel.arms:
            _draw_fit(panel.axes, found[panel.task, arm], fitted.get((panel.task, arm)), looked[arm], unit)
        panel.axes.set_xscale("log")
        ticks = [first / unit, last / unit, FURTHER * last / unit]
        panel.axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
        panel.axes.xaxis.set_minor_locator(NullLocator())
    label_axes(panels, f"{label} (log scale)", f"validation score\n({score_name(study)})")
    handles = [
        Line2D([], [], label=arm, color=look.color, marker=look.marker, markerfacecolor=look.face)
        for arm, look in looked.items()
        if any(name == arm for _, name in fitted)
    ]
    handles += [Line2D([], [], label="extrapolated", color=DARK, linestyle=DASHED)]
    caption = [
        f"Points: mean over seeds; line: R0 + (A - R0) / (1 + (C_mid / C)^B) of tables/fits. {seeds_caption(study)}",
        *_parameters(fitted),
        *(f"Not fitted, {reason}: {_listed(arms)}." for reason, arms in refused.items()),
    ]
    compose(figure, handles, [*caption, *trouble_caption(study)])
    return figure


def _draw_fit(axes: Axes, found: Curves, fit: Any, look: Look, unit: float) -> None:
    if not found.compute.size:
        return
    color, face = (look.color, look.face) if fit else (GREY, "white")
    x = found.compute[1:]
    axes.plot(x / unit, found.scores.mean(axis=0)[1:], look.marker, color=color, markerfacecolor=face)
    if fit is None:
        return
    inside = np.geomspace(float(x[0]), float(x[-1]), 60)
    beyond = np.geomspace(float(x[-1]), FURTHER * float(x[-1]), 30)
    for part, kind in ((inside, "-"), (beyond, DASHED)):
        axes.plot(
            part / unit,
            sigmoid(part, fit.start, fit.asymptote, fit.steepness, fit.midpoint),
            linestyle=kind,
            color=color,
        )


def _budget_words(study: Study) -> str:
    axes = study.cells["budget_axis"].unique()
    return AXIS_WORDS[axes[0]] if len(axes) == 1 else "budget"


def pareto(study: Study, baseline: str) -> Figure:
    """Draw every arm's validation scores against useful FLOPs, and the frontier that no arm is above for less."""
    runs, looked = _runs(study), looks(study)
    unit, label = scaled(pd.concat([found["x"] for found in runs.values()]), FLOPS)
    runs = {key: found.assign(x=found["x"] / unit) for key, found in runs.items()}
    figure, panels = task_panels(study, SCORE_HEIGHT)
    winners: list[str] = []
    for panel in panels:
        means = [mean_line(runs[panel.task, arm]).assign(arm=arm) for arm in panel.arms]
        points = pd.concat([mean for mean in means if len(mean)] or means)
        if points.empty:
            say_no_data(panel.axes, "no completed cell")
            continue
        points = points.sort_values(["x", "y"], ascending=[True, False], kind="stable")
        before = points["y"].cummax().shift()
        best = points[before.isna() | (points["y"] > before)]
        winners += [arm for arm in best.loc[best["x"] > 0, "arm"] if arm not in winners]
        end = float(points["x"].max())
        panel.axes.step(
            [*best["x"], end], [*best["y"], float(best["y"].iloc[-1])], where="post", color=DARK, linewidth=1
        )
        for arm in panel.arms:
            here, look = points[points["arm"] == arm], looked[arm]
            faint = {"color": GREY, "markerfacecolor": "white"}
            panel.axes.plot(here["x"], here["y"], look.marker, zorder=2, **faint)
            on = best[(best["arm"] == arm) & (best["x"] > 0)]
            panel.axes.plot(
                on["x"], on["y"], look.marker, color=look.color, markerfacecolor=look.face, markersize=6, zorder=4
            )
    if not winners:
        raise NoData("no cell is completed")
    label_axes(panels, label, f"validation score\n({score_name(study)})")
    handles = [
        Line2D([], [], label=arm, linestyle="", color=look.color, marker=look.marker, markerfacecolor=look.face)
        for arm, look in looked.items()
        if arm in winners
    ]
    handles += [
        Line2D([], [], label="off the frontier", linestyle="", color=GREY, marker="o", markerfacecolor="white"),
        Line2D([], [], label="frontier", color=DARK, linewidth=1),
    ]
    text = "Points: evaluations, means over completed seeds of score and of cost. The frontier joins means: neighbours "
    compose(figure, handles, [f"{text}need not differ. {seeds_caption(study)}", *trouble_caption(study)])
    return figure


def _runs(study: Study) -> Runs:
    points = validation_points(study).dropna(subset="spent_flops")
    if points.empty:
        raise NoData("evals.csv has no spent_flops")
    return runs_by_arm(study, points.assign(x=points["spent_flops"]))


def _parameters(fitted: dict[tuple[str, str], Any]) -> list[str]:
    if len(fitted) > MAX_FITS:
        return [f"{len(fitted)} fits."]
    texts = [
        f"{arm} {task}: A {fit.asymptote:.3f}"
        + (f" [{fit.asymptote_low:.3f}, {fit.asymptote_high:.3f}]" if not math.isnan(fit.asymptote_low) else "")
        + f", B {fit.steepness:.2g}, C_mid {fit.midpoint:.2g}"
        for (task, arm), fit in fitted.items()
    ]
    return ["; ".join(texts) + ". [ ]: 95% percentiles over resampled seeds; too narrow with few."]


def _listed(arms: list[str], most: int = 4) -> str:
    return ", ".join(arms[:most]) + (f" and {len(arms) - most} more" if len(arms) > most else "")
