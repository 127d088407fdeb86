"""Equal tuning: the same trials for every arm, judged on validation with seeds of their own, before the sweep begins.

The trials of a sweep are a sweep themselves, run and recorded like any other, in the folder ``tuning`` beside its
cells. An arm's trials are its settings as they stand, and quasi-random points of the shared space and its own; those of
the shared space are the same for every arm. The final validation scores of a trial are averaged over the tuning seeds
and all axes that are not tuned apart; the best trial of a study wins, the first of equals. A trial that diverged has
the worst score. (External tuning as in AlgoPerf, arXiv:2306.07179: a fixed number of trials, drawn before any is run.)
"""

import csv
import io
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.errors import UserError
from harness.config.sweep import SweepConfig, TuningConfig
from harness.sweeps.files import write_atomic
from harness.sweeps.grid import Cell
from harness.sweeps.records import read_status, read_stream
from harness.sweeps.search import at_edge
from harness.sweeps.trials import DECLARED, Trial, trials_of, tuning_of

__all__ = ["FOLDER", "WORST", "Judged", "Tuned", "judge", "write_tuning"]

FOLDER = "tuning"
WORST = 0.0
"""Score of a trial that diverged: the least that a task gives."""


@dataclass(frozen=True)
class Judged:
    """A trial's outcome for one combination of the axes that are tuned apart.

    Attributes:
        trial: the trial.
        apart: axis -> value of those axes.
        score: mean final validation score; that of a diverged cell is ``WORST``.
        num_cells: cells in the mean.
        num_diverged: cells of them that diverged.
        spent_flops: of all its cells.
    """

    trial: Trial
    apart: Mapping[str, Any]
    score: float
    num_cells: int
    num_diverged: int
    spent_flops: float


@dataclass(frozen=True)
class Tuned:
    """What tuning found.

    Attributes:
        sweep: the sweep that was tuned.
        judged: every trial and combination.
    """

    sweep: SweepConfig
    judged: Sequence[Judged]

    def best(self, arm: str, study: int, apart: Mapping[str, Any]) -> Judged:
        """Return the best trial of an arm in a study; the arm as declared takes part in each."""
        mine = [found for found in self.judged if found.trial.arm == arm and found.apart == apart]
        mine = [found for found in mine if found.trial.number == DECLARED or found.trial.study == study]
        return max(mine, key=lambda found: found.score)

    def settings(self, arm: str, axes: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
        """Return what is set for a cell of the sweep; its seed modulo the number of studies names the study."""
        tuning = tuning_of(self.sweep)
        return self.best(arm, seed % tuning.studies, _apart(tuning, axes)).trial.settings

    def lines(self) -> list[str]:
        """Return what was chosen, a line an arm and study, for a reader."""
        tuning, lines = tuning_of(self.sweep), list[str]()
        for arm in self.sweep.arms:
            aparts = {
                json.dumps(dict(j.apart), sort_keys=True): j.apart for j in self.judged if j.trial.arm == arm.name
            }
            for (text, apart), study in itertools.product(aparts.items(), range(tuning.studies)):
                best = self.best(arm.name, study, apart)
                where = "".join([f", {text}" if apart else "", f", study {study}" if tuning.studies > 1 else ""])
                chosen = ", ".join(f"{k} = {v}" for k, v in best.trial.settings.items()) or "its settings as declared"
                lines.append(f"{arm.name}{where}: {chosen} (validation {best.score:.3f})")
        return lines

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a trial and combination, for ``records/tuning.csv``."""
        tuning, spaces = tuning_of(self.sweep), {arm.name: arm.space for arm in self.sweep.arms}
        rows: list[dict[str, Any]] = []
        for found in self.judged:
            trial = found.trial
            space = {**tuning.space, **spaces[trial.arm]}
            edges = {key: at_edge(space[key], value) for key, value in trial.settings.items() if key in space}
            studies = range(tuning.studies) if trial.number == DECLARED else [trial.study]
            chosen = [study for study in studies if self.best(trial.arm, study, found.apart) is found]
            rows.append(
                {
                    "arm": trial.arm,
                    "apart": json.dumps(dict(found.apart), sort_keys=True) if found.apart else "",
                    "study": None if trial.number == DECLARED else trial.study,
                    "trial": trial.number,
                    "settings": json.dumps(dict(trial.settings), sort_keys=True),
                    "score": found.score,
                    "num_cells": found.num_cells,
                    "num_diverged": found.num_diverged,
                    "spent_flops": found.spent_flops,
                    "chosen_by": json.dumps(chosen) if chosen else "",
                    "edges": ", ".join(f"{key} {end}" for key, end in sorted(edges.items()) if end),
                }
            )
        return rows


def judge(sweep: SweepConfig, cells: Sequence[Cell], folder: Path) -> Tuned:
    """Return what the trials of a sweep, all of them run, say.

    Args:
        sweep: the sweep that is tuned.
        cells: of ``trial_sweep(sweep)``.
        folder: the run folder of each is ``folder``/cells/<key>.

    Raises:
        UserError: a trial was not run to its end, and not because it diverged.
    """
    tuning, trials = tuning_of(sweep), {trial.name: trial for trial in trials_of(sweep)}
    grouped: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        apart = json.dumps(_apart(tuning, cell.axes), sort_keys=True)
        grouped.setdefault((cell.base_arm, apart), []).append(cell)
    judged: list[Judged] = []
    for (name, apart), members in grouped.items():
        ends = [_end(folder / "cells" / cell.key, cell) for cell in members]
        judged.append(
            Judged(
                trials[name],
                json.loads(apart),
                math.fsum(score for score, _, _ in ends) / len(ends),
                len(ends),
                sum(diverged for _, diverged, _ in ends),
                math.fsum(flops for _, _, flops in ends),
            )
        )
    return Tuned(sweep, judged)


def _end(path: Path, cell: Cell) -> tuple[float, bool, float]:
    """Return a trial's final validation score, whether it diverged, and what it spent."""
    status = read_status(path)
    flops = float(status.get("totals", {}).get("spent_flops") or 0)
    if status["failure"] == "divergence":
        return WORST, True, flops
    if status["status"] != "completed":
        cause = status["cause"] or status["status"]
        raise UserError(
            f"trial {cell.label} is not done ({cause}): run it again with --retry-failed; nothing is chosen yet"
        )
    rows = [row for row in read_stream(path, "evals") if row["split"] == "validation" and row["fraction"] == 1.0]
    score = rows[-1]["score"]
    if score is None:
        raise UserError(f"trial {cell.label} has no score (nothing could be scored): nothing is chosen")
    return float(score), False, flops


def _apart(tuning: TuningConfig, axes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in axes.items() if key in tuning.per}


def write_tuning(records: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of ``Tuned.rows`` to ``records``/tuning.csv; a missing value is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(records / "tuning.csv", text.getvalue().encode())
