"""What the page says beside tables and figures: which cells failed, what each cell did, where the numbers come from."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.reports.formats import Table, number, scientific
from harness.reports.scores import COMPLETED, NO_SCORE, UNFINISHED, outcomes
from harness.reports.study import CONFIG_PREFIX, Study

__all__ = [
    "CellSamples",
    "Grid",
    "PageSources",
    "Provenance",
    "arm_grid",
    "cell_grid",
    "counts",
    "failure_grid",
    "grid",
]

SHOWN_ROWS = 100
"""Rows that a table shows before its reader asks for all."""
MOST_ROWS = 2_000
"""Rows that the page holds of a table; a longer one is cut, and says where the rest is."""
ONE_LINE = 24
"""Characters of an entry that is not broken into lines."""
_NUMBER = re.compile(r"[+-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?\b(?!/)", re.IGNORECASE)
_MISSING = ("n/a", "-", "", "baseline")


@dataclass(frozen=True)
class CellSamples:
    """Samples of one cell: (role, row of samples.jsonl), the role being best, typical or worst."""

    key: str
    label: str
    samples: Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Provenance:
    """Where a study's numbers come from."""

    name: str
    description: str = ""
    sweep_text: str = ""
    """The sweep's file, as written; "" where only its cells are known."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Dotted setting -> value, of those that all cells share."""
    facts: Sequence[tuple[str, str]] = ()
    """(what, value): seeds, versions, hardware class, hashes of sources."""
    notes: Sequence[str] = ()
    """What is not known, and why."""


@dataclass(frozen=True)
class PageSources:
    """What the page takes from a study's folder, beside its records."""

    provenance: Provenance
    samples: Sequence[CellSamples] = ()
    samples_note: str = ""
    """Which cells the samples are of; or why there are none."""


@dataclass(frozen=True)
class Grid:
    """A table of the page."""

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    csv: str = ""
    """Relative address of the file that has all numbers; "" if there is none."""
    num_rows: int = 0
    """Rows before the cut at ``MOST_ROWS``."""

    @property
    def numeric(self) -> list[bool]:
        """For each column, whether its entries begin with a number or are missing."""
        return [_is_numeric([row[column] for row in self.rows]) for column in range(len(self.header))]

    @property
    def short(self) -> list[bool]:
        """For each column, whether its entries are short enough to stand on one line each."""
        columns = range(len(self.header))
        return [all(len(row[column]) <= ONE_LINE for row in self.rows) for column in columns]

    @property
    def head(self) -> int:
        """The column that names a row: the arm, or the first one."""
        return list(self.header).index("arm") if "arm" in self.header else 0


def grid(table: Table) -> Grid:
    """Lay out a table of ``all_tables``; its rows are cut at ``MOST_ROWS``."""
    rows, csv = table.rows[:MOST_ROWS], f"tables/{table.name}.csv"
    return Grid(f"table-{table.name}", table.title, table.header, rows, table.notes, csv, len(table.rows))


def counts(study: Study) -> list[tuple[str, int]]:
    """Return (status, cells), completed first; a combination that no row of cells.csv has is missing."""
    words = [_status(row)[0] for row in outcomes(study).to_dict("records")]
    return [(status, words.count(status)) for status in (COMPLETED, *UNFINISHED) if status in words]


def failure_grid(study: Study) -> Grid:
    """Return every cell without a final score: failed ones first, then running and missing ones, with the cause."""
    rows = []
    budgets = study.cells.set_index("cell")[
        ["spent_flops", "budget_axis", "budget_amount", "generated_tokens", "updates"]
    ]
    for row in outcomes(study).to_dict("records"):
        status, cause = _status(row)
        if status == COMPLETED:
            continue
        reached = _reached(budgets.loc[row["cell"]]) if row["cell"] in budgets.index else "n/a"
        rows.append([status, *_labels(row), cause or "no cause recorded", reached, row["cell"] or "n/a"])
    rows.sort(key=lambda row: UNFINISHED.index(row[0]))
    header = ["status", "arm", "task", "policy", "seed", "cause", "budget spent", "key"]
    return _cut("failures", "Cells without a final score", header, rows)


def cell_grid(study: Study) -> Grid:
    """Return one row a cell: its labels, status, scores, cost and key."""
    rows = []
    for row in outcomes(study).to_dict("records"):
        scores = (number(row["start"]), number(row["final"]), number(row["gain"], signed=True), number(row["auc"]))
        cost = (scientific(row["spent_flops"]), _count(row["generated_tokens"]), _count(row["updates"]))
        rows.append([_status(row)[0], *_labels(row), *scores, *cost, row["cell"] or "n/a"])
    header = ["status", "arm", "task", "policy", "seed", "start", "final", "gain", "AUC"]
    header += ["FLOPs (useful)", "generated tokens", "updates", "key"]
    note = "start and final: test score of the warm start and at the end of the budget; AUC: of the validation curve."
    return _cut(
        "cells", "Cells", header, rows, [note, "The key names the cell's folder: cells/KEY in a sweep's folder."]
    )


def arm_grid(study: Study) -> Grid:
    """Return for each arm the settings that are not the same in all cells of the study and one in the arm's."""
    names = [name for name in study.cells.columns if name.startswith(CONFIG_PREFIX)]
    rows = []
    for arm in study.arms:
        cells = study.cells[study.cells["arm"] == arm]
        settings = [(name, cells[name].iloc[0]) for name in names if cells[name].nunique() == 1 and cells[name].iloc[0]]
        words = "; ".join(f"{name.removeprefix(CONFIG_PREFIX)} = {value}" for name, value in settings)
        rows.append([arm, cells["objective"].iloc[0], cells["region"].iloc[0] or "none", words or "none of its own"])
    header = ["arm", "objective", "trust region", "settings that are not the same in all cells"]
    return _cut("arms", "Settings of the arms", header, rows)


def _cut(name: str, title: str, header: list[str], rows: list[list[str]], notes: Sequence[str] = ()) -> Grid:
    return Grid(name, title, header, rows[:MOST_ROWS], notes, "", len(rows))


def _status(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return status and cause as the tables count them: without a final score, a completed cell is missing."""
    if row["status"] == COMPLETED and math.isnan(row["final"]):
        return "missing", NO_SCORE
    return str(row["status"]), str(row["cause"])


def _labels(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return row["arm"], row["task"], row["policy"], str(row["seed"])


def _reached(cell: Any) -> str:
    """Return "42%" of the budget, as far as the records know it."""
    column = {"flops": "spent_flops", "tokens": "generated_tokens", "updates": "updates"}.get(cell["budget_axis"])
    share = float(cell[column]) / float(cell["budget_amount"]) if column else math.nan
    return "n/a" if math.isnan(share) else f"{share:.0%}"


def _count(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:,.0f}"


def _is_numeric(entries: Sequence[str]) -> bool:
    known = [entry for entry in entries if entry not in _MISSING and not entry.startswith("n/a")]
    return bool(known) and all(_NUMBER.match(entry) for entry in known)
