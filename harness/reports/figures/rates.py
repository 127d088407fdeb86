"""pass@k and maj@k of the final policies against k."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
import re

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from harness.reports.figures.absent import NoData
from harness.reports.figures.lines import BAND_FROM, draw_panels, runs_by_arm
from harness.reports.figures.panels import (
    CROWDED,
    are_many,
    arm_rows,
    family_panels,
    label_axes,
    seeds_caption,
    trouble_caption,
)
from harness.reports.figures.rows import draw_maps
from harness.reports.figures.style import arm_handles, compose
from harness.reports.study import Study

TWO = 2


def pass_at_k(study: Study, baseline: str) -> Figure:
    """Draw pass@k of the final policies on the test split against k."""
    return _rates(study, "pass", "some of k responses right (unbiased estimate)")


def majority_at_k(study: Study, baseline: str) -> Figure:
    """Draw maj@k of the final policies on the test split against k."""
    return _rates(study, "maj", "a vote of k responses right, mean over all subsets of k")


def _rates(study: Study, kind: str, meaning: str) -> Figure:
    rows = study.evals[(study.evals["split"] == "test") & (study.evals["fraction"] == 1)]
    found = {int(k[1]): str(name) for name in rows.columns if (k := re.fullmatch(rf"{kind}_at_(\d+)", str(name)))}
    ks = sorted(k for k, name in found.items() if rows[name].notna().any())
    if len(ks) < TWO:
        raise NoData(
            f"evals.csv has {kind}@k of {'one k' if ks else 'no k'}: set eval.samples and eval.pass_k, as samples = 8 "
            "and pass_k = [1, 2, 4, 8]"
        )
    parts = [rows[["cell"]].assign(step=float(k), x=float(k), y=rows[found[k]]) for k in ks]
    points = pd.concat(parts).dropna(subset="y")
    runs = runs_by_arm(study, points)
    note = f"{kind}@k: share of test prompts with {meaning}. {seeds_caption(study)}"
    if are_many(study):
        figure, panels = arm_rows(study)
        maps = {
            panel.task: np.array([[_mean(runs[panel.task, arm], k) for k in ks] for arm in panel.arms])
            for panel in panels
        }
        draw_maps(study, figure, panels, maps, (-0.5, len(ks) - 0.5), f"{kind}@k", log=False)
        for panel in panels:
            panel.axes.set_xticks(range(len(ks)), list(map(str, ks)))
        label_axes(panels, "k", "")
        compose(figure, [], [f"Colour: mean over completed seeds. {note}", *trouble_caption(study)])
        return figure
    figure, panels = family_panels(study)
    band = "interval" if len(study.arms) <= CROWDED else "range"
    draw_panels(study, panels, runs, f"{kind}@k", band)
    for panel in panels:
        panel.axes.set_xscale("log")
        panel.axes.xaxis.set_minor_locator(NullLocator())
        panel.axes.set_xticks(ks, list(map(str, ks)))
    label_axes(panels, "k", f"{kind}@k")
    shown = f"95% t interval over seeds (from {BAND_FROM} seeds)" if band == "interval" else "range over seeds"
    compose(figure, arm_handles(study), [f"Line: mean over seeds; band: {shown}. {note}", *trouble_caption(study)])
    return figure


def _mean(found: pd.DataFrame, k: int) -> float:
    values = found.loc[found["done"] & (found["step"] == k), "y"].to_numpy("float64")
    return float(values.mean()) if values.size else math.nan
