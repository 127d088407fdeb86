"""Compare two studies, or two arms of two studies: paired differences where cells pair, and why where they do not."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.reports.comparison import AXIS_WORDS, with_interval
from harness.reports.formats import Table, amount, number
from harness.reports.scores import COMPLETED, NO_SCORE, divergence_notes, outcomes
from harness.reports.statistics import mean_interval, minimum_detectable_difference, paired_difference, sign_flip
from harness.reports.study import Study
from harness.reports.values import TIE

__all__ = ["Side", "compare_sides"]

Settings = Mapping[str, Mapping[str, Any]]
_LISTED = 8


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a comparison.

    Attributes:
        name: for a reader.
        study: its records.
        arm: this arm only; None for all.
        settings: cell -> what it was made of, flat, if known; the objective and the trust region left out.
    """

    name: str
    study: Study
    arm: str | None = None
    settings: Settings | None = None

    def __post_init__(self) -> None:
        if self.arm is not None and self.arm not in self.study.arms:
            raise ValueError(f"{self.name} has no arm {self.arm!r}; arms: {', '.join(self.study.arms)}")


def compare_sides(first: Side, second: Side) -> Table:
    """Pair the cells of two sides by task, policy and seed, and by arm where whole studies are compared.

    A pair needs the same budget and as many test prompts on both sides, and two scores: final ones, or of a run that
    diverged its last one. What is not paired is counted with the reason, in the notes. Notes also say where paired
    cells differ beyond the arm: in settings, sources and versions, as far as the folders know them, and in the warm
    start's score.

    Returns:
        One row a task and arm; differences are second minus first.

    Raises:
        ValueError: one side names an arm and the other one does not.
    """
    if (first.arm is None) != (second.arm is None):
        raise ValueError("compare two studies, or two arms: one side names an arm and the other does not")
    by_arm = first.arm is None
    mine, theirs = _cells(first), _cells(second)
    if not by_arm:
        mine, theirs = mine.drop(columns="arm"), theirs.drop(columns="arm")
    keys = ["task", "arm", "policy", "seed"] if by_arm else ["task", "policy", "seed"]
    merged = mine.merge(theirs, on=keys, how="outer", suffixes=("", "_b"), sort=False, indicator="found")
    merged["reason"] = [_reason(row, mine, theirs) for row in merged.to_dict("records")]
    numbers, rows = [], []
    groups = ["task", "arm"] if by_arm else ["task"]
    places = [dict.fromkeys([*mine[name], *theirs[name]]) for name in groups]
    there = set(merged[groups].itertuples(index=False, name=None))
    for group in (group for group in itertools.product(*places) if group in there):
        here = merged[(merged[groups] == list(group)).all(axis=1)]
        labels = (str(group[0]), str(group[1])) if by_arm else (str(group[0]), f"{first.arm} / {second.arm}")
        row = _compare(here[here["reason"] == ""], labels)
        numbers.append(row | {"not_paired": int((here["reason"] != "").sum())})
        rows.append(_text(numbers[-1]))
    header = ["task", "arm", "pairs", "not paired", "A", "B", "B - A [95% t]", "sign-flip p (min)", "MDD"]
    notes = [f"A: {first.name}. B: {second.name}. Scores are final test scores of the pairs, ± a 95% t interval."]
    notes += [
        f"{name}: {note}" for name, side in (("A", first), ("B", second)) for note in divergence_notes(side.study)
    ]
    notes += [*_unpaired(merged, by_arm), *_beyond(merged[merged["reason"] == ""], first, second)]
    return Table("side_by_side", f"{first.name} and {second.name}", header, rows, notes, numbers)


def _cells(side: Side) -> pd.DataFrame:
    """Return one row a cell: labels, start and final score, budget and test prompts."""
    table = outcomes(side.study)
    table = table.assign(score=table["final"].fillna(table["last"]))[table["cell"] != ""]
    table = table if side.arm is None else table[table["arm"] == side.arm]
    budgets = side.study.cells[["cell", "budget_axis", "budget_amount"]]
    evals = side.study.evals
    tested = evals[evals["split"] == "test"].sort_values("fraction", kind="stable")
    asked = tested.groupby("cell", sort=False)["num_prompts"].last().reset_index()
    return table.merge(budgets, on="cell").merge(asked, on="cell", how="left")


def _reason(row: Mapping[str, Any], mine: pd.DataFrame, theirs: pd.DataFrame) -> str:
    """Return why two cells do not pair, "" if they do."""
    if row["found"] != "both":
        name, other = ("A", theirs) if row["found"] == "left_only" else ("B", mine)
        keys = [key for key in ("task", "arm", "policy", "seed") if key in row]
        what = next((key for key in keys if row[key] not in set(other[key])), "combination")
        return f"{what} only in {name}"
    budgets = [(row[f"budget_axis{b}"], row[f"budget_amount{b}"]) for b in ("", "_b")]
    if budgets[0] != budgets[1]:
        texts = [f"{amount(value)} {AXIS_WORDS[axis]}" for axis, value in budgets]
        return f"budgets differ: {texts[0]} in A, {texts[1]} in B"
    for b, name in (("", "A"), ("_b", "B")):
        if np.isnan(row[f"score{b}"]) or np.isnan(row[f"num_prompts{b}"]):
            whole = row[f"status{b}"] == COMPLETED
            found = NO_SCORE if whole else " ".join(f"{row[f'status{b}']} {row[f'cause{b}']}".split())
            return f"no test score in {name} ({found})"
    if row["num_prompts"] != row["num_prompts_b"]:
        return f"tested on {row['num_prompts']:g} prompts in A, {row['num_prompts_b']:g} in B"
    return ""


def _compare(pairs: pd.DataFrame, labels: tuple[str, str]) -> dict[str, Any]:
    first, second = pairs["score"].to_numpy("float64"), pairs["score_b"].to_numpy("float64")
    test = paired_difference(second, first)
    flips = sign_flip(test.differences, np.random.default_rng(0))
    a, b = mean_interval(first), mean_interval(second)
    return {
        **{"task": labels[0], "arm": labels[1], "num_pairs": len(pairs)},
        **{"first": a.mean, "first_half_width": a.half_width, "second": b.mean, "second_half_width": b.half_width},
        **{
            "difference": test.interval.mean,
            "difference_low": test.interval.low,
            "difference_high": test.interval.high,
        },
        **{"sign_flip_p": flips.p, "sign_flip_p_minimum": flips.minimum},
        "minimum_detectable_difference": minimum_detectable_difference(test.sd, test.interval.num),
    }


def _text(row: Mapping[str, Any]) -> list[str]:
    from harness.reports.statistics import Interval

    num = row["num_pairs"]
    sides = [with_interval(Interval(row[name], row[f"{name}_half_width"], num)) for name in ("first", "second")]
    counts = [row["task"], row["arm"], str(num), str(row["not_paired"])]
    if num == 0:
        return [*counts, *sides, *["n/a (0 pairs)"] * 3]
    difference = number(row["difference"], signed=True)
    if num == 1:
        return [*counts, *sides, f"{difference} n/a (1 seed)", *["n/a (1 seed)"] * 2]
    ends = ", ".join(number(row[name], signed=True) for name in ("difference_low", "difference_high"))
    p = f"{number(row['sign_flip_p'])} ({number(row['sign_flip_p_minimum'])})"
    return [*counts, *sides, f"{difference} [{ends}]", p, number(row["minimum_detectable_difference"])]


def _unpaired(merged: pd.DataFrame, by_arm: bool) -> list[str]:
    """Return a note a reason: how many cells, and which."""
    notes = []
    for reason in dict.fromkeys(word for word in merged["reason"] if word):
        rows = merged[merged["reason"] == reason].to_dict("records")
        arms = Counter(f"{row['arm']} on {row['task']}" if by_arm else str(row["task"]) for row in rows)
        listed = ", ".join(f"{arm} ({count})" for arm, count in list(arms.items())[:_LISTED])
        more = f" and {len(arms) - _LISTED} more" if len(arms) > _LISTED else ""
        notes.append(f"Not paired, {reason}: {len(rows)} cell{'s' if len(rows) > 1 else ''}: {listed}{more}.")
    return notes


def _beyond(pairs: pd.DataFrame, first: Side, second: Side) -> list[str]:
    """Return notes on what paired cells differ in beside objective and trust region."""
    notes = []
    apart = pairs[(pairs["start"] - pairs["start_b"]).abs() > TIE]
    if len(apart):
        notes.append(
            f"The warm start's score differs in {len(apart)} of {len(pairs)} pairs: they do not begin at the same "
            "weights, prompts or rules, and pairing is weak."
        )
    if first.settings is None or second.settings is None:
        unknown = " and ".join(name for name, side in (("A", first), ("B", second)) if side.settings is None)
        notes.append(
            f"Settings, sources and versions are not compared: {unknown} has records without them (provenance.json)."
        )
        return notes
    found: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for row in pairs.to_dict("records"):
        mine, theirs = first.settings.get(row["cell"], {}), second.settings.get(row["cell_b"], {})
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                found[name] += 1
                examples.setdefault(name, f"{mine.get(name, 'absent')} and {theirs.get(name, 'absent')}")
    for name, count in found.items():
        notes.append(f"Differs beyond the arm in {count} of {len(pairs)} pairs: {name} ({examples[name]}).")
    return notes
