"""The comparison table: every arm of every task against a baseline, at the budget the study asked for."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
from functools import lru_cache

import numpy as np
import pandas as pd

from harness.reports.formats import PLUS_MINUS, Table, amount, number
from harness.reports.notes import comparison_notes
from harness.reports.resampling import STUDENTISED_FROM, studentised_interval
from harness.reports.scores import (
    DIVERGED,
    UNFINISHED,
    by_arm,
    completion_text,
    num_dropped,
    outcomes,
    pairs,
    troubles,
)
from harness.reports.statistics import (
    Interval,
    SignFlip,
    holm,
    mean_interval,
    minimum_detectable_difference,
    paired_difference,
    sign_flip,
)
from harness.reports.study import Study

AXIS_WORDS = {
    "flops": "useful FLOPs",
    "tokens": "generated tokens",
    "updates": "optimizer steps",
    "seconds": "seconds (wall-clock, not reproducible)",
}
_HEADER: dict[str, str] = {
    "task": "task",
    "arm": "arm",
    "seeds": "seeds",
    "start": "start",
    "final": "final",
    "gain": "gain",
    "difference": "difference [95% t]",
    "studentised": "[95% studentised]",
    "p": "sign-flip p (min)",
    "holm": "Holm p",
    "mdd": "MDD",
    "auc": "AUC",
    "log_auc": "log AUC",
    "failures": "failures",
}
WORST_CASE = " (worst case)"


def compare(study: Study, baseline: str | None = None) -> pd.DataFrame:
    """Compute the comparison, one row a task and arm.

    Args:
        study: the records.
        baseline: the arm that differences are taken to; None chooses ``Study.baseline()``.

    Returns:
        Numbers only (scores are in [0, 1], see ``scores.score_name``); NaN where a quantity does not exist. A run that
        diverged counts with its last finite score (``worst_cases`` has it otherwise). Holm's family is the other arms
        of the same task.
    """
    return _compared(study, study.baseline(baseline)).copy()


@lru_cache(maxsize=8)
def _compared(study: Study, baseline: str) -> pd.DataFrame:
    rows = []
    for task in study.tasks:
        compared = [_compare_arm(study, task, arm, baseline, "score") for arm in study.arms]
        adjusted = holm([float(row["sign_flip_p"]) for row in compared])
        rows += [row | {"holm_p": float(p)} for row, p in zip(compared, adjusted, strict=True)]
    return pd.DataFrame(rows)


def worst_cases(study: Study, baseline: str | None = None) -> pd.DataFrame:
    """Compute the comparison of the arms with a run that diverged, as if it had ended with the worst score.

    Returns:
        Rows like those of ``compare``, for these arms alone, against the baseline as it stands there. They are bounds
        and no further tests: ``holm_p`` is NaN.
    """
    baseline = study.baseline(baseline)
    table = outcomes(study)
    gone = table[(table["status"] == DIVERGED) & table["score"].notna()]
    pairs = dict.fromkeys(gone[["task", "arm"]].itertuples(index=False, name=None))
    return pd.DataFrame([_compare_arm(study, *pair, baseline, "worst") | {"holm_p": math.nan} for pair in pairs])


def comparison_table(study: Study, baseline: str | None = None) -> Table:
    """Lay the comparison out for reading; see ``compare`` for the numbers."""
    baseline = study.baseline(baseline)
    frame = pd.concat([compare(study, baseline), worst_cases(study, baseline)], ignore_index=True)
    order = {task: place for place, task in enumerate(study.tasks)}
    arms = {arm: place for place, arm in enumerate(study.arms)}
    frame = frame.sort_values(["task", "arm"], key=lambda names: names.map(order | arms), kind="stable")
    records = frame.to_dict("records")
    names = list(_HEADER)
    scores = ["task", "arm", "seeds", "start", "final", "gain", "auc", "log_auc"]
    parts = [scores, ["task", "arm", "difference", *_TESTS], ["task", "arm", "seeds", "failures"]]
    return Table(
        name="comparison",
        title=f"Objectives at matched compute ({budget_text(study)}), compared with {baseline}",
        header=list(_HEADER.values()),
        rows=[[text[name] for name in names] for text in map(_text, records)],
        notes=comparison_notes(study, frame, baseline),
        numbers=records,
        parts=[[names.index(name) for name in part] for part in parts],
    )


def budget_text(study: Study) -> str:
    """Write the budgets of the study, as in "1.00e+12 useful FLOPs"."""
    budgets = study.cells[["budget_axis", "budget_amount"]].drop_duplicates().itertuples(index=False, name=None)
    return ", ".join(f"{amount(value)} {AXIS_WORDS[axis]}" for axis, value in budgets)


def with_interval(interval: Interval, signed: bool = False) -> str:
    """Write "0.512 ± 0.034", "0.512 n/a (1 seed)" or "n/a (0 seeds)"."""
    if not interval.num:
        return "n/a (0 seeds)"
    mean = number(interval.mean, signed=signed)
    return f"{mean} n/a (1 seed)" if interval.num == 1 else f"{mean} {PLUS_MINUS} {number(interval.half_width)}"


def _compare_arm(study: Study, task: str, arm: str, baseline: str, column: str) -> dict[str, object]:
    """Compare one arm; ``column`` of ``outcomes`` is its score, the baseline's is "score"."""
    table, rows = outcomes(study), by_arm(study)[task, arm]
    scored = rows[rows["score"].notna()]
    known = bool(scored["start"].notna().all())
    start = float(scored["start"].mean()) if len(scored) else math.nan
    final = mean_interval(scored[column])
    gain = mean_interval(scored[column] - scored["start"]) if known else mean_interval([])
    auc, log_auc = (mean_interval(scored[name].dropna()) for name in ("auc", "log_auc"))
    test, flips = paired_difference([], []), SignFlip(math.nan, math.nan, True)
    if arm != baseline:
        test = paired_difference(
            pairs(table, column, task, arm, baseline)[0], pairs(table, "score", task, arm, baseline)[1]
        )
        flips = sign_flip(test.differences, np.random.default_rng(0))
    low, high = studentised_interval(test.differences)
    found = troubles(rows)
    return {
        **{"task": task, "arm": arm, "case": "worst" if column == "worst" else "", "baseline": baseline},
        **{"completed": int(rows["final"].notna().sum()), "total": len(rows)},
        **{status: sum(len(t.runs) for t in found if t.status == status) for status in UNFINISHED},
        **{"dropped": num_dropped(rows), "scored": len(scored)},
        **{"start_score": start, "final_score": final.mean, "final_half_width": final.half_width},
        **{"gain": gain.mean, "gain_half_width": gain.half_width},
        **{"num_pairs": test.interval.num, "num_pairs_dropped": test.num_dropped, "difference": test.interval.mean},
        **{"difference_low": test.interval.low, "difference_high": test.interval.high},
        **{"studentised_low": low, "studentised_high": high, "t_test_p": test.p},
        **{"sign_flip_p": flips.p, "sign_flip_p_minimum": flips.minimum},
        "minimum_detectable_difference": minimum_detectable_difference(test.sd, test.interval.num),
        **{"auc": auc.mean, "auc_half_width": auc.half_width, "num_auc": auc.num},
        **{"log_auc": log_auc.mean, "log_auc_half_width": log_auc.half_width, "num_log_auc": log_auc.num},
        "failures": "; ".join(f"{trouble.status}: {trouble.text(with_task=False)}" for trouble in found),
    }


def _text(row: dict) -> dict[str, str]:
    counts = {status: row[status] for status in (*UNFINISHED, "dropped")}
    final = Interval(row["final_score"], row["final_half_width"], row["scored"])
    gain = Interval(row["gain"], row["gain_half_width"], row["scored"] if not math.isnan(row["gain"]) else 0)
    auc = Interval(row["auc"], row["auc_half_width"], row["num_auc"])
    log_auc = Interval(row["log_auc"], row["log_auc_half_width"], row["num_log_auc"])
    return {
        **{"task": row["task"], "arm": row["arm"] + (WORST_CASE if row["case"] else "")},
        **{"seeds": completion_text(row["completed"], row["total"], counts), "failures": row["failures"] or "none"},
        **{"start": number(row["start_score"]), "final": with_interval(final), "gain": with_interval(gain, True)},
        **_difference_text(row),
        **({"auc": "-", "log_auc": "-"} if row["case"] else {}),
        **({} if row["case"] else {"auc": with_interval(auc), "log_auc": with_interval(log_auc)}),
    }


_TESTS = ("studentised", "p", "holm", "mdd")


def _difference_text(row: dict) -> dict[str, str]:
    if row["arm"] == row["baseline"]:
        return dict.fromkeys(_TESTS, "-") | {"difference": "baseline"}
    if not row["num_pairs"]:
        return dict.fromkeys(("difference", *_TESTS), "n/a (0 pairs)")
    text = number(row["difference"], signed=True)
    if row["num_pairs"] == 1:
        return dict.fromkeys(_TESTS, "n/a (1 seed)") | {"difference": f"{text} n/a (1 seed)"}
    return {
        "difference": f"{text} {_ends(row, 'difference')}",
        "studentised": _studentised_text(row),
        "p": f"{number(row['sign_flip_p'])} ({number(row['sign_flip_p_minimum'])})",
        "holm": "-" if row["case"] else number(row["holm_p"]),
        "mdd": number(row["minimum_detectable_difference"]),
    }


def _studentised_text(row: dict) -> str:
    if row["num_pairs"] < STUDENTISED_FROM:
        return f"n/a (n < {STUDENTISED_FROM})"
    return "n/a (ties)" if math.isnan(row["studentised_low"]) else _ends(row, "studentised")


def _ends(row: dict, name: str) -> str:
    return f"[{number(row[f'{name}_low'], signed=True)}, {number(row[f'{name}_high'], signed=True)}]"
