"""The sigmoid fits of a study: each arm's validation curve against the budget."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from harness.reports.comparison import budget_text
from harness.reports.coverage import coverage_note
from harness.reports.formats import Table, columns, number, scientific
from harness.reports.scores import by_arm, ending_notes, states
from harness.reports.sigmoid import MIN_POINTS, SigmoidFit, fit_sigmoid
from harness.reports.statistics import carry_forward
from harness.reports.study import Study
from harness.reports.trajectories import ENDED, STARTED, Line, lines
from harness.reports.values import Floats

_PARAMETERS = ("asymptote", "steepness", "midpoint")


@dataclass(frozen=True, eq=False)
class Curves:
    """What a fit is of: the validation scores of an arm's runs on one grid of compute.

    Attributes:
        compute: [p] float, the budget's amount at each evaluation, from 0; empty where there is no common one.
        scores: [s, p] float, one row a run.
        refusal: why there is nothing to fit, or "".
    """

    compute: Floats
    scores: Floats
    refusal: str = ""


@lru_cache(maxsize=8)
def curves(study: Study) -> dict[tuple[str, str], Curves]:
    """Return the curves of every task and arm, whose runs have a score; one that diverged carries its last forward."""
    found, budgets = lines(study.evals), dict(zip(study.cells["cell"], study.cells["budget_amount"], strict=True))
    made = {}
    for (task, arm), outcome in by_arm(study).items():
        cells = [str(cell) for cell in outcome.loc[outcome["score"].notna(), "cell"]]
        kept = [cell for cell in cells if cell in found and float(found[cell]["fraction"][0]) == STARTED]
        made[task, arm] = _curves(found, budgets, kept)
    return made


@lru_cache(maxsize=8)
def fit_frame(study: Study) -> pd.DataFrame:
    """Fit every arm of every task.

    Returns:
        One row a task and arm: ``num_seeds``, ``start`` (R0), and of ``sigmoid.SigmoidFit`` its fields, each
        parameter with its ``_low`` and ``_high``; ``refusal`` says why there is no fit. Compute is the budget's
        amount at each evaluation. Shared between callers: do not change it.
    """
    rows = []
    for task in study.tasks:
        for arm in study.arms:
            found = curves(study)[task, arm]
            fit = _fit(found)
            start = float(found.scores[:, 0].mean()) if len(found.scores) else math.nan
            values = {"task": task, "arm": arm, "num_seeds": len(found.scores), "start": start}
            for name in _PARAMETERS:
                values |= dict(zip((name, f"{name}_low", f"{name}_high"), getattr(fit, name), strict=True))
            rows.append(values | {"num_points": fit.num_points, "error": fit.error, "refusal": fit.refusal})
    return pd.DataFrame(rows)


def fit_table(study: Study) -> Table:
    """Lay the fits out, with the reason where there is none."""
    frame, rows = fit_frame(study), []
    for row in frame.to_dict("records"):
        completed, failures = states(study)[row["task"], row["arm"]]
        texts = [number(row["start"]), str(row["num_points"])]
        texts += [_text(row, "asymptote", number), _text(row, "steepness", lambda value: number(value, 2))]
        texts += [_text(row, "midpoint", scientific), number(row["error"])]
        verdict = f"refused: {row['refusal']}" if row["refusal"] else "fitted"
        rows.append([row["task"], row["arm"], completed, *texts, verdict, failures])
    notes = [
        "score(C) = R0 + (A - R0) / (1 + (C_mid / C)^B), fitted by least squares to the mean validation curve over "
        "seeds (ScaleRL, arXiv:2510.13786); R0 is the mean start and C the budget's amount at an evaluation. A is "
        f"extrapolated: a fit needs {MIN_POINTS} evaluations beyond the lower knee (where the curve bends up most) "
        "and its midpoint among them, and is refused otherwise.",
        "[ ]: 95%, seeds resampled; n/a with fewer than three, or where resamples often have no fit. "
        f"{coverage_note()}",
        *ending_notes(study),
    ]
    header = ["task", "arm", "seeds", "R0", "points beyond knee", "A [95%]", "B [95%]", "C_mid [95%]", "RMS residual"]
    header += ["fit", "failures"]
    title = f"Sigmoid fits of the score to compute (budget: {budget_text(study)})"
    parts = columns(header, header[:-2], [*header[:2], *header[-2:]])
    return Table("fits", title, header, rows, notes, frame.to_dict("records"), parts)


def _curves(found: Mapping[str, Line], budgets: Mapping[str, float], cells: list[str]) -> Curves:
    if not cells:
        return Curves(np.zeros(0), np.zeros((0, 0)), "no run with a validation curve")
    amounts = {float(budgets[cell]) for cell in cells}
    grid = np.unique(np.concatenate([[ENDED], *(found[cell]["fraction"] for cell in cells)]))
    scores = np.array([carry_forward(found[cell]["fraction"], found[cell]["score"], grid) for cell in cells])
    if len(amounts) > 1:
        return Curves(np.zeros(0), scores, "runs have several budgets")
    return Curves(grid * amounts.pop(), scores)


def _fit(found: Curves) -> SigmoidFit:
    if found.refusal:
        nothing = (math.nan, math.nan, math.nan)
        return SigmoidFit(nothing, nothing, nothing, 0, math.nan, found.refusal)
    return fit_sigmoid(found.compute, found.scores, np.random.default_rng(0))


def _text(row: dict, name: str, write) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if math.isnan(value):
        return "-"
    return f"{write(value)} [{write(low)}, {write(high)}]" if not math.isnan(low) else f"{write(value)} [n/a]"
