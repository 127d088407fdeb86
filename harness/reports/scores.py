"""One row a cell: its status, start and final score, area, cost; and the pairs that arms are compared on.

Only completed cells have a final score; any other cell keeps its status and cause and is never a zero.
"""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
from dataclasses import dataclass
from functools import lru_cache

import pandas as pd

from harness.reports.formats import number
from harness.reports.statistics import area_under_curve
from harness.reports.study import Study
from harness.reports.values import TIE, Floats

COSTS = (
    *("spent_flops", "executed_flops", "eval_flops", "discarded_flops"),
    *("generated_tokens", "trained_tokens", "updates", "iterations"),
)
STARTED, ENDED = 0.0, 1.0
"""Fractions of the budget axis: the warm start and the last state inside the budget."""
COMPLETED = "completed"
UNFINISHED = ("failed", "running", "missing")
NO_SCORE = "completed without a test score at the end of the budget"


@dataclass(frozen=True)
class Trouble:
    """Cells of one task and arm that ended the same way, none of them completed."""

    task: str
    arm: str
    status: str
    cause: str
    runs: tuple[str, ...]

    def text(self, with_task: bool = True) -> str:
        """Write it as "gspo arithmetic seed 2 (nan loss)"."""
        runs = f"seed{'s' if len(self.runs) > 1 else ''} {', '.join(self.runs)}"
        subject = f"{self.arm} {self.task} {runs}" if with_task else runs
        return f"{subject} ({self.cause})" if self.cause else subject


@lru_cache(maxsize=8)
def outcomes(study: Study) -> pd.DataFrame:
    """Return one row for every arm and every (policy, seed) of each task.

    Returns:
        Columns task, arm, policy, seed, run (the seed, with the policy in front where a task has several), cell,
        status, cause, delta, start (test score of the warm start), final (test score at the end of the budget; NaN
        unless completed), gain, auc (mean height of the validation curve over the budget), and ``COSTS``. A
        combination without a row in cells.csv has status "missing". Shared between callers: do not change it.
    """
    scores = _scores(study.evals)
    rows = []
    index = study.cells.set_index(["task", "arm", "policy", "seed"])
    for task in study.tasks:
        runs = study.cells.loc[study.cells["task"] == task, ["policy", "seed"]].drop_duplicates()
        runs = list(runs.sort_values("seed", kind="stable").itertuples(index=False, name=None))
        several = len({policy for policy, _ in runs}) > 1
        for arm in study.arms:
            for policy, seed in runs:
                key = (task, arm, policy, seed)
                run = f"{policy}:{seed}" if several else str(seed)
                row = {"task": task, "arm": arm, "policy": policy, "seed": seed, "run": run}
                cell = index.loc[key] if key in index.index else None
                rows.append(row | _outcome(cell, scores))
    return pd.DataFrame(rows)


def pairs(table: pd.DataFrame, column: str, task: str, arm: str, baseline: str) -> tuple[Floats, Floats]:
    """Return one column of two arms of a task, aligned by policy and seed; NaN where a run has no value."""
    rows = table[table["task"] == task].pivot(index=["policy", "seed"], columns="arm", values=column)
    return rows[arm].to_numpy("float64"), rows[baseline].to_numpy("float64")


def troubles(table: pd.DataFrame) -> list[Trouble]:
    """Return the cells without a final score, grouped by task, arm, status and cause, in the table's order."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for row in table[table["final"].isna()].itertuples():
        completed = row.status == COMPLETED
        status, cause = ("missing", NO_SCORE) if completed else (str(row.status), str(row.cause))
        found.setdefault((str(row.task), str(row.arm), status, " ".join(cause.split())), []).append(str(row.run))
    return [Trouble(*key, tuple(runs)) for key, runs in found.items()]


def completion(rows: pd.DataFrame, word: str = "seeds") -> str:
    """Write how many of the rows of ``outcomes`` have a final score, as "2/3 seeds, 1 failed"."""
    found = troubles(rows)
    counts = {status: sum(len(trouble.runs) for trouble in found if trouble.status == status) for status in UNFINISHED}
    return completion_text(int(rows["final"].notna().sum()), len(rows), counts, word)


def completion_text(completed: int, total: int, counts: dict[str, int], word: str = "seeds") -> str:
    """Write counts as "2/3 seeds, 1 failed"."""
    return ", ".join([f"{completed}/{total} {word}", *(f"{num} {name}" for name, num in counts.items() if num)])


def curve(evals: pd.DataFrame, cell: str, split: str = "validation") -> pd.DataFrame:
    """Return one cell's scores of a split, ordered by the fraction of the budget axis."""
    rows = evals[(evals["cell"] == cell) & (evals["split"] == split) & evals["score"].notna()]
    return rows.sort_values("fraction", kind="stable")


def start_scores_differ(table: pd.DataFrame, tolerance: float = 1e-9) -> list[str]:
    """Return the tasks where arms of one policy and seed do not share their warm start's test score."""
    spread = table.groupby(["task", "policy", "seed"], sort=False)["start"].agg(lambda x: x.max() - x.min())
    return list(dict.fromkeys(spread[spread > tolerance].index.get_level_values("task")))


def score_name(study: Study) -> str:
    """Return what the scores are: "mean pass@1", or "mean reward" where a response may be worth a part of 1."""
    apart = (study.evals["score"] - study.evals["pass_at_1"]).abs() > TIE
    return "mean reward" if apart.any() else "mean pass@1"


def unscored(study: Study) -> list[str]:
    """Return the arms some of whose responses could not be scored, as "gspo: 0.020 in training, 0.010 evaluated".

    Shares are means over iterations and over evaluations; records that do not know them count as none.
    """
    cells = study.cells.set_index("cell")["arm"]
    trained = study.metrics["infra_frac"].groupby(study.metrics["cell"].map(cells)).mean()
    asked = study.evals["num_responses"].fillna(study.evals["num_prompts"])
    evaluated = (study.evals["infra"] / asked).groupby(study.evals["cell"].map(cells)).mean()
    shares = pd.DataFrame({"training": trained, "evaluated": evaluated}).reindex(study.arms).fillna(0.0)
    return [
        f"{arm}: {number(training)} in training, {number(evaluated)} evaluated"
        for arm, training, evaluated in shares.itertuples(name=None)
        if training or evaluated
    ]


def _scores(evals: pd.DataFrame) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for cell, rows in evals[evals["score"].notna()].groupby("cell", sort=False):
        test = rows[rows["split"] == "test"].set_index("fraction")["score"]
        line = rows[rows["split"] == "validation"].sort_values("fraction")
        whole = len(line) > 1 and line["fraction"].iloc[0] == STARTED and line["fraction"].iloc[-1] == ENDED
        found[str(cell)] = {
            "start": float(test.get(STARTED, math.nan)),
            "final": float(test.get(ENDED, math.nan)),
            "auc": area_under_curve(line["fraction"], line["score"]) if whole else math.nan,
        }
    return found


def _outcome(cell: pd.Series | None, scores: dict[str, dict[str, float]]) -> dict[str, object]:
    nothing = dict.fromkeys(("start", "final", "auc"), math.nan)
    if cell is None:
        costs = dict.fromkeys(COSTS, math.nan)
        return {"cell": "", "status": "missing", "cause": "no such cell", "gain": math.nan, **nothing, **costs}
    found = nothing | scores.get(str(cell["cell"]), {})
    if cell["status"] != COMPLETED:
        found |= {"final": math.nan, "auc": math.nan}
    return {
        **{column: cell[column] for column in ("cell", "status", "cause")},
        **found,
        "gain": found["final"] - found["start"],
        **{column: float(cell[column]) for column in COSTS},
    }
