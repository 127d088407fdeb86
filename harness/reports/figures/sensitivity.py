"""The final score against a swept setting: sensitivity of tuned settings, and stress by stale data."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.reports.figures.absent import NoData
from harness.reports.figures.lines import BAND_FROM, whole_decades
from harness.reports.figures.panels import seeds_caption, trouble_caption
from harness.reports.figures.settings import Line, Swept, scale_setting, swept
from harness.reports.figures.style import COLUMN, PAGE, SMALL, Look, compose, looks, looks_of
from harness.reports.scores import outcomes, score_name
from harness.reports.statistics import mean_interval
from harness.reports.study import Study

OFF_POLICY = ("update.epochs", "update.minibatches", "rollout.lag")
"""Settings that make the data of an update older than its policy."""
MAX_COLUMNS = 3
DODGE = 0.012
"""Distance between lines at one value, share of the axis."""

Values = Callable[[str, str], np.ndarray]
"""(task, arm) -> one number a run that has a score; of a run that diverged, its last one."""


def sensitivity(study: Study, baseline: str) -> Figure:
    """Draw the final test score against each swept setting (learning rate, eps, K, delta, beta, ...)."""
    found = [setting for setting in swept(study) if setting.keys[0] not in OFF_POLICY]
    if not found:
        raise NoData("no numeric setting was swept: no two arms differ in one setting alone (axes of a sweep do)")
    return _figure(study, found, {f"test score\n({score_name(study)})": (_scores(study), False)})


def off_policy_stress(study: Study, baseline: str) -> Figure:
    """Draw final test score and clip fraction against epochs, minibatches or lag: how old the data of an update is."""
    found = [setting for setting in swept(study) if setting.keys[0] in OFF_POLICY]
    if not found:
        raise NoData(f"none of {', '.join(OFF_POLICY)} was swept")
    quantities = {f"test score\n({score_name(study)})": (_scores(study), False)}
    clipped = study.metrics.groupby("cell", sort=False)["clip_frac"].mean().dropna()
    if len(clipped):
        quantities["share of loss\ntokens clipped"] = (_means(study, clipped), True)
    return _figure(study, found, quantities)


def _scores(study: Study) -> Values:
    table = outcomes(study)
    groups = {key: rows["score"].dropna().to_numpy("float64") for key, rows in table.groupby(["task", "arm"])}
    return lambda task, arm: groups[task, arm]


def _means(study: Study, by_cell: pd.Series) -> Values:
    table = outcomes(study)
    table = table[table["score"].notna()]
    known = table.assign(value=table["cell"].map(by_cell)).groupby(["task", "arm"])["value"]
    groups = {key: values.dropna().to_numpy("float64") for key, values in known}
    return lambda task, arm: groups.get((task, arm), np.zeros(0))


def _figure(study: Study, found: list[Swept], quantities: dict[str, tuple[Values, bool]]) -> Figure:
    names = list(dict.fromkeys(line.name for setting in found for line in setting.lines))
    regions = {line.name for setting in found for line in setting.lines if line.has_region}
    looked = {**looks_of(names, lambda name: name in regions), **looks(study)}
    looked = {name: looked[name] for name in names}
    places = [
        (task, setting, label)
        for label in quantities
        for setting in found
        for task in dict.fromkeys(line.task for line in setting.lines)
    ]
    columns = min(MAX_COLUMNS, len(places) // len(quantities))
    lines = math.ceil(len(places) / columns)
    figure = Figure(figsize=(PAGE if columns > 1 else COLUMN, 1.9 * lines + 0.2), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False)
    several = len({task for task, _, _ in places}) > 1
    for axes, (task, setting, label) in zip(grid.flat, places, strict=False):
        values, log = quantities[label]
        here = [line for line in setting.lines if line.task == task]
        _draw(axes, here, values, looked)
        scale_setting(axes, sorted({value for line in here for value, _, _ in line.points}))
        axes.set_xlabel(setting.label)
        axes.set_ylabel(label, fontsize=SMALL + 0.5)
        if several:
            axes.set_title(task)
        if log and any((np.asarray(line.get_ydata(), "float64") > 0).any() for line in axes.get_lines()):
            whole_decades(axes)
    for axes in grid.flat[len(places) :]:
        axes.set_axis_off()
    handles: list[Artist] = [
        Line2D([], [], label=name, marker=look.marker, markerfacecolor=look.face, **look.line)
        for name, look in looked.items()
    ]
    compose(figure, handles, [_caption(study, found), *trouble_caption(study)])
    return figure


def _draw(axes: Axes, lines: list[Line], values: Values, looked: dict[str, Look]) -> None:
    drawn = {name: place for place, name in enumerate(dict.fromkeys(line.name for line in lines))}
    for line in lines:
        look = looked[line.name]
        style = {"color": look.color, "marker": look.marker, "markerfacecolor": look.face}
        x, means, halves = [], [], []
        for value, task, arm in line.points:
            interval = mean_interval(values(task, arm))
            x.append(value)
            means.append(interval.mean)
            halves.append(interval.half_width if interval.num >= BAND_FROM else math.nan)
            if not interval.num:  # nothing completed: a cross on the axis, beside those of other lines
                where = 0.03 + 0.05 * (drawn[line.name] % 4)
                axes.plot([value], [where], "x", color=look.color, transform=axes.get_xaxis_transform(), clip_on=False)
        kind = look.line["linestyle"] if line.joined else ""
        axes.plot(x, means, linestyle=kind, **style)
        known = np.isfinite(halves)
        if line.joined and known.any():
            ends = [np.asarray(part, "float64")[known] for part in (x, means, halves)]
            axes.errorbar(
                *ends[:2], yerr=ends[2], fmt="none", ecolor=look.color, elinewidth=0.8, capsize=1.5, alpha=0.7
            )


def _caption(study: Study, found: list[Swept]) -> str:
    text = "Line: arms that differ in this setting alone, mean over seeds; bars: 95% t interval (from 3 seeds)"
    if not study.tuning.empty:
        text += "; what the tuning chose for each value differs too"
    if any(not line.joined for setting in found for line in setting.lines):
        text += "; without a line: trials of an objective that differ in other settings too"
    return f"{text}; x on the axis: no seed has a score. {seeds_caption(study)}"
