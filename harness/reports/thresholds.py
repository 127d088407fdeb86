"""How much compute an arm needs to reach a score: misses are infinite, never left out."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.reports.formats import Table, amount, columns, number
from harness.reports.pass_at_k import rate
from harness.reports.ranking import AXES
from harness.reports.scores import by_arm, ending_notes, states
from harness.reports.statistics import minimum_detectable_difference, paired_difference
from harness.reports.study import Study
from harness.reports.trajectories import STARTED, Line, first_reached, lines, median_with_misses

LEVELS = (0.5, 0.75, 1.0)
"""Shares of the baseline's mean gain."""
PAIRED_AXIS = "spent_flops"


def threshold_frame(
    study: Study, baseline: str | None = None, scores: Mapping[str, Sequence[float]] | None = None
) -> pd.DataFrame:
    """Compute what each arm needs to reach each threshold of its task, on every axis.

    Args:
        study: the records.
        baseline: sets the thresholds (``LEVELS`` of its mean gain on validation) and is what others are paired with.
        scores: for each task its thresholds, in place of these.

    Returns:
        One row a task, threshold and arm: ``level`` (NaN where ``scores`` is given), ``threshold``; ``num`` runs,
        ``reached`` (their share that reached it, with ``reached_low`` and ``reached_high``, a 95% Wilson interval);
        for each of ``AXES`` the median amount at the first evaluation that did (infinite where half or more missed;
        NaN without runs, or where the amount is not recorded); ``ratio``, the geometric mean over pairs of the
        baseline's over the arm's useful FLOPs, with its 95% t interval and ``detectable_ratio`` (power 0.8): NaN
        unless both sides of every pair reached it.
    """
    baseline = study.baseline(baseline)
    found = lines(study.evals)
    rows = []
    for task in study.tasks:
        runs = {arm: _runs(by_arm(study)[task, arm], found) for arm in study.arms}
        levels = _levels(list(runs[baseline].values()))
        if scores is not None:
            levels = [(math.nan, float(score)) for score in scores.get(task, ())]
        for level, threshold in levels:
            needed = {arm: _needed(runs[arm], threshold) for arm in study.arms}
            for arm in study.arms:
                row = {"task": task, "level": level, "threshold": threshold, "arm": arm, "baseline": baseline}
                rows.append(row | _summary(needed[arm]) | _ratio(needed[arm], needed[baseline], arm == baseline))
    return pd.DataFrame(rows, columns=None if rows else ["task", "level", "threshold", "arm"])


def threshold_table(study: Study, baseline: str | None = None) -> Table:
    """Lay the compute to threshold out, one row a task, threshold and arm."""
    baseline = study.baseline(baseline)
    frame, rows = threshold_frame(study, baseline), []
    for row in frame.to_dict("records"):
        completed, failures = states(study)[row["task"], row["arm"]]
        share = "n/a" if not row["num"] else f"{row['hits']:.0f}/{row['num']:.0f} {_ends(row, 'reached', 2)}"
        amounts = [_amount(row[axis]) for axis in AXES]
        names = [str(row["task"]), f"{row['threshold']:.3f} ({row['level']:.0%})", str(row["arm"])]
        rows.append([*names, completed, share, *amounts, *_ratio_text(row), failures])
    lacking = [task for task in study.tasks if frame.empty or task not in set(frame["task"])]
    notes = [
        f"Thresholds are {', '.join(f'{level:.0%}' for level in LEVELS)} of {baseline}'s mean gain on validation. A "
        "run reaches one at its first evaluation that is there, so amounts are as coarse as the evaluations (no "
        "interval has that in it) and favour noisy curves. Amounts are medians over seeds; a miss is infinite, never "
        "left out: not reached says that half the seeds or more did not.",
        f"Reached: runs that did, with a 95% Wilson interval of their share. Speed-up: {baseline}'s useful FLOPs over "
        "the arm's, geometric mean over pairs with a 95% t interval (of logarithms), where both sides of every pair "
        "reached it. MDD: the ratio that a paired t test at 0.05 would find with power 0.8.",
        *([f"No threshold: {baseline} has no gain on validation in {', '.join(lacking)}."] if lacking else []),
        *ending_notes(study),
    ]
    header = ["task", "threshold", "arm", "seeds", "reached [95%]", *AXES.values(), f"speed-up over {baseline} [95% t]"]
    header += ["MDD", "failures"]
    title = "Compute to reach a validation score"
    parts = columns(header, header[:-3], [*header[:3], *header[-3:-1]], [*header[:4], header[-1]])
    return Table("thresholds", title, header, rows, notes, frame.to_dict("records"), parts)


def _runs(rows: pd.DataFrame, found: Mapping[str, Line]) -> dict[str, Line]:
    """Return the curves of the runs that count, by run."""
    counted = rows[rows["score"].notna()]
    return {str(run): found[cell] for run, cell in zip(counted["run"], counted["cell"], strict=True) if cell in found}


def _levels(runs: Sequence[Line]) -> list[tuple[float, float]]:
    ends = [line["score"] for line in runs if line["fraction"][0] == STARTED]
    if not ends:
        return []
    start, end = float(np.mean([line[0] for line in ends])), float(np.mean([line[-1] for line in ends]))
    return [(level, start + level * (end - start)) for level in LEVELS] if end > start else []


def _needed(runs: Mapping[str, Line], threshold: float) -> dict[str, dict[str, float]]:
    """Return for each run the amount on each axis at which it reached the threshold."""
    return {
        run: {axis: first_reached(line[axis], line["score"], threshold) for axis in AXES} for run, line in runs.items()
    }


def _summary(needed: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    amounts = {axis: np.array([row[axis] for row in needed.values()]) for axis in AXES}
    hits = ~np.isinf(amounts[PAIRED_AXIS])
    share = rate(hits.astype(np.float64))
    known = {axis: not np.isnan(values).any() for axis, values in amounts.items()}
    return {
        **{"num": len(needed), "hits": int(hits.sum()), "reached": share.mean},
        **{"reached_low": share.low, "reached_high": share.high},
        **{axis: median_with_misses(values) if known[axis] else math.nan for axis, values in amounts.items()},
    }


def _ratio(
    needed: Mapping[str, Mapping[str, float]], reference: Mapping[str, Mapping[str, float]], same: bool
) -> dict[str, float]:
    names = ("ratio", "ratio_low", "ratio_high", "detectable_ratio")
    shared = [] if same else [run for run in reference if run in needed]
    pairs = np.array([(reference[run][PAIRED_AXIS], needed[run][PAIRED_AXIS]) for run in shared]).reshape(-1, 2)
    if not pairs.size or not (np.isfinite(pairs).all() and (pairs > 0).all()):
        return {"num_pairs": len(pairs), **dict.fromkeys(names, math.nan)}
    logs = np.log(pairs)
    test = paired_difference(logs[:, 0], logs[:, 1])
    reach = minimum_detectable_difference(test.sd, len(pairs))
    values = (test.interval.mean, test.interval.low, test.interval.high, reach)
    return {"num_pairs": len(pairs), **dict(zip(names, (float(np.exp(value)) for value in values), strict=True))}


def _amount(value: float) -> str:
    return "not reached" if math.isinf(value) else amount(value)


def _ratio_text(row: dict) -> tuple[str, str]:
    if row["arm"] == row["baseline"]:
        return "baseline", "-"
    if math.isnan(row["ratio"]):
        return ("n/a (misses)" if row["num_pairs"] else "n/a (0 pairs)"), "n/a"
    if row["num_pairs"] == 1:
        return f"{number(row['ratio'], 2)}x n/a (1 seed)", "n/a (1 seed)"
    return f"{number(row['ratio'], 2)}x {_ends(row, 'ratio', 2)}", f"{number(row['detectable_ratio'], 2)}x"


def _ends(row: dict, name: str, digits: int) -> str:
    return f"[{number(row[f'{name}_low'], digits)}, {number(row[f'{name}_high'], digits)}]"
