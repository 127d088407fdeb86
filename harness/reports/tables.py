"""All tables of a study, and among them wall-clock timing, which is apart from the others."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

from harness.reports.accuracy import accuracy_table
from harness.reports.comparison import comparison_table
from harness.reports.costs import cost_table
from harness.reports.fits import fit_table
from harness.reports.formats import Table, number
from harness.reports.pooling import aggregate_table, profile_table
from harness.reports.ranking import rank_table
from harness.reports.scores import completion, outcomes
from harness.reports.stability import stability_table
from harness.reports.study import Study
from harness.reports.thresholds import threshold_table
from harness.reports.tuning import tuning_table

NOT_REPRODUCIBLE = "wall-clock, not reproducible"
_SECONDS = ("seconds", "train_seconds", "eval_seconds")
_GIBIBYTE = 2**30


def all_tables(study: Study, baseline: str | None = None) -> list[Table]:
    """Return every table; all but "timing" come out byte-equal for byte-equal records."""
    baseline = study.baseline(baseline)
    return [
        comparison_table(study, baseline),
        rank_table(study, baseline),
        aggregate_table(study, baseline),
        profile_table(study),
        threshold_table(study, baseline),
        fit_table(study),
        stability_table(study),
        accuracy_table(study),
        cost_table(study),
        *([] if study.tuning.empty else [tuning_table(study.tuning)]),
        timing_table(study),
    ]


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
