"""How runs go wrong: diverged, collapsed, the worst seed, the largest gradient."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math

import numpy as np
import pandas as pd

from harness.reports.formats import Table, columns, number
from harness.reports.pass_at_k import rate
from harness.reports.scores import COMPLETED, DIVERGED, ending_notes, outcomes, states
from harness.reports.study import Study
from harness.reports.trajectories import largest_fall

ENTROPY_FLOOR = 0.01
"""Nats a token: a policy below it is all but deterministic."""
REWARD_FALL = 0.2
"""Of the mean training reward, from its highest level to a later one."""
WINDOW = 3
"""Iterations whose mean is a level of the reward."""


def run_stability(
    study: Study, entropy_floor: float = ENTROPY_FLOOR, reward_fall: float = REWARD_FALL, window: int = WINDOW
) -> pd.DataFrame:
    """Judge every run that completed or diverged by its metrics.

    Returns:
        One row a run: task, arm, run, ``diverged`` (a loss or gradient was not finite), ``lowest_entropy`` (nats a
        token), ``largest_fall`` (of the mean reward of ``window`` iterations below the highest such mean before),
        ``largest_grad_norm`` (before clipping), all NaN where they are not recorded; ``collapsed``: diverged, or the
        entropy was below ``entropy_floor``, or the fall above ``reward_fall``; ``score``, the final one, or the last
        finite one of a run that diverged.
    """
    table = outcomes(study)
    table = table[table["status"].isin((COMPLETED, DIVERGED))]
    columns = ["entropy_nats", "reward_mean", "grad_norm"]
    metrics = study.metrics.sort_values(["cell", "iteration"], kind="stable")
    values = {name: metrics[name].to_numpy("float64") for name in columns}
    places = metrics.reset_index(drop=True).groupby("cell", sort=False).indices
    rows = []
    for row in table.itertuples():
        entropy, reward, norm = (values[name][places.get(row.cell, _NOWHERE)] for name in columns)
        found = {"diverged": row.status == DIVERGED, "lowest_entropy": _extreme(np.min, entropy)}
        found |= {"largest_fall": largest_fall(reward, window), "largest_grad_norm": _extreme(np.max, norm)}
        collapsed = found["lowest_entropy"] < entropy_floor or found["largest_fall"] > reward_fall
        found["collapsed"] = bool(collapsed or found["diverged"])
        score = row.last if row.status == DIVERGED else row.final
        rows.append({"task": row.task, "arm": row.arm, "run": row.run, **found, "score": score})
    return pd.DataFrame(rows, columns=None if rows else _COLUMNS)


def stability_table(study: Study) -> Table:
    """Count what went wrong, one row a task and arm."""
    runs = run_stability(study)
    numbers, rows = [], []
    for task in study.tasks:
        for arm in study.arms:
            here = runs[(runs["task"] == task) & (runs["arm"] == arm)]
            completed, failures = states(study)[task, arm]
            row = {"task": task, "arm": arm, **_summary(here)}
            numbers.append(row)
            shares = [_share(row, name) for name in ("diverged", "collapsed")]
            worst = f"{number(row['worst_score'])} (seed {row['worst_seed']})" if row["worst_seed"] else "n/a"
            values = [number(row["lowest_entropy"]), number(row["largest_fall"]), number(row["largest_grad_norm"], 2)]
            rows.append([task, arm, completed, *shares, worst, *values, failures])
    notes = [
        f"Diverged: a loss or gradient was not finite. Collapsed: diverged, or the policy's entropy fell below "
        f"{ENTROPY_FLOOR:g} nats a token, or the training reward (mean of {WINDOW} iterations) more than "
        f"{REWARD_FALL:g} below its highest level. Shares are of runs that completed or diverged, with a 95% Wilson "
        "interval: no event among a few seeds is no proof of stability, and arms whose intervals overlap are not told "
        "apart.",
        "Worst seed: the lowest score at the end on the test split. Entropy, reward fall and gradient norm (before "
        "clipping) are the extremes over all iterations and seeds.",
        *ending_notes(study),
    ]
    header = [
        "task",
        "arm",
        "seeds",
        "diverged [95%]",
        "collapsed [95%]",
        "worst seed",
        "lowest entropy (nats a token)",
    ]
    header += ["largest reward fall", "largest gradient norm", "failures"]
    parts = columns(header, header[:6], [*header[:2], *header[6:-1]], [*header[:3], header[-1]])
    return Table("stability", "Stability of the runs", header, rows, notes, numbers, parts)


_NOWHERE = np.array([], dtype=np.int64)
_COLUMNS = [
    "task",
    "arm",
    "run",
    "diverged",
    "lowest_entropy",
    "largest_fall",
    "largest_grad_norm",
    "collapsed",
    "score",
]


def _summary(runs: pd.DataFrame) -> dict[str, object]:
    row: dict[str, object] = {"num": len(runs)}
    for name in ("diverged", "collapsed"):
        share = rate(runs[name].to_numpy("float64"))
        row |= {f"num_{name}": int(runs[name].sum()), name: share.mean}
        row |= {f"{name}_low": share.low, f"{name}_high": share.high}
    scored = runs[runs["score"].notna()].reset_index(drop=True)
    worst = scored.loc[int(scored["score"].argmin())] if len(scored) else None
    row |= {"worst_score": math.nan if worst is None else float(worst["score"])}
    row |= {"worst_seed": "" if worst is None else str(worst["run"])}
    return row | {
        "lowest_entropy": float(runs["lowest_entropy"].min()),
        "largest_fall": float(runs["largest_fall"].max()),
        "largest_grad_norm": float(runs["largest_grad_norm"].max()),
    }


def _share(row: dict, name: str) -> str:
    if not row["num"]:
        return "n/a"
    return f"{row[f'num_{name}']}/{row['num']} [{number(row[f'{name}_low'], 2)}, {number(row[f'{name}_high'], 2)}]"


def _extreme(of, values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(of(known)) if known.size else math.nan
