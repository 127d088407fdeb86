"""Find what a study swept: numeric settings, and the arms that differ in one of them alone."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import json
from dataclasses import dataclass
from itertools import pairwise

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from harness.reports.study import CONFIG_PREFIX, Study

__all__ = ["Line", "Swept", "base_task", "scale_setting", "swept"]

TRIALS = 4
"""Arms of one objective, all different in a setting, that count as its trials where none differ in it alone."""
FEW_TICKS = 6
LOG_FROM = 8.0
"""Largest over smallest value from which a setting is on a log axis."""
_OWN = ["base", "policy", "objective", "region"]


@dataclass(frozen=True)
class Line:
    """Arms of one task that differ in a setting alone, or the trials of an objective (``joined`` is false).

    ``task`` is without a condition; settings that a tuning chose for each arm are not looked at.
    """

    task: str
    name: str
    has_region: bool
    points: tuple[tuple[float, str, str], ...]
    """(value, task with its condition, arm), values increasing."""
    joined: bool


@dataclass(frozen=True)
class Swept:
    """A setting, or several that vary as one, with its lines."""

    keys: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def label(self) -> str:
        """The setting's name, as "clip_low (with clip_high)"."""
        first, *others = (key.split(".")[-1] for key in self.keys)
        return first + (f" (with {', '.join(others)})" if others else "")


def swept(study: Study) -> list[Swept]:
    """Return the numeric settings that vary, in the order of the columns of cells.csv.

    Settings of which each gives the others (clip_low and clip_high of the same trial) are one.
    """
    settings = [] if study.tuning.empty else study.tuning["settings"]
    tuned = {CONFIG_PREFIX + key for text in settings for key in json.loads(text)}
    columns = [str(name) for name in study.cells.columns if str(name).startswith(CONFIG_PREFIX) and name not in tuned]
    known = ["task", "policy", "arm"]
    arms = study.cells.drop_duplicates(known)[[*known, "condition", *_OWN[2:], *columns]].reset_index(drop=True)
    arms["base"] = [base_task(*row) for row in arms[["task", "condition"]].itertuples(index=False, name=None)]
    numbers = {name: pd.to_numeric(arms[name], errors="coerce") for name in columns}
    numeric = [
        name for name in columns if numbers[name].notna().equals(arms[name] != "") and numbers[name].nunique() > 1
    ]
    found = []
    for group in _coupled(arms, numeric):
        lines = _lines(arms, [name for name in columns if name not in group], numbers[group[0]])
        if lines:
            found.append(Swept(tuple(name.removeprefix(CONFIG_PREFIX) for name in group), tuple(lines)))
    return found


def base_task(task: str, condition: str) -> str:
    """Return a task's label without the condition behind it."""
    return task.removesuffix(f" {condition}") if condition else task


def scale_setting(axes: Axes, values: list[float]) -> None:
    """Give the x axis a scale for the values of a setting, increasing, and ticks at these where they are few."""
    if values[0] > 0 and values[-1] / values[0] >= LOG_FROM:
        axes.set_xscale("log")
    elif values[0] > 0 and all(second == 2 * first for first, second in pairwise(values)):
        axes.set_xscale("log", base=2)
    axes.xaxis.set_minor_locator(NullLocator())
    if len(values) <= FEW_TICKS:
        axes.set_xticks(values, [f"{value:g}" for value in values])


def _coupled(arms: pd.DataFrame, names: list[str]) -> list[list[str]]:
    """Group the columns whose values determine each other."""
    groups: list[list[str]] = []
    for name in names:
        for group in groups:
            pairs = arms[[group[0], name]].drop_duplicates()
            if pairs[group[0]].is_unique and pairs[name].is_unique:
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def _lines(arms: pd.DataFrame, others: list[str], values: pd.Series) -> list[Line]:
    known = arms[values.notna()].assign(value=values)
    lines = [
        _line(rows, joined=True)
        for _, rows in known.groupby([*_OWN, *others], sort=False)
        if rows["value"].nunique() > 1
    ]
    if lines:
        return lines
    return [
        _line(rows, joined=False)
        for _, rows in known.groupby(_OWN, sort=False)
        if len(rows) >= TRIALS and rows["value"].is_unique
    ]


def _line(rows: pd.DataFrame, joined: bool) -> Line:
    rows = rows.sort_values("value", kind="stable")
    first = rows.iloc[0]
    words = [arm.split(" ") for arm in rows["arm"]]
    shared = [word for word in words[0] if all(word in other for other in words)]
    region = str(first["region"]).lower() not in ("", "none", "unconstrained")
    name = " ".join(shared) or str(first["objective"])
    points = tuple(zip(rows["value"].astype("float64"), rows["task"], rows["arm"], strict=True))
    return Line(str(first["base"]), name, region, points, joined)
