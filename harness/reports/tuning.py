"""What tuning cost and bought: tuned score, score as declared, expected best of n trials, spread, optima at an edge.

Reads ``records/tuning.csv`` of a tuned sweep, one row a trial (``harness.sweeps.tuning``).
"""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from harness.reports.formats import Table, number, scientific
from harness.reports.values import finite

__all__ = ["COLUMNS", "DECLARED", "expected_best", "load_tuning", "tuning_table", "words"]

FILE = "tuning.csv"
COLUMNS = (
    *("arm", "apart", "study", "trial", "settings", "score", "num_cells", "num_diverged", "spent_flops"),
    *("chosen_by", "edges"),
)
_TEXT = ("arm", "apart", "settings", "chosen_by", "edges")
DECLARED = 0
"""Number of the trial that is an arm's settings as they stand."""


def load_tuning(records: str | Path) -> pd.DataFrame:
    """Return the trials of a study's records, none for a study that was not tuned.

    Raises:
        ValueError: a column is missing.
    """
    file = Path(records) / FILE
    if not file.is_file():
        return pd.DataFrame(columns=list(COLUMNS))
    frame = pd.read_csv(file, dtype=dict.fromkeys(_TEXT, "str"), keep_default_na=False, na_values={"study": [""]})
    missing = [column for column in COLUMNS if column not in frame]
    if missing:
        raise ValueError(f"{file} lacks the column {missing[0]}: it is of another version; run the sweep again")
    return frame


def expected_best(scores: ArrayLike, num: int) -> float:
    """Return the expected maximum of ``num`` of the scores, drawn without replacement.

    The unbiased estimator of the expected best of ``num`` trials (Dodge et al. 2019, arXiv:1909.03004, corrected in
    arXiv:2110.00613 to draw without replacement). NaN for fewer than ``num`` scores.
    """
    ordered = np.sort(finite(scores))
    total = ordered.size
    if not 1 <= num <= total:
        return math.nan
    chances = [math.comb(place, num - 1) / math.comb(total, num) for place in range(total)]
    return float(np.dot(ordered, chances))


def tuning_table(trials: pd.DataFrame) -> Table:
    """Return a row an arm (and value of the axes tuned apart).

    Args:
        trials: of ``load_tuning``, at least one.
    """
    numbers: list[dict[str, object]] = []
    rows: list[list[str]] = []
    edges: list[str] = []
    most = int(trials["trial"].max())
    counts = sorted({1, *(2**k for k in range(1, 12) if 2**k < most), most})
    for (arm, apart), found in trials.groupby(["arm", "apart"], sort=False):
        drawn = found[found["trial"] != DECLARED]
        declared = float(found.loc[found["trial"] == DECLARED, "score"].iloc[0])
        chosen = found[found["chosen_by"] != ""]
        best = {f"best_of_{n}": _mean_over_studies(drawn, n) for n in counts}
        row = {
            **{"arm": arm, "apart": apart, "tuned": float(_weighted(chosen)), "declared": declared, **best},
            **{"trials": len(drawn), "diverged": int(found["num_diverged"].sum())},
            **{"lowest": float(drawn["score"].min()), "sd": float(drawn["score"].std(ddof=1))},
            "spent_flops": float(found["spent_flops"].sum()),
        }
        numbers.append(row)
        label = arm + (f" ({words(apart)})" if apart else "")
        edges += [f"{label}: {edge}" for text in chosen["edges"] for edge in text.split(", ") if edge]
        settings = "; ".join(dict.fromkeys(words(text) or "as declared" for text in chosen["settings"]))
        scores = [number(row["tuned"]), number(declared), *(number(best[f"best_of_{n}"]) for n in counts)]
        spread = [number(row["lowest"]), number(row["sd"])]
        rows.append([label, settings, *scores, *spread, str(row["diverged"]), scientific(row["spent_flops"])])
    header = ["arm", "chosen", "tuned", "as declared", *(f"best of {n}" for n in counts), "lowest", "SD"]
    return Table("tuning", "Tuning", [*header, "diverged cells", "FLOPs"], rows, _notes(edges), numbers)


def _mean_over_studies(drawn: pd.DataFrame, num: int) -> float:
    found = [expected_best(scores.to_numpy("float64"), num) for _, scores in drawn.groupby("study")["score"]]
    known = [value for value in found if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _weighted(chosen: pd.DataFrame) -> float:
    """Return the mean over studies of the score of what each has chosen."""
    weights = [len(json.loads(studies)) for studies in chosen["chosen_by"]]
    return float(np.average(chosen["score"].to_numpy("float64"), weights=weights))


def words(settings: str) -> str:
    """Return settings, a JSON object or "", as "learning_rate = 0.0001, ..."."""
    if not settings:
        return ""
    return ", ".join(f"{key.split('.')[-1]} = {_plain(value)}" for key, value in json.loads(settings).items())


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return str(value.get("name", json.dumps(value)))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _notes(edges: list[str]) -> list[str]:
    notes = [
        "Validation scores on the tuning seeds, mean over what was not tuned apart; a diverged cell counts 0. Every "
        "arm has the same number of quasi-random trials, and its settings as declared as one more.",
        "Tuned is the best of trials and settings as declared, and biased upwards for that: the comparison is on other "
        "seeds and on test. Best of n: expected best of n of the trials. Lowest and SD: over the trials.",
    ]
    if edges:
        notes.append(
            "AT THE EDGE of its range (outer tenth, or an end of listed numbers), a better value may lie beyond: "
            + "; ".join(edges)
            + "."
        )
    return notes
