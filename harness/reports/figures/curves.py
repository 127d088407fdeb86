"""Curves over training: validation score against the budget; KL, entropy and length against updates."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from harness.reports.comparison import AXIS_WORDS
from harness.reports.figures.lines import BAND_FROM, Band, draw_bounds, draw_panels, runs_by_arm
from harness.reports.figures.panels import (
    CROWDED,
    MANY,
    Panel,
    family_panels,
    label_axes,
    legend_lines,
    seeds_caption,
    task_panels,
    trouble_caption,
)
from harness.reports.figures.style import compose
from harness.reports.scores import curve, score_name
from harness.reports.study import Study

PER_SEQUENCE, PER_TOKEN = "kl_old_per_sequence_nats", "kl_old_per_token_nats"
NUM_TICKS = 5
SLACK = 0.1
"""Decades by which a curve's margin may pass a power of ten without widening the axis."""
THOUSAND = 3
SCALED_FROM = 6
"""Decades from which amounts on an axis are written in powers of ten."""


def learning_curves(study: Study, baseline: str) -> Figure:
    """Draw the validation score against the budget spent, all arms of a task in one panel."""
    figure, panels = task_panels(study, row_height=2.6)
    return _learning(study, figure, panels)


def learning_curves_by_objective(study: Study, baseline: str) -> Figure:
    """Draw the validation score against the budget, one panel a task and objective when arms are many."""
    figure, panels = family_panels(study)
    return _learning(study, figure, panels)


def kl_old(study: Study, baseline: str) -> Figure:
    """Draw KL(old || new) per response against updates, each trust region's bound as a labelled line.

    A bound per token has another unit: it is drawn in ``kl_old_per_token`` and named in the caption here.
    """
    bounds = study.cells[study.cells["delta"].notna()]
    per_token = bounds.loc[bounds["delta_unit"] == "per_token", ["arm", "delta"]].drop_duplicates()
    notes = ["KL(old || new) after the last update of each rollout, k3 estimate, summed over a response."]
    notes += [f"{row.arm}: bound {row.delta:g} nats per token, not on this axis." for row in per_token.itertuples()]
    return _dynamics(study, PER_SEQUENCE, "KL(old || new)\n(nats per response)", notes, log=True, bounds="per_sequence")


def kl_old_per_token(study: Study, baseline: str) -> Figure:
    """Draw KL(old || new) per token against updates, with the bounds that are per token."""
    notes = ["KL(old || new) after the last update of each rollout, k3 estimate, mean over tokens."]
    return _dynamics(study, PER_TOKEN, "KL(old || new)\n(nats per token)", notes, log=True, bounds="per_token")


def entropy(study: Study, baseline: str) -> Figure:
    """Draw the policy's entropy per token against updates."""
    return _dynamics(study, "entropy_nats", "entropy\n(nats per token)", [])


def response_length(study: Study, baseline: str) -> Figure:
    """Draw the mean response length against updates."""
    return _dynamics(study, "response_tokens_mean", "response length\n(tokens)", [])


def _learning(study: Study, figure: Figure, panels: list[Panel]) -> Figure:
    scale, unit, label = _budget_axis(study)

    def points(cell: str) -> pd.DataFrame:
        line = curve(study.evals, cell)
        return pd.DataFrame({"step": line["fraction"], "x": line["fraction"] * scale / unit, "y": line["score"]})

    lines = runs_by_arm(study, points)
    most = max(len(panel.arms) for panel in panels)
    band: Band = "interval" if most <= CROWDED else "ends" if most <= MANY else "none"
    few, crossed = draw_panels(study, panels, lines, "validation score", band, marker=True)
    for panel in panels:
        panel.axes.set_xlim(left=0)
        panel.axes.set_xticks(np.linspace(0, scale / unit, NUM_TICKS))
        panel.axes.xaxis.set_major_formatter("{x:g}")
    label_axes(panels, label, f"validation score\n({score_name(study)})")
    text = "Line: mean over seeds; for intervals see final_scores"
    if band != "none":
        where = "bars at the right end" if band == "ends" else "band"
        text = f"Line: mean over seeds; {where}: 95% t interval over seeds (from {BAND_FROM} seeds)"
    if few and band == "interval":
        text += "; thin lines: single seeds where there are fewer"
    text += "; x: a run that did not complete" if crossed else ""
    caption = [f"{text}. {seeds_caption(study)} Budget 0 is the warm start.", *trouble_caption(study)]
    compose(figure, legend_lines(study, panels, with_marker=True), caption)
    return figure


def _budget_axis(study: Study) -> tuple[float, float, str]:
    """Return the budget at fraction 1, the unit it is written in and the axis label."""
    used = study.cells[["budget_axis", "budget_amount"]].drop_duplicates()
    if len(used) > 1 or used["budget_amount"].isna().any():
        return 1.0, 1.0, "fraction of the budget"
    scale, word = float(used["budget_amount"].iloc[0]), AXIS_WORDS[str(used["budget_axis"].iloc[0])]
    exponent = math.floor(math.log10(scale)) if scale > 0 else 0
    exponent = exponent // THOUSAND * THOUSAND if exponent >= SCALED_FROM else 0
    return scale, 10.0**exponent, f"{word} ($10^{{{exponent}}}$)" if exponent else word


def _dynamics(
    study: Study, column: str, label: str, notes: Sequence[str], log: bool = False, bounds: str | None = None
) -> Figure:
    figure, panels = family_panels(study)

    def points(cell: str) -> pd.DataFrame:
        rows = study.metrics[study.metrics["cell"] == cell].dropna(subset=[column, "updates"])
        whole = rows["kl_old_per_sequence_nats"].notna()  # an iteration that the budget cut short has none
        rows = rows[whole] if whole.any() else rows
        return pd.DataFrame({"step": rows["iteration"], "x": rows["updates"], "y": rows[column]})

    _, crossed = draw_panels(study, panels, runs_by_arm(study, points), column, "range", marker=False)
    for panel in panels:
        if log and any((np.asarray(line.get_ydata(), "float64") > 0).any() for line in panel.axes.get_lines()):
            panel.axes.set_yscale("log", nonpositive="mask")
            _whole_decades(panel.axes)
    drawn = draw_bounds(study, panels, bounds) if bounds else False
    label_axes(panels, "optimizer steps", label)
    text = "Line: mean over seeds; band: their range" + ("; x: a run that did not complete." if crossed else ".")
    caption = [f"{text} {seeds_caption(study)}", *notes]
    caption += ["Horizontal dashes: the trust region's bound delta."] if drawn else []
    compose(figure, legend_lines(study, panels), [*caption, *trouble_caption(study)])
    return figure


def _whole_decades(axes: Axes) -> None:
    """Widen a log axis to whole decades, so that it has labelled ticks, and label no others."""
    reach = [*axes.get_ylim(), axes.dataLim.minposy, axes.dataLim.y1]
    exponents = [math.log10(value) for value in reach if value > 0 and math.isfinite(value)]
    low, high = math.floor(min(exponents) + SLACK), math.ceil(max(exponents) - SLACK)
    axes.set_ylim(10.0 ** min(low, high - 1), 10.0**high)
    axes.yaxis.set_minor_formatter(NullFormatter())
