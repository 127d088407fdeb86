"""All tables of a study: comparison, ranks, aggregate over tasks, and wall-clock timing apart from them."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

import numpy as np
import pandas as pd

from harness.reports.comparison import comparison_table
from harness.reports.formats import Table, number
from harness.reports.ranking import rank_table
from harness.reports.resampling import interquartile_mean, probability_of_improvement, stratified_bootstrap
from harness.reports.scores import completion, outcomes, troubles
from harness.reports.study import Study
from harness.reports.values import Floats

NOT_REPRODUCIBLE = "wall-clock, not reproducible"
_SECONDS = ("seconds", "train_seconds", "eval_seconds")
_GIBIBYTE = 2**30


def all_tables(study: Study, baseline: str | None = None) -> list[Table]:
    """Return every table; all but "timing" come out byte-equal for byte-equal records."""
    baseline = study.baseline(baseline)
    return [comparison_table(study, baseline), rank_table(study), aggregate_table(study, baseline), timing_table(study)]


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
        row = _pooled(own, reference) if arm != baseline else _pooled(own, {})
        numbers.append({"arm": arm, "baseline": baseline, "completed": sum(map(len, own.values())), **row})
        numbers[-1] |= {"total": len(cells), "num_tasks": len(own)}
        found = "; ".join(f"{trouble.status}: {trouble.text()}" for trouble in troubles(cells))
        texts = [_with_ends(row, "iqm"), _with_ends(row, "improvement")]
        texts = [texts[0], "baseline" if arm == baseline else texts[1]]
        rows.append([arm, f"{completion(cells, 'cells')}, {len(own)} tasks", *texts, found or "none"])
    notes = [
        "IQM: mean of the middle half of the final test scores of all tasks and seeds. P(better): chance that a run of "
        f"the arm beats one of {baseline} on the same task, ties counting half, averaged over tasks.",
        "[ ]: 95% stratified bootstrap (runs resampled within a task); with few seeds it is too narrow, and with one "
        "seed it does not exist. Unfinished cells are left out and listed, not scored 0.",
    ]
    header = ["arm", "completed", "IQM [95%]", f"P(better than {baseline}) [95%]", "failures"]
    return Table("aggregate", "Arms pooled over tasks", header, rows, notes, numbers)


def timing_table(study: Study) -> Table:
    """Report seconds and peak memory, the only table that may differ between two runs of one study."""
    merged = outcomes(study).merge(study.timing, on="cell", how="left")
    numbers, rows = [], []
    for task in study.tasks:
        for arm in study.arms:
            here = merged[(merged["task"] == task) & (merged["arm"] == arm)]
            done = here[here["final"].notna()]
            row = {name: float(done[name].mean()) if len(done) else math.nan for name in _SECONDS}
            peak = float(done["peak_memory_bytes"].max()) if len(done) else math.nan
            numbers.append({"task": task, "arm": arm, "completed": len(done), "total": len(here), **row})
            numbers[-1]["peak_memory_bytes"] = peak
            rows.append(
                [task, arm, completion(here), *(number(row[name], 1) for name in _SECONDS), number(peak / _GIBIBYTE, 2)]
            )
    header = ["task", "arm", "completed", "seconds", "training seconds", "evaluation seconds", "peak memory (GiB)"]
    notes = [f"Everything here is {NOT_REPRODUCIBLE}: means over completed cells, the peak is their maximum."]
    return Table("timing", f"Time and memory ({NOT_REPRODUCIBLE})", header, rows, notes, numbers)


def _strata(table: pd.DataFrame, study: Study, arm: str) -> dict[str, Floats]:
    rows = table[(table["arm"] == arm) & table["final"].notna()]
    found = {task: rows.loc[rows["task"] == task, "final"].to_numpy("float64") for task in study.tasks}
    return {task: scores for task, scores in found.items() if scores.size}


def _pooled(own: dict[str, Floats], reference: dict[str, Floats]) -> dict[str, float]:
    def pooled(strata: list[Floats]) -> float:
        return interquartile_mean(np.concatenate(strata)) if strata else math.nan

    def improvement(strata: list[Floats]) -> float:
        half = len(strata) // 2
        return probability_of_improvement(strata[:half], strata[half:])

    scores = list(own.values())
    shared = [task for task in own if task in reference]
    both = [own[task] for task in shared] + [reference[task] for task in shared]
    iqm_ends = stratified_bootstrap(scores, pooled, np.random.default_rng(0))
    better_ends = stratified_bootstrap(both, improvement, np.random.default_rng(0))
    return {
        **{"iqm": pooled(scores), "iqm_low": iqm_ends[0], "iqm_high": iqm_ends[1]},
        **{"improvement": improvement(both), "improvement_low": better_ends[0], "improvement_high": better_ends[1]},
    }


def _with_ends(row: dict[str, float], name: str) -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if math.isnan(value):
        return "n/a"
    return f"{number(value)} " + (f"[{number(low)}, {number(high)}]" if not math.isnan(low) else "n/a (1 seed)")
