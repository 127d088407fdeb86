"""Orders of the arms: their ranks under each budget axis, their performance profiles, and what a threshold costs."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.reports.figures.absent import NoData
from harness.reports.figures.curves import COLUMNS_OF, scaled, validation_points
from harness.reports.figures.lines import runs_by_arm
from harness.reports.figures.panels import (
    MANY,
    arm_rows,
    label_axes,
    scored_rows,
    seeds_caption,
    task_panels,
    trouble_caption,
)
from harness.reports.figures.style import COLUMN, DARK, GREY, PAGE, SMALL, Look, arm_handles, compose, looks, of_arm
from harness.reports.ranking import AS_RUN, AXES, TEST, rank_frame
from harness.reports.resampling import performance_profile
from harness.reports.scores import score_name
from harness.reports.study import Study
from harness.reports.trajectories import first_reached, median_with_misses

TWO = 2
SHARE = 0.5
"""Of the best arm's gain: where the threshold stands."""
PROFILE_POINTS = 201
LEGEND_GREY = "#666666"
_AXIS_NAMES = {AS_RUN: "as run", **AXES, TEST: "test"}


def rank_stability(study: Study, baseline: str) -> Figure:
    """Draw each arm's rank at equal FLOPs, tokens and updates beside the one as run, and on the test split."""
    if len(study.arms) < TWO:
        raise NoData("one arm has no rank")
    if len(study.arms) > MANY:
        raise NoData(f"{len(study.arms)} lines cannot be told apart: the table of ranks has them")
    frame, looked = rank_frame(study), looks(study)
    order = [axis for axis in _AXIS_NAMES if frame.loc[frame["axis"] == axis, "rank"].notna().any()]
    if len(order) < TWO:
        raise NoData("fewer than two axes have a completed cell")
    figure, panels = task_panels(study, 0.14 * len(study.arms) + 1.0)
    for panel in panels:
        ranks = (
            frame[frame["task"] == panel.task].pivot(index="arm", columns="axis", values="rank").reindex(columns=order)
        )
        ends: dict[float, list[str]] = {}
        for arm in panel.arms:
            row, look = ranks.loc[arm].to_numpy("float64"), looked[arm]
            moved = len({rank for rank in row[:-1] if not math.isnan(rank)}) > 1
            style = {"linewidth": 1.6 if moved else 0.7, "marker": look.marker, "markerfacecolor": look.face}
            panel.axes.plot(range(len(order)), row, zorder=3 if moved else 2, **look.line, **style)
            if not math.isnan(row[-1]):
                ends.setdefault(row[-1], []).append(arm)
        for rank, arms in ends.items():
            panel.axes.annotate(
                ", ".join(arms), (len(order) - 0.85, rank), va="center", fontsize=SMALL, annotation_clip=False
            )
        absent = [arm for arm in panel.arms if ranks.loc[arm].isna().all()]
        if absent:
            panel.axes.set_title(f"{panel.task} (no rank: {', '.join(absent)})", fontsize=SMALL)
        names = [_AXIS_NAMES[axis].replace("generated ", "").replace("useful ", "") for axis in order]
        panel.axes.set_xticks(range(len(order)), names)
        panel.axes.set_ylim(len(panel.arms) + 0.5, 0.5)
        panel.axes.set_yticks(range(1, len(panel.arms) + 1, max(1, len(panel.arms) // 10)))
    label_axes(panels, "ranked at equal ...", "rank (1 is best)")
    caption = [
        "Ranks of mean scores, ties share the better one; all but the last column are of validation scores. Thick: an "
        f"arm whose rank changes with the axis. Ranks order means: neighbours need not differ. {seeds_caption(study)}"
    ]
    compose(figure, [] if len(study.arms) > MANY else arm_handles(study), [*caption, *trouble_caption(study)])
    return figure


def performance_profiles(study: Study, baseline: str) -> Figure:
    """Draw the share of runs above each score, averaged over tasks (Agarwal et al. 2021, arXiv:2108.13264)."""
    rows = scored_rows(study)
    if rows.empty:
        raise NoData("no cell has a final test score")
    low, high = float(rows["score"].min()), float(rows["score"].max())
    margin = max(0.02, 0.05 * (high - low))
    limits = np.linspace(max(0.0, low - margin), min(1.0, high + margin), PROFILE_POINTS)
    figure = Figure(figsize=(COLUMN if len(study.arms) <= MANY else PAGE, 2.5), layout="constrained")
    axes, looked = figure.subplots(), looks(study)
    many = len(study.arms) > MANY
    short = []
    for place, arm in enumerate(study.arms):
        strata = [of_arm(rows, task, arm)["score"].to_numpy("float64") for task in study.tasks]
        if not all(scores.size for scores in strata):
            short.append(arm)
            continue
        look = looked[arm]
        style = look.line | ({"color": GREY, "linewidth": 0.7} if many and arm != baseline else {})
        mark = {} if many else {"marker": look.marker, "markerfacecolor": look.face, "markevery": (5 * place % 40, 40)}
        axes.plot(limits, performance_profile(strata, limits), drawstyle="steps-post", **style, **mark)
    axes.set_xlabel(f"test score ({score_name(study)})")
    axes.set_ylabel("share of runs above it")
    axes.set_ylim(-0.02, 1.02)
    caption = [f"Runs of all tasks, tasks weigh the same; of a diverged run its last score. {seeds_caption(study)}"]
    caption += [f"Left out, without a score on every task: {', '.join(short)}."] if short else []
    handles = [Line2D([], [], label=baseline, **looked[baseline].line), Line2D([], [], label="other arms", color=GREY)]
    compose(figure, handles if many else arm_handles(study), [*caption, *trouble_caption(study)])
    return figure


def compute_to_threshold(study: Study, baseline: str) -> Figure:
    """Draw what each run has spent when its validation score first reaches half of the best arm's gain."""
    axis = str(study.cells["budget_axis"].iloc[0])
    column = COLUMNS_OF.get(axis, "spent_flops")
    points = validation_points(study).dropna(subset=column)
    if points.empty:
        raise NoData(f"evals.csv has no {column}")
    unit, label = scaled(
        points[column],
        {"generated_tokens": "generated tokens", "updates": "optimizer steps"}.get(column, "useful FLOPs"),
    )
    runs = runs_by_arm(study, points.assign(x=points[column] / unit))
    figure, panels = arm_rows(study, sharex=False)
    looked, stands = looks(study), []
    for panel in panels:
        threshold = _threshold([runs[panel.task, arm] for arm in panel.arms])
        if math.isnan(threshold):
            panel.axes.set_title(f"{panel.task}: no arm gains")
            continue
        stands.append(threshold)
        panel.axes.set_title(f"{panel.task}: score {threshold:.3f}")
        edge = max(float(runs[panel.task, arm]["x"].max()) for arm in panel.arms if len(runs[panel.task, arm])) * 1.12
        for place, arm in enumerate(panel.arms):
            done = runs[panel.task, arm]
            done = done[done["done"]].groupby("run")
            reached = np.array([first_reached(line["x"], line["y"], threshold) for _, line in done])
            _draw_reached(panel.axes, place, reached, edge, looked[arm])
        panel.axes.axvline(edge / 1.06, color=GREY, linewidth=0.7)
        panel.axes.set_xlim(0, edge * 1.04)
    if not stands:
        raise NoData("no arm's mean validation score rises above its start")
    label_axes(panels, f"{label} when the score is first reached", "")
    handles = [
        Line2D([], [], color=LEGEND_GREY, marker="o", linestyle="", label="median run"),
        Line2D([], [], color=LEGEND_GREY, marker="|", linestyle="", label="one seed"),
        Line2D([], [], color=LEGEND_GREY, marker=">", linestyle="", label="not reached by half of the seeds"),
    ]
    caption = [
        "Score: halfway from the warm start to the best arm's final mean, on validation. Right of the line: never "
        "reached; at the right: runs that reach it of those completed. Evaluations are the resolution. "
        f"{seeds_caption(study)}"
    ]
    compose(figure, handles, [*caption, *trouble_caption(study)])
    return figure


def _draw_reached(axes: Axes, place: int, reached: np.ndarray, edge: float, look: Look) -> None:
    """Draw an arm's runs at what they had spent, those that never got there at the edge, and how many got there."""
    hits = int(np.isfinite(reached).sum())
    note, beside = f"{hits}/{len(reached)}" if reached.size else "n/a", ("axes fraction", "data")
    axes.annotate(note, (1.01, place), xycoords=beside, va="center", fontsize=SMALL, color=DARK)
    if not reached.size:
        return
    ends = np.where(np.isfinite(reached), reached, edge)
    axes.plot(ends, np.full(len(ends), place + 0.22), "|", color=look.color, markersize=4)
    middle = median_with_misses(reached)
    shape = ">" if math.isinf(middle) else look.marker
    axes.plot([min(middle, edge)], [place], shape, color=look.color, markerfacecolor=look.face, markersize=5)


def _threshold(runs: list[pd.DataFrame]) -> float:
    """Return the score halfway between the mean start and the best final mean; NaN where no arm gains."""
    done = [found[found["done"]] for found in runs]
    firsts = [line.loc[line["step"] == 0, "y"] for line in done]
    lasts = [float(line.loc[line["step"] == 1, "y"].mean()) for line in done if len(line)]
    starts = pd.concat(firsts) if firsts else pd.Series(dtype="float64")
    if starts.empty or not np.isfinite(lasts).any():
        return math.nan
    start, best = float(starts.mean()), float(np.nanmax(lasts))
    return start + SHARE * (best - start) if best > start else math.nan
