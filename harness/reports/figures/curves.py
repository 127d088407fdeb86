"""Validation score against what training has cost: on the budget's own axis and on every other one."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.reports.comparison import AXIS_WORDS
from harness.reports.figures.absent import NoData
from harness.reports.figures.lines import BAND_FROM, Band, draw_panels, runs_by_arm
from harness.reports.figures.panels import (
    CROWDED,
    MANY,
    Panel,
    are_many,
    family_panels,
    label_axes,
    seeds_caption,
    task_panels,
    trouble_caption,
)
from harness.reports.figures.rows import draw_rows
from harness.reports.figures.style import arm_handles, compose
from harness.reports.scores import score_name
from harness.reports.study import Study

NUM_TICKS = 5
THOUSAND = 3
SCALED_FROM = 6
"""Decades from which amounts on an axis are written in powers of ten."""
COLUMNS_OF = {"flops": "spent_flops", "tokens": "generated_tokens", "updates": "updates"}
"""Budget axis -> column of evals.csv."""
SCORE_HEIGHT = 2.6


def learning_curves(study: Study, baseline: str) -> Figure:
    """Draw the validation score against the budget spent, all arms of a task in one panel."""
    scale, unit, label = _budget_axis(study)
    points = validation_points(study).assign(x=lambda rows: rows["step"] * scale / unit)
    if are_many(study):
        return _as_rows(study, points, label)
    figure, panels = task_panels(study, SCORE_HEIGHT)
    return _learning(study, figure, panels, points, label, scale / unit)


def learning_curves_by_objective(study: Study, baseline: str) -> Figure:
    """Draw the validation score against the budget, one panel a task and objective."""
    if len(study.arms) <= CROWDED or are_many(study):
        raise NoData(f"learning_curves shows the same: {len(study.arms)} arms need no panel each, or are too many")
    scale, unit, label = _budget_axis(study)
    figure, panels = family_panels(study)
    points = validation_points(study).assign(x=lambda rows: rows["step"] * scale / unit)
    return _learning(study, figure, panels, points, label, scale / unit)


def learning_curves_flops(study: Study, baseline: str) -> Figure:
    """Draw the validation score against useful training FLOPs, where the budget is on another axis."""
    return _on_axis(study, "flops")


def learning_curves_tokens(study: Study, baseline: str) -> Figure:
    """Draw the validation score against generated tokens, where the budget is on another axis."""
    return _on_axis(study, "tokens")


def learning_curves_updates(study: Study, baseline: str) -> Figure:
    """Draw the validation score against optimizer steps, where the budget is on another axis."""
    return _on_axis(study, "updates")


def validation_points(study: Study) -> pd.DataFrame:
    """Return all validation scores, columns cell, step (fraction of the budget), y and the amounts of evals.csv."""
    rows = study.evals[(study.evals["split"] == "validation") & study.evals["score"].notna()]
    if rows.empty:
        raise NoData("no cell has a validation score")
    rows = rows.sort_values(["cell", "fraction"], kind="stable")
    return rows[["cell", *COLUMNS_OF.values()]].assign(step=rows["fraction"], y=rows["score"])


def scaled(amounts: pd.Series, word: str) -> tuple[float, str]:
    """Return the unit that large amounts are written in, and the label of their axis."""
    most = float(amounts.max())
    exponent = math.floor(math.log10(most)) if most > 0 else 0
    exponent = exponent // THOUSAND * THOUSAND if exponent >= SCALED_FROM else 0
    return 10.0**exponent, f"{word} ($10^{{{exponent}}}$)" if exponent else word


def _on_axis(study: Study, axis: str) -> Figure:
    if set(study.cells["budget_axis"]) == {axis}:
        raise NoData(f"the budget of every cell is in {AXIS_WORDS[axis]}: learning_curves shows it")
    points = validation_points(study).dropna(subset=COLUMNS_OF[axis])
    if points.empty:
        raise NoData(f"evals.csv has no {COLUMNS_OF[axis]}")
    unit, label = scaled(points[COLUMNS_OF[axis]], AXIS_WORDS[axis])
    points["x"] = points[COLUMNS_OF[axis]] / unit
    if are_many(study):
        return _as_rows(study, points, label)
    figure, panels = task_panels(study, SCORE_HEIGHT)
    where = "; both are means over seeds of the evaluations at one share of the budget"
    return _learning(study, figure, panels, points, label, None, where)


def _as_rows(study: Study, points: pd.DataFrame, label: str) -> Figure:
    figure = draw_rows(study, runs_by_arm(study, points), label, f"validation score ({score_name(study)})")
    caption = f"Colour: mean over completed seeds at the nearest evaluation; white: not reached. {seeds_caption(study)}"
    compose(figure, [], [caption, *trouble_caption(study)])
    return figure


def _learning(
    study: Study,
    figure: Figure,
    panels: list[Panel],
    points: pd.DataFrame,
    label: str,
    end: float | None,
    where: str = "",
) -> Figure:
    most = max(len(panel.arms) for panel in panels)
    band: Band = "interval" if most <= CROWDED else "ends" if most <= MANY else "none"
    few, crossed = draw_panels(study, panels, runs_by_arm(study, points), "validation score", band)
    for panel in panels:
        panel.axes.set_xlim(left=0)
        if end is not None:
            panel.axes.set_xticks(np.linspace(0, end, NUM_TICKS))
            panel.axes.xaxis.set_major_formatter("{x:g}")
    label_axes(panels, label, f"validation score\n({score_name(study)})")
    text = f"Line: mean over seeds{where}; for intervals see final_scores"
    if band != "none":
        place = "bars at the right end" if band == "ends" else "band"
        text = f"Line: mean over seeds{where}; {place}: 95% t interval over seeds (from {BAND_FROM} seeds)"
    if few and band == "interval":
        text += "; thin lines: single seeds where there are fewer"
    text += "; x: a run that did not complete" if crossed else ""
    caption = [f"{text}. {seeds_caption(study)} 0 is the warm start.", *trouble_caption(study)]
    compose(figure, arm_handles(study), caption)
    return figure


def _budget_axis(study: Study) -> tuple[float, float, str]:
    """Return the budget at fraction 1, the unit it is written in and the axis label."""
    used = study.cells[["budget_axis", "budget_amount"]].drop_duplicates()
    if len(used) > 1 or used["budget_amount"].isna().any():
        return 1.0, 1.0, "fraction of the budget"
    unit, label = scaled(used["budget_amount"], AXIS_WORDS[str(used["budget_axis"].iloc[0])])
    return float(used["budget_amount"].iloc[0]), unit, label
