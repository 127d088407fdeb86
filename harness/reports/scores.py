"""One row a cell: its status, start and final score, areas, cost; and the pairs that arms are compared on.

Only completed cells have a final score; any other cell keeps its status and cause and is never a zero. What enters a
comparison is ``score``: the final score; of a run that diverged, its last finite score; nothing of a seed that an arm
lost to the machinery (a failure other than a divergence): that seed is dropped for all arms of its task.
"""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from harness.reports.formats import number
from harness.reports.study import Study
from harness.reports.trajectories import endings
from harness.reports.values import TIE, Floats

COSTS = (
    *("spent_flops", "executed_flops", "eval_flops", "discarded_flops"),
    *("generated_tokens", "trained_tokens", "updates", "iterations"),
)
COMPLETED = "completed"
DIVERGED = "diverged"
UNFINISHED = (DIVERGED, "failed", "running", "missing")
NO_SCORE = "completed without a test score at the end of the budget"
WORST = 0.0
"""No score is lower: of a run that diverged, in the worst case."""


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
        status (of cells.csv, or "diverged"), cause, start (test score of the warm start), final (test score at the end
        of the budget; NaN unless completed), last (of a run that diverged, its last finite score: the test score
        where there is one, else the validation score), score (final, or last; NaN if dropped), worst (the same with
        ``WORST`` for a run that diverged), dropped (whether the seed is left out for all arms), gain (score above
        start), auc (mean height of the validation curve over the budget), log_auc (the same over the logarithm of the
        budget, from the first evaluation after the start), and ``COSTS``. A combination without a row in cells.csv
        has status "missing". Shared between callers: do not change it.
    """
    scores = endings(study.evals)
    rows = []
    cells = {tuple(row[name] for name in _KEY): row for row in study.cells[[*_KEY, *_SHOWN]].to_dict("records")}
    for task in study.tasks:
        runs = study.cells.loc[study.cells["task"] == task, ["policy", "seed"]].drop_duplicates()
        runs = list(runs.sort_values("seed", kind="stable").itertuples(index=False, name=None))
        several = len({policy for policy, _ in runs}) > 1
        for arm in study.arms:
            for policy, seed in runs:
                run = f"{policy}:{seed}" if several else str(seed)
                row = {"task": task, "arm": arm, "policy": policy, "seed": seed, "run": run}
                rows.append(row | _outcome(cells.get((task, arm, policy, seed)), scores))
    table = pd.DataFrame(rows)
    table["dropped"] = _dropped(table)
    table["score"] = table["final"].fillna(table["last"]).mask(table["dropped"])
    table["worst"] = table["score"].mask(table["score"].notna() & (table["status"] == DIVERGED), WORST)
    table["gain"] = table["score"] - table["start"]
    return table


@lru_cache(maxsize=8)
def by_arm(study: Study) -> dict[tuple[str, str], pd.DataFrame]:
    """Return the rows of ``outcomes`` of every (task, arm), in its order; shared: do not change them."""
    table = outcomes(study)
    return {key: table.take(places) for key, places in table.groupby(["task", "arm"], sort=False).indices.items()}


@lru_cache(maxsize=8)
def states(study: Study) -> dict[tuple[str, str], tuple[str, str]]:
    """Return for every (task, arm) how many seeds completed, and what became of the others, as two texts."""
    return {key: (completion(rows), trouble_text(rows)) for key, rows in by_arm(study).items()}


def pairs(table: pd.DataFrame, column: str, task: str, arm: str, baseline: str) -> tuple[Floats, Floats]:
    """Return one column of two arms of a task, aligned by policy and seed; NaN where a run has no value.

    Args:
        table: of ``outcomes``, where the runs of a task stand in one order for all arms.
        column: its name.
        task: a task.
        arm: an arm.
        baseline: another one.
    """
    tasks, arms, values = (table[name].to_numpy() for name in ("task", "arm", column))
    first, second = (values[(tasks == task) & (arms == name)].astype(np.float64) for name in (arm, baseline))
    return first, second


def troubles(table: pd.DataFrame) -> list[Trouble]:
    """Return the cells without a final score, grouped by task, arm, status and cause, in the table's order."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    rows = table[table["final"].isna()]
    for task, arm, status, cause, run in zip(*(rows[name] for name in _TROUBLE), strict=True):
        status, cause = ("missing", NO_SCORE) if status == COMPLETED else (str(status), str(cause))
        found.setdefault((str(task), str(arm), status, " ".join(cause.split())), []).append(str(run))
    return [Trouble(*key, tuple(runs)) for key, runs in found.items()]


_TROUBLE = ("task", "arm", "status", "cause", "run")


def completion(rows: pd.DataFrame, word: str = "seeds") -> str:
    """Write how many of the rows of ``outcomes`` have a final score, as "2/3 seeds, 1 failed"."""
    found = troubles(rows)
    counts = {status: sum(len(trouble.runs) for trouble in found if trouble.status == status) for status in UNFINISHED}
    counts["dropped"] = num_dropped(rows)
    return completion_text(int(rows["final"].notna().sum()), len(rows), counts, word)


def completion_text(completed: int, total: int, counts: dict[str, int], word: str = "seeds") -> str:
    """Write counts as "2/3 seeds, 1 failed"."""
    return ", ".join([f"{completed}/{total} {word}", *(f"{num} {name}" for name, num in counts.items() if num)])


def trouble_text(rows: pd.DataFrame) -> str:
    """Write the cells of one task and arm that have no final score, as "failed: seed 2 (nan loss)", or "none"."""
    return "; ".join(f"{found.status}: {found.text(with_task=False)}" for found in troubles(rows)) or "none"


def num_dropped(rows: pd.DataFrame) -> int:
    """Return how many runs have a score that counts for nothing, because their seed is dropped."""
    return int((rows["dropped"] & rows["final"].fillna(rows["last"]).notna()).sum())


def ending_notes(study: Study) -> list[str]:
    """Return what a reader must know of runs that diverged and of seeds that are dropped; nothing if there are none."""
    table, notes = outcomes(study), divergence_notes(study)
    lost = [found for found in troubles(table[table["dropped"]]) if found.status == "failed"]
    if lost:
        notes.append(
            "Seeds dropped for all arms of a task, because an arm lost them to the machinery: "
            f"{'; '.join(found.text() for found in lost)}. The sweep runs them again with --retry-failed."
        )
    return notes


def divergence_notes(study: Study) -> list[str]:
    """Return what a reader must know of runs that diverged; nothing if there are none."""
    table = outcomes(study)
    gone = table[table["status"] == DIVERGED]
    if gone.empty:
        return []
    return [
        f"Diverged (a loss or gradient was not finite): {'; '.join(t.text() for t in troubles(gone))}. Its last "
        f"finite score stands for its end; in a row (worst case) it counts {number(WORST, 0)}."
    ]


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


def _dropped(table: pd.DataFrame) -> pd.Series:
    """Mark the runs of seeds that an arm lost, unless it lost all of the task: then it says nothing of seeds."""
    failed = table["status"] == "failed"
    all_failed = failed.groupby([table["task"], table["arm"]]).transform("all")
    return (failed & ~all_failed).groupby([table["task"], table["policy"], table["seed"]]).transform("any")


_KEY = ("task", "arm", "policy", "seed")
_SHOWN = ("cell", "status", "failure", "cause", *COSTS)
_MEASURES = ("start", "final", "last", "auc", "log_auc")


def _outcome(cell: dict[str, Any] | None, scores: dict[str, dict[str, float]]) -> dict[str, object]:
    if cell is None:
        costs = dict.fromkeys(COSTS, math.nan)
        return {"cell": "", "status": "missing", "cause": "no such cell", **dict.fromkeys(_MEASURES, math.nan), **costs}
    found = dict.fromkeys(_MEASURES, math.nan) | scores.get(str(cell["cell"]), {})
    status, cause = str(cell["status"]), str(cell["cause"])
    if cell["failure"] == "divergence":
        status, cause = DIVERGED, _carried_text(cause, found)
        found |= {"final": math.nan, **{name: found.get(f"carried_{name}", math.nan) for name in ("auc", "log_auc")}}
    elif status == COMPLETED:
        found["last"] = math.nan
    else:
        found |= dict.fromkeys(("final", "last", "auc", "log_auc"), math.nan)
    return {
        **{"cell": cell["cell"], "status": status, "cause": cause},
        **{name: found[name] for name in _MEASURES},
        **{column: float(cell[column]) for column in COSTS},
    }


def _carried_text(cause: str, found: dict[str, float]) -> str:
    if math.isnan(found["last"]):
        return f"{cause}; no finite score"
    return f"{cause}; {number(found['last'])} at {found['last_fraction']:.0%} of the budget stands for its end"
