"""The arms pooled over tasks: interquartile mean, probability of improvement, performance profiles."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

import numpy as np
import pandas as pd

from harness.reports.coverage import coverage_note
from harness.reports.formats import Table, columns, number
from harness.reports.notes import MDD
from harness.reports.resampling import improvement, middle_mean, performance_profile, stratified_bootstrap
from harness.reports.scores import completion, ending_notes, outcomes, pairs, troubles
from harness.reports.statistics import minimum_detectable_difference
from harness.reports.study import Study
from harness.reports.values import Floats

PROFILE_POINTS = 101
"""Scores from 0 to 1 at which a profile is read."""
_SHOWN_EVERY = 10


def aggregate_table(study: Study, baseline: str | None = None) -> Table:
    """Pool each arm over the tasks: interquartile mean of final scores, and probability of improvement.

    Intervals are 95% percentile intervals of a bootstrap that resamples runs within each task (and arm); its
    Generator has a fixed seed for each arm, so that another arm changes no number.
    """
    baseline = study.baseline(baseline)
    table = outcomes(study)
    reference = _strata(table, study, baseline)
    numbers, rows = [], []
    for arm in study.arms:
        own = _strata(table, study, arm)
        cells = table[table["arm"] == arm]
        row = _pooled(own, reference if arm != baseline else {})
        reach = math.nan if arm == baseline else _pooled_reach(table, study, arm, baseline)
        numbers.append({"arm": arm, "baseline": baseline, "completed": sum(map(len, own.values())), **row})
        numbers[-1] |= {"minimum_detectable_difference": reach, "total": len(cells), "num_tasks": len(own)}
        texts = [_with_ends(row, "iqm"), _with_ends(row, "improvement"), number(reach)]
        texts = [texts[0], "baseline", "-"] if arm == baseline else texts
        rows.append([arm, f"{completion(cells, 'cells')}, {len(own)} tasks", *texts, _failures(cells)])
    notes = [
        "IQM: mean of the middle half of the final test scores of all tasks and seeds. P(better): chance that a run of "
        f"the arm beats one of {baseline} on the same task, ties counting half, averaged over tasks.",
        f"{coverage_note()} With one seed it does not exist. Unfinished cells are left out and listed, not scored 0.",
        f"{MDD} Here of the mean over tasks, its spread over seeds.",
        *ending_notes(study),
    ]
    header = ["arm", "completed", "IQM [95%]", f"P(better than {baseline}) [95%]", f"MDD to {baseline}", "failures"]
    parts = columns(header, header[:-1], [header[0], header[-1]])
    return Table("aggregate", "Arms pooled over tasks", header, rows, notes, numbers, parts)


def profile_frame(study: Study) -> pd.DataFrame:
    """Compute every arm's performance profile: the share of its runs above each score, averaged over tasks.

    Returns:
        One row an arm and threshold: ``arm``, ``threshold`` (``PROFILE_POINTS`` scores from 0 to 1), ``share``, and
        ``low`` and ``high``, its 95% percentile interval by stratified bootstrap (NaN with one seed). An arm without
        a score has no rows.
    """
    table = outcomes(study)
    thresholds = np.linspace(0.0, 1.0, PROFILE_POINTS)
    frames = []
    for arm in study.arms:
        strata = list(_strata(table, study, arm).values())
        if not strata:
            continue
        ends = stratified_bootstrap(strata, lambda s: performance_profile(s, thresholds), np.random.default_rng(0))
        columns = {"share": performance_profile(strata, thresholds), "low": ends[0], "high": ends[1]}
        frames.append(pd.DataFrame({"arm": arm, "threshold": thresholds, **columns}))
    columns = ["arm", "threshold", "share", "low", "high"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def profile_table(study: Study) -> Table:
    """Lay the performance profiles out at every tenth; the CSV file has all thresholds and the intervals."""
    frame, table = profile_frame(study), outcomes(study)
    shown = frame.iloc[::_SHOWN_EVERY] if frame.empty else frame[frame.index % PROFILE_POINTS % _SHOWN_EVERY == 0]
    limits = list(dict.fromkeys(shown["threshold"]))[1:-1]
    rows = []
    for arm in study.arms:
        cells = table[table["arm"] == arm]
        shares = shown[shown["arm"] == arm].set_index("threshold")["share"]
        texts = [number(float(shares.get(limit, math.nan)), 2) for limit in limits]
        rows.append([arm, completion(cells, "cells"), *texts, _failures(cells)])
    notes = [
        "Share of runs whose final test score is above the threshold, averaged over tasks (Agarwal et al. 2021, "
        "arXiv:2108.13264). The CSV file has it at every hundredth, with intervals.",
        coverage_note(),
        *ending_notes(study),
    ]
    header = ["arm", "completed", *(f"> {number(limit, 1)}" for limit in limits), "failures"]
    parts = columns(header, header[:-1], [header[0], header[-1]])
    return Table("profiles", "Performance profiles of the arms", header, rows, notes, frame.to_dict("records"), parts)


def _failures(cells: pd.DataFrame) -> str:
    return "; ".join(f"{trouble.status}: {trouble.text()}" for trouble in troubles(cells)) or "none"


def _strata(table: pd.DataFrame, study: Study, arm: str) -> dict[str, Floats]:
    rows = table[(table["arm"] == arm) & table["score"].notna()]
    found = {task: rows.loc[rows["task"] == task, "score"].to_numpy("float64") for task in study.tasks}
    return {task: scores for task, scores in found.items() if scores.size}


def _pooled_reach(table: pd.DataFrame, study: Study, arm: str, baseline: str) -> float:
    """Return the detectable difference of the mean over tasks; seeds that lack a task on either side are left out."""
    gaps = []
    for task in study.tasks:
        rows = table[table["task"] == task].drop_duplicates("run").sort_values(["policy", "seed"])
        first, second = pairs(table, "score", task, arm, baseline)
        gaps.append(pd.Series(first - second, index=rows["run"]))
    means = pd.concat(gaps, axis=1, join="inner").dropna().mean(axis=1)
    sd = float(means.std(ddof=1)) if len(means) > 1 else math.nan
    return minimum_detectable_difference(sd, len(means))


def _pooled(own: dict[str, Floats], reference: dict[str, Floats]) -> dict[str, float]:
    def pooled(strata: list[Floats]) -> Floats:
        return middle_mean(np.concatenate(strata, axis=-1))

    def better(strata: list[Floats]) -> Floats:
        half = len(strata) // 2
        return improvement(strata[:half], strata[half:])

    scores = list(own.values())
    shared = [task for task in own if task in reference]
    both = [own[task] for task in shared] + [reference[task] for task in shared]
    found = {}
    for name, strata, statistic in (("iqm", scores, pooled), ("improvement", both, better)):
        low, high = stratified_bootstrap(strata, statistic, np.random.default_rng(0))
        value = float(statistic(strata)) if strata else math.nan
        found |= {name: value, f"{name}_low": float(low), f"{name}_high": float(high)}
    return found


def _with_ends(row: dict[str, float], name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if math.isnan(value):
        return "n/a"
    return f"{number(value)} " + (f"[{number(low)}, {number(high)}]" if not math.isnan(low) else "n/a (1 seed)")
