"""Score against compute as a law: the sigmoid of log-compute, and the frontier of what a score costs."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportReturnType=false

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.reports.figures.absent import NoData
from harness.reports.figures.curves import SCORE_HEIGHT, scaled, validation_points
from harness.reports.figures.lines import Runs, mean_line, runs_by_arm
from harness.reports.figures.panels import label_axes, say_no_data, seeds_caption, task_panels, trouble_caption
from harness.reports.figures.sigmoid import Fit, Refused, curve, fit_runs
from harness.reports.figures.style import DARK, DASHED, GREY, compose, looks
from harness.reports.scores import score_name
from harness.reports.study import Study

FURTHER = 4.0
"""A fit is drawn up to that many times the last compute."""
MAX_FITS = 8
"""Fits whose parameters stand in the caption."""
FLOPS = "useful FLOPs"


def sigmoid_fit(study: Study, baseline: str) -> Figure:
    """Draw sigmoids of log-compute through the validation scores, with dashes where they extrapolate."""
    runs = _runs(study)
    fits: dict[tuple[str, str], Fit] = {}
    refused: dict[str, list[str]] = {}
    for (task, arm), found in runs.items():
        try:
            fits[task, arm] = _fit(found)
        except Refused as reason:
            refused.setdefault(str(reason), []).append(f"{arm} {task}")
    if not fits:
        raise NoData("no fit: " + "; ".join(f"{reason} ({_listed(arms)})" for reason, arms in refused.items()))
    figure, panels = task_panels(study, SCORE_HEIGHT)
    looked, shown = looks(study), []
    for panel in panels:
        for arm in panel.arms:
            points, look = _after_start(mean_line(runs[panel.task, arm])), looked[arm]
            fit = fits.get((panel.task, arm))
            color = look.color if fit else GREY
            panel.axes.plot(
                points["x"], points["y"], look.marker, color=color, markerfacecolor=look.face if fit else "white"
            )
            if fit is None:
                continue
            shown.append(arm)
            inside = np.geomspace(float(points["x"].min()), float(points["x"].max()), 60)
            beyond = np.geomspace(inside[-1], FURTHER * inside[-1], 30)
            panel.axes.plot(inside, curve(fit, inside), "-", color=look.color)
            panel.axes.plot(beyond, curve(fit, beyond), linestyle=DASHED, color=look.color)
        panel.axes.set_xscale("log")
    label_axes(panels, f"{FLOPS} (log scale)", f"validation score\n({score_name(study)})")
    handles = [
        Line2D([], [], label=arm, color=looked[arm].color, marker=looked[arm].marker, markerfacecolor=looked[arm].face)
        for arm in study.arms
        if arm in shown
    ]
    handles += [Line2D([], [], label="extrapolated", color=DARK, linestyle=DASHED)]
    caption = [
        f"Points: mean over seeds; line: start + (A - start) / (1 + (C_mid / C)^B). {seeds_caption(study)}",
        *_parameters(fits),
        *(f"Not fitted, {reason}: {_listed(arms)}." for reason, arms in refused.items()),
    ]
    compose(figure, handles, [*caption, *trouble_caption(study)])
    return figure


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


def _after_start(mean: pd.DataFrame) -> pd.DataFrame:
    return mean[mean["x"] > 0]


def _fit(found: pd.DataFrame) -> Fit:
    done = found[found["done"]]
    if done.empty:
        raise Refused("no completed cell")
    scores = done.pivot(index="run", columns="step", values="y").dropna(axis=1)
    compute = done.groupby("step")["x"].mean()[scores.columns]
    after = compute.to_numpy("float64") > 0
    if after.all():
        raise Refused("the start was not evaluated")
    values = scores.to_numpy("float64")
    starts = values[:, ~after].mean(1)
    return fit_runs(compute.to_numpy("float64")[after], values[:, after], starts, np.random.default_rng(0))


def _parameters(fits: dict[tuple[str, str], Fit]) -> list[str]:
    if len(fits) > MAX_FITS:
        return [f"{len(fits)} fits."]
    texts = [
        f"{arm} {task}: A {fit.asymptote:.3f}"
        + (f" [{fit.low:.3f}, {fit.high:.3f}]" if fit.low == fit.low else "")
        + f", B {fit.steepness:.2g}, C_mid {fit.middle:.2g}"
        for (task, arm), fit in fits.items()
    ]
    return ["; ".join(texts) + ". [ ]: 95% percentiles over resampled seeds; too narrow with few."]


def _listed(arms: list[str], most: int = 4) -> str:
    return ", ".join(arms[:most]) + (f" and {len(arms) - most} more" if len(arms) > most else "")
