"""The comparison table: every arm of every task against a baseline, at the budget the study asked for."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

import numpy as np
import pandas as pd

from harness.reports.formats import PLUS_MINUS, Table, amount, number, scientific
from harness.reports.scores import (
    COSTS,
    UNFINISHED,
    completion_text,
    outcomes,
    pairs,
    score_name,
    start_scores_differ,
    troubles,
    unscored,
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
    "p": "sign-flip p (min)",
    "holm": "Holm p",
    "mdd": "MDD",
    "auc": "AUC",
    "spent_flops": "FLOPs (useful)",
    "executed_flops": "FLOPs (executed)",
    "generated_tokens": "generated tokens",
    "trained_tokens": "trained tokens",
    "updates": "updates",
    "eval_flops": "evaluation FLOPs",
    "discarded_flops": "discarded FLOPs",
    "failures": "failures",
}


def compare(study: Study, baseline: str | None = None) -> pd.DataFrame:
    """Compute the comparison, one row a task and arm.

    Args:
        study: the records.
        baseline: the arm that differences are taken to; None chooses ``Study.baseline()``.

    Returns:
        Numbers only (scores are in [0, 1], see ``scores.score_name``); NaN where a quantity does not exist. Costs are
        means over completed cells. Holm's family is the other arms of the same task.
    """
    baseline = study.baseline(baseline)
    table = outcomes(study)
    rows = []
    for task in study.tasks:
        compared = [_compare_arm(table, task, arm, baseline) for arm in study.arms]
        adjusted = holm([float(row["sign_flip_p"]) for row in compared])
        rows += [row | {"holm_p": float(p)} for row, p in zip(compared, adjusted, strict=True)]
    frame = pd.DataFrame(rows)
    names = [name for name in frame.columns if name != "holm_p"]
    names.insert(names.index("sign_flip_p_minimum") + 1, "holm_p")
    return frame[names]


def comparison_table(study: Study, baseline: str | None = None) -> Table:
    """Lay the comparison out for reading; see ``compare`` for the numbers."""
    baseline = study.baseline(baseline)
    frame = compare(study, baseline)
    names = list(_HEADER)
    rows = [[_text(row)[name] for name in names] for row in frame.to_dict("records")]
    scores, costs = names[: names.index("auc") + 1], names[names.index("spent_flops") : names.index("failures")]
    parts = [scores, ["task", "arm", *costs], ["task", "arm", "seeds", "failures"]]
    return Table(
        name="comparison",
        title=f"Objectives at matched compute ({budget_text(study)}), compared with {baseline}",
        header=list(_HEADER.values()),
        rows=rows,
        notes=_notes(study, frame, baseline),
        numbers=frame.to_dict("records"),
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


def _compare_arm(table: pd.DataFrame, task: str, arm: str, baseline: str) -> dict[str, object]:
    rows = table[(table["task"] == task) & (table["arm"] == arm)]
    scored = rows[rows["final"].notna()]
    found = troubles(rows)
    final, gain = (mean_interval(scored[name]) if scored[name].notna().all() else _unknown() for name in _SCORES)
    auc = mean_interval(scored["auc"].dropna())
    test = paired_difference(*pairs(table, "final", task, arm, baseline))
    if arm == baseline:
        test, flips = paired_difference([], []), SignFlip(math.nan, math.nan, True)
    else:
        flips = sign_flip(test.differences, np.random.default_rng(0))
    return {
        **{"task": task, "arm": arm, "baseline": baseline, "completed": len(scored), "total": len(rows)},
        **{status: sum(len(t.runs) for t in found if t.status == status) for status in UNFINISHED},
        **{"start_score": float(scored["start"].mean()) if len(scored) else math.nan},
        **{"final_score": final.mean, "final_half_width": final.half_width},
        **{"gain": gain.mean, "gain_half_width": gain.half_width},
        **{"num_pairs": test.interval.num, "num_pairs_dropped": test.num_dropped, "difference": test.interval.mean},
        **{"difference_low": test.interval.low, "difference_high": test.interval.high},
        **{"sign_flip_p": flips.p, "sign_flip_p_minimum": flips.minimum},
        "minimum_detectable_difference": minimum_detectable_difference(test.sd, test.interval.num),
        **{"auc": auc.mean, "auc_half_width": auc.half_width, "num_auc": auc.num},
        **{name: float(scored[name].mean()) if len(scored) else math.nan for name in COSTS},
        "failures": "; ".join(f"{trouble.status}: {trouble.text(with_task=False)}" for trouble in found),
    }


_SCORES = ("final", "gain")


def _unknown() -> Interval:
    return Interval(math.nan, math.nan, 0)


def _text(row: dict) -> dict[str, str]:
    seeds = completion_text(row["completed"], row["total"], {status: row[status] for status in UNFINISHED})
    scored = row["completed"]
    final = Interval(row["final_score"], row["final_half_width"], scored)
    gain = Interval(row["gain"], row["gain_half_width"], scored if not math.isnan(row["gain"]) else 0)
    auc = Interval(row["auc"], row["auc_half_width"], row["num_auc"])
    return {
        **{"task": row["task"], "arm": row["arm"], "seeds": seeds, "failures": row["failures"] or "none"},
        **{"start": number(row["start_score"]), "final": with_interval(final), "gain": with_interval(gain, True)},
        **_difference_text(row),
        "auc": with_interval(auc),
        **{name: scientific(row[name]) for name in COSTS if name.endswith("flops")},
        **{name: amount(row[name]) for name in COSTS if not name.endswith("flops")},
    }


def _difference_text(row: dict) -> dict[str, str]:
    if row["arm"] == row["baseline"]:
        return dict.fromkeys(("p", "holm", "mdd"), "-") | {"difference": "baseline"}
    if not row["num_pairs"]:
        return dict.fromkeys(("difference", "p", "holm", "mdd"), "n/a (0 pairs)")
    text = number(row["difference"], signed=True)
    if row["num_pairs"] == 1:
        return dict.fromkeys(("p", "holm", "mdd"), "n/a (1 seed)") | {"difference": f"{text} n/a (1 seed)"}
    ends = ", ".join(number(row[name], signed=True) for name in ("difference_low", "difference_high"))
    return {
        "difference": f"{text} [{ends}]",
        "p": f"{number(row['sign_flip_p'])} ({number(row['sign_flip_p_minimum'])})",
        "holm": number(row["holm_p"]),
        "mdd": number(row["minimum_detectable_difference"]),
    }


def _notes(study: Study, frame: pd.DataFrame, baseline: str) -> list[str]:
    others = frame[frame["arm"] != baseline]
    sizes = sorted(set(others["num_pairs"].astype(int)))
    notes = [
        f"Scores are {score_name(study)} on the test split: start is the warm start, final the last state inside the "
        f"budget; {PLUS_MINUS} is the half-width of a 95% t interval over seeds (n - 1 degrees of freedom).",
        f"Differences are to {baseline}, paired by task, policy and seed; [ ] is a 95% t interval. A pair with an "
        "unfinished side is dropped and counted under seeds, never taken as 0.",
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
        "MDD: the mean difference that a paired t test at 0.05 would find with power 0.8, from the spread seen here; a "
        "smaller difference is not evidence of equality.",
        "AUC: mean height of the validation curve over the budget. Amounts are means over completed cells; evaluation "
        "FLOPs are outside the budget; discarded FLOPs went into rollouts that no longer fitted.",
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
