"""What a reader must know to read a table, as sentences that stand below it."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import pandas as pd

from harness.reports.formats import PLUS_MINUS, number
from harness.reports.resampling import STUDENTISED_FROM
from harness.reports.scores import ending_notes, outcomes, score_name, start_scores_differ, unscored
from harness.reports.study import Study

MDD = (
    "MDD: the mean difference that a paired t test at 0.05 would find with power 0.8, from the spread seen here; a "
    "smaller difference is not evidence of equality."
)


def comparison_notes(study: Study, frame: pd.DataFrame, baseline: str) -> list[str]:
    """Return the notes of the comparison; ``frame`` holds its rows."""
    others = frame[frame["arm"] != baseline]
    sizes = sorted(set(others["num_pairs"].astype(int)))
    notes = [
        f"Scores are {score_name(study)} on the test split: start is the warm start, final the last state inside the "
        f"budget; {PLUS_MINUS} is the half-width of a 95% t interval over seeds (n - 1 degrees of freedom).",
        f"Differences are to {baseline}, paired by task, policy and seed; [ ] is a 95% t interval, beside it the "
        f"studentised (bootstrap-t) one, which needs {STUDENTISED_FROM} pairs. A pair with an unfinished side is left "
        "out and counted under seeds, never taken as 0.",
    ]
    if len(others):
        reach = "; ".join(f"n = {num}: {number(min(1.0, 2 / 2**num), 4)}" for num in sizes if num)
        low = [num for num in sizes if num > 0 and 2 / 2**num > 0.05]  # noqa: PLR2004
        notes.append(
            f"The smallest p that sign flips can reach ({reach or 'no pairs'}) stands in parentheses; ties raise it. "
            + (
                f"At n = {', '.join(map(str, low))} no arm can fall below 0.05, whatever its difference. "
                if low
                else ""
            )
            + "Holm p is adjusted over the arms of a task."
        )
    notes += [
        MDD,
        "AUC: mean height of the validation curve over the budget; log AUC: over its logarithm, from the first "
        "evaluation after the start.",
        *ending_notes(study),
    ]
    starts = start_scores_differ(outcomes(study))
    if starts:
        notes.append(
            f"The warm start's score differs between arms of one seed in: {', '.join(starts)}. Pairing is weak."
        )
    lost = unscored(study)
    if lost:
        notes.append(
            "Shares of responses whose reward could not be computed (infra), left out of every mean and batch: "
            f"{'; '.join(lost)}. Where they differ between arms, so may what the scores are means over."
        )
    if "seconds" in set(study.cells["budget_axis"]):
        notes.append("Cells with a budget in seconds are not reproducible.")
    several = [task for task, rows in study.cells.groupby("task", sort=False) if rows["policy"].nunique() > 1]
    if several:
        notes.append(f"Several policies in {', '.join(map(str, several))}: a run is a policy and seed (policy:seed).")
    return notes
