"""How exactly an evaluation knows a policy: pass@k of the final policies, prompts being the observations."""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
import re
from itertools import groupby

import numpy as np
import pandas as pd

from harness.reports.formats import PLUS_MINUS, Table, columns, number
from harness.reports.pass_at_k import share_interval
from harness.reports.scores import COMPLETED, by_arm, states
from harness.reports.statistics import mean_interval
from harness.reports.study import Study
from harness.reports.trajectories import ENDED

_RATE = re.compile(r"(pass|maj)_at_(\d+)")


def accuracy_frame(study: Study) -> pd.DataFrame:
    """Collect the final policies' accuracies on the test split, one row a task, arm and measure.

    Returns:
        ``measure`` ("pass_at_1", ...), ``num`` completed cells that have it, ``mean`` and its 95% t ``half_width``
        over seeds; ``prompt_low`` and ``prompt_high``: mean over cells of the ends of each cell's own 95% interval,
        in which every prompt is one observation, whatever its samples (``pass_at_k.rate``); ``num_prompts`` (the
        fewest of a cell). Records from before an evaluation knew pass@1 hold one response a prompt: their score is
        the share of prompts, and the interval that of a share. NaN where responses are worth a part of 1.
    """
    ends = study.evals[(study.evals["split"] == "test") & (study.evals["fraction"] == ENDED)]
    names = [str(name) for name in study.evals.columns if _RATE.fullmatch(str(name))]
    names.sort(key=lambda name: (name.startswith("maj"), int(name.rpartition("_")[2])))
    ends = _completed(ends).set_index("cell")
    names = [name for name in names if ends[name].notna().any()]
    rows = []
    for (task, arm), cells in by_arm(study).items():
        done = cells.loc[(cells["status"] == COMPLETED) & cells["cell"].isin(ends.index), "cell"]
        rows += [{"task": task, "arm": arm, **_row(ends.loc[list(done)], name)} for name in names]
    return pd.DataFrame(rows, columns=None if rows else ["task", "arm", "measure"])


def accuracy_table(study: Study) -> Table:
    """Lay the accuracies out: mean over seeds, and how far the choice of prompts may move it."""
    frame = accuracy_frame(study)
    names = list(dict.fromkeys(frame["measure"]))
    found = {key: list(rows) for key, rows in groupby(frame.to_dict("records"), lambda row: (row["task"], row["arm"]))}
    rows = []
    for task in study.tasks:
        for arm in study.arms:
            completed, failures = states(study)[task, arm]
            here = found.get((task, arm), [])
            prompts = [row["num_prompts"] for row in here if row["num"]]
            texts = [_text(row) for row in here]
            rows.append([task, arm, completed, f"{prompts[0]:.0f}" if prompts else "n/a", *texts])
            rows[-1].append(failures)
    notes = [
        f"Of the final policies on the test split: mean over completed seeds {PLUS_MINUS} half-width of the 95% t "
        "interval over seeds; [ ] is the mean of the cells' own 95% intervals over prompts, in which a prompt is one "
        "observation, whatever its samples (Wilson's, of the effective number of prompts). All cells are asked the "
        "same prompts: more seeds do not narrow [ ], and other prompts may move all arms together.",
    ]
    header = ["task", "arm", "seeds", "prompts", *(name.replace("_at_", "@") for name in names), "failures"]
    parts = columns(header, header[:-1], [*header[:3], header[-1]])
    return Table("accuracy", "Accuracy of the final policies", header, rows, notes, frame.to_dict("records"), parts)


def _completed(ends: pd.DataFrame) -> pd.DataFrame:
    """Return evaluations with pass@1 and its interval where they lack it and every prompt has one whole response."""
    ends = ends.copy()
    once = ends["num_responses"].isna() | (ends["num_responses"] == ends["num_prompts"])
    asked = ends["num_prompts"] - ends["infra"].fillna(0)
    hits = ends["score"] * asked
    whole = ends["pass_at_1"].isna() & once & ((hits - hits.round()).abs() < _ROUNDING) & (asked > 0)
    columns = ["pass_at_1", "pass_at_1_low", "pass_at_1_high", "pass_at_1_prompts"]
    shares = [
        (score, *share_interval(score, num), num) for score, num in zip(ends["score"][whole], asked[whole], strict=True)
    ]
    ends.loc[whole, columns] = np.array(shares).reshape(-1, len(columns))
    return ends


_ROUNDING = 1e-6


def _row(cells: pd.DataFrame, name: str) -> dict[str, object]:
    known = cells[cells[name].notna()]
    interval = mean_interval(known[name])
    ends = [_mean(known, f"{name}_{end}") for end in ("low", "high")]
    prompts = known[f"{name}_prompts"].min() if f"{name}_prompts" in known else math.nan
    return {
        **{"measure": name, "num": len(known), "mean": interval.mean, "half_width": interval.half_width},
        **{"prompt_low": ends[0], "prompt_high": ends[1], "num_prompts": float(prompts)},
    }


def _mean(rows: pd.DataFrame, name: str) -> float:
    values = rows[name].to_numpy("float64") if name in rows else np.array([math.nan])
    return float(np.mean(values)) if values.size and not np.isnan(values).any() else math.nan


def _text(row: dict) -> str:
    if not row["num"]:
        return "n/a"
    spread = "n/a (1 seed)" if row["num"] == 1 else f"{PLUS_MINUS} {number(row['half_width'])}"
    known = not math.isnan(row["prompt_low"])
    ends = f"[{number(row['prompt_low'])}, {number(row['prompt_high'])}]" if known else "[n/a]"
    return f"{number(row['mean'])} {spread} {ends}"
