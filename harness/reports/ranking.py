"""Rank the arms under every compute axis, and say where the ranking changes with the axis."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from harness.reports.comparison import compare
from harness.reports.formats import Table, amount, columns, number
from harness.reports.notes import MDD
from harness.reports.scores import COMPLETED, ending_notes, outcomes, states
from harness.reports.statistics import carry_forward
from harness.reports.study import Study
from harness.reports.trajectories import Line, lines

AS_RUN = "as run"
AXES = {"spent_flops": "useful FLOPs", "generated_tokens": "generated tokens", "updates": "updates"}
TEST = "test, as run"
DECIMALS = 12
"""Means that agree to this many decimals share a rank."""


def rank_frame(study: Study) -> pd.DataFrame:
    """Score and rank the arms of each task at equal amounts of every axis.

    Returns:
        One row a task, arm and axis: ``amount`` (the smallest total over the task's completed cells; NaN for "as
        run"), ``score`` (mean over completed cells of the validation curve carried forward from the last evaluation
        at or before that amount; the test score for "test, as run"), ``rank`` (1 is best, ties share the better
        rank; NaN without a completed cell), ``lag`` (the largest share of the amount by which a score is older).
        A run that diverged counts with its last finite score; a seed that is dropped does not count.
    """
    table, found = outcomes(study), lines(study.evals)
    rows = []
    for task in study.tasks:
        done = table[(table["task"] == task) & table["score"].notna()]
        cells = {arm: list(done.loc[done["arm"] == arm, "cell"]) for arm in study.arms}
        whole = set(done.loc[done["status"] == COMPLETED, "cell"])
        curves = {cell: found[cell] for cell in done["cell"] if cell in found}
        scores = {TEST: dict(zip(done["cell"], done["score"], strict=True))}
        scores[AS_RUN] = {cell: float(line["score"][-1]) for cell, line in curves.items()}
        amounts, lags = dict.fromkeys(scores, math.nan), dict.fromkeys((*scores, *AXES), 0.0)
        for axis in AXES:
            usable = {cell: line for cell, line in curves.items() if not np.isnan(line[axis]).any()}
            totals = [float(line[axis].max()) for cell, line in usable.items() if cell in whole]
            amounts[axis] = min(totals, default=math.nan)
            scores[axis] = {cell: _score_at(line, axis, amounts[axis]) for cell, line in usable.items()}
            aged = [_lag(line, axis, amounts[axis]) for cell, line in usable.items() if cell in whole]
            lags[axis] = max(aged, default=0.0)
        for axis, by_cell in scores.items():
            means = [_mean([by_cell.get(cell, math.nan) for cell in cells[arm]]) for arm in study.arms]
            ranks = pd.Series(means).round(DECIMALS).rank(ascending=False, method="min")
            for arm, mean, rank in zip(study.arms, means, ranks, strict=True):
                rows.append({"task": task, "arm": arm, "axis": axis, "amount": amounts[axis], "score": mean})
                rows[-1] |= {"rank": float(rank), "lag": lags[axis]}
    return pd.DataFrame(rows)


def rank_changes(frame: pd.DataFrame, task: str) -> dict[str, list[str]]:
    """Return, for each axis whose order differs from the one as run, its changes as "grpo 1 -> 2".

    All orders compared are of validation scores, so that a change comes from the axis and not from the split.
    """
    ranks = frame[frame["task"] == task].pivot(index="arm", columns="axis", values="rank")
    ranks = ranks.loc[list(dict.fromkeys(frame["arm"]))].dropna(subset=[AS_RUN])
    changes = {}
    for axis in AXES:
        moved = ranks[ranks[axis].notna() & (ranks[axis] != ranks[AS_RUN])]
        if len(moved):
            changes[axis] = [f"{arm} {row[AS_RUN]:.0f} -> {row[axis]:.0f}" for arm, row in moved.iterrows()]
    return changes


def rank_table(study: Study, baseline: str | None = None) -> Table:
    """Lay the rankings out: one row a task and arm, one column an axis, "score (rank)"."""
    baseline = study.baseline(baseline)
    frame = rank_frame(study)
    compared = compare(study, baseline).to_dict("records")
    reach = {(row["task"], row["arm"]): float(row["minimum_detectable_difference"]) for row in compared}
    order = [AS_RUN, *AXES, TEST]
    found = {(row["task"], row["arm"], row["axis"]): row for row in frame.to_dict("records")}
    header = ["task", "arm", "seeds", "validation, as run", *(f"equal {word}" for word in AXES.values()), TEST]
    rows, notes = [], [_NOTE, MDD, *ending_notes(study)]
    for task in study.tasks:
        for arm in study.arms:
            here = [found[task, arm, axis] for axis in order]
            entries = [_entry(float(row["score"]), float(row["rank"])) for row in here]
            entries.append("baseline" if arm == baseline else number(reach[task, arm]))
            rows.append([task, arm, states(study)[task, arm][0], *entries, states(study)[task, arm][1]])
        notes += _task_notes(frame, task)
    numbers = [row | {"minimum_detectable_difference": reach[key[0], key[1]]} for key, row in found.items()]
    header += [f"MDD to {baseline}", "failures"]
    parts = columns(header, [*header[:2], *header[3:-1]], [*header[:3], header[-1]])
    return Table("ranks", "Ranking of the arms under each compute axis", header, rows, notes, numbers, parts)


_NOTE = (
    "Entries are mean score (rank). Equal amounts: every completed cell's validation curve is read at the smallest "
    "total of the task, carrying its last evaluation forward. Ranks order means only: two arms whose test scores "
    "differ by less than the MDD are not told apart, and the comparison has the intervals. An arm with unfinished "
    "cells is ranked on the others."
)


def _task_notes(frame: pd.DataFrame, task: str) -> list[str]:
    here = frame[frame["task"] == task].drop_duplicates("axis").set_index("axis")["amount"]
    lags = frame[frame["task"] == task].drop_duplicates("axis").set_index("axis")["lag"]
    amounts = ", ".join(
        f"{amount(float(here[axis]))} {word} (evaluations up to {float(lags[axis]):.0%} older)"
        for axis, word in AXES.items()
    )
    changes = rank_changes(frame, task)
    unread = [word for axis, word in AXES.items() if math.isnan(here[axis])]
    texts = [f"at equal {AXES[axis]}: {', '.join(moved)}" for axis, moved in changes.items()]
    verdict = (
        f"the ranking CHANGES with the axis, {'; '.join(texts)}" if texts else "the ranking is the same on every axis"
    )
    if unread:
        verdict += f"; not recorded: {', '.join(unread)}"
    return [f"{task}: read at {amounts}.", f"{task}: {verdict}."]


def _score_at(line: Line, axis: str, where: float) -> float:
    return float(carry_forward(line[axis], line["score"], [where])[0])


def _lag(line: Line, axis: str, where: float) -> float:
    used = float(line[axis][line[axis] <= where].max())
    return (where - used) / where if where > 0 else 0.0


def _mean(values: Sequence[float]) -> float:
    kept = [value for value in values if not math.isnan(value)]
    return float(np.mean(kept)) if kept else math.nan


def _entry(score: float, rank: float) -> str:
    return "n/a" if math.isnan(rank) else f"{number(score)} ({rank:.0f})"
