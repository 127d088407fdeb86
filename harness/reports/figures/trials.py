"""The validation score of every trial of a tuning against each setting that was searched."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import json

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.reports.figures.absent import NoData
from harness.reports.figures.panels import SMALL_PANEL_HEIGHT
from harness.reports.figures.settings import scale_setting
from harness.reports.figures.style import PAGE, SMALL, Look, compose, has_region, looks_of
from harness.reports.scores import score_name
from harness.reports.study import Study
from harness.reports.tuning import DECLARED, words

SPARE = 0.4
"""Inches of a row of panels beside its panels: title and axis label."""


def tuning_trials(study: Study, baseline: str) -> Figure:
    """Draw what the tuning saw: a point a trial, a column a searched setting, a row a value of the axes tuned apart."""
    if study.tuning.empty:
        raise NoData("the sweep was not tuned: it has no [tuning]")
    trials = study.tuning[study.tuning["trial"] != DECLARED]
    values = pd.DataFrame([json.loads(text) for text in trials["settings"]], index=trials.index)
    searched = _searched(values)
    rows = list(dict.fromkeys(trials["apart"]))
    size = (PAGE, (SMALL_PANEL_HEIGHT + SPARE) * len(rows) + 0.2)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), len(searched), squeeze=False, sharey="row", sharex="col")
    arms = list(dict.fromkeys(trials["arm"]))
    looked = looks_of(arms, lambda arm: _has_region(study, arm))
    for line, apart in zip(grid, rows, strict=True):
        here = trials["apart"] == apart
        for axes, label in zip(line, searched, strict=True):
            for arm in arms:
                mine = trials[here & (trials["arm"] == arm)].assign(value=values[searched[label]])
                _draw(axes, mine[mine["value"].notna()], looked[arm])
            axes.set_title(words(apart), fontsize=SMALL)
        line[0].set_ylabel(f"validation score\n({score_name(study)})")
    for axes, label in zip(grid[-1], searched, strict=True):
        scale_setting(axes, sorted(values[searched[label]].dropna().unique()))
        axes.set_xlabel(label)
    handles: list[Artist] = [
        Line2D([], [], label=arm, marker=look.marker, markerfacecolor=look.face, color=look.color, linestyle="")
        for arm, look in looked.items()
    ]
    handles.append(Line2D([], [], color="black", marker="o", markerfacecolor="none", linestyle="", label="chosen"))
    caption = [
        "A point is a trial: mean validation score on the tuning seeds, 0 where it diverged. An arm's trials differ in "
        "all that is searched for it. Settings as declared, which take part too, are in tables/tuning."
    ]
    compose(figure, handles, caption)
    return figure


def _searched(values: pd.DataFrame) -> dict[str, str]:
    """Return {label: column} of the numeric settings; one that always has the value of another stands with it."""
    found: dict[str, list[str]] = {}
    for name in values.columns:
        if not pd.api.types.is_numeric_dtype(values[name]):
            continue
        first = next((known for known in found if values[known].equals(values[name])), name)
        found.setdefault(first, []).append(name)
    if not found:
        raise NoData("no numeric setting was searched")
    last = {key: [name.split(".")[-1] for name in names] for key, names in found.items()}
    return {names[0] + (f" (and {', '.join(names[1:])})" if names[1:] else ""): key for key, names in last.items()}


def _draw(axes: Axes, rows: pd.DataFrame, look: Look) -> None:
    axes.plot(rows["value"], rows["score"], look.marker, color=look.color, markerfacecolor=look.face, markersize=3.5)
    chosen = rows[rows["chosen_by"] != ""]
    axes.plot(chosen["value"], chosen["score"], "o", color="black", markerfacecolor="none", markersize=7)


def _has_region(study: Study, arm: str) -> bool:
    """Whether the arm, whose name the study may give with the values of axes behind it, has a trust region."""
    return any(has_region(study, name) for name in study.arms if name == arm or name.startswith(f"{arm} "))
