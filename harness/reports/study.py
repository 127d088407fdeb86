"""Read a study's compact records: seven CSV files in, one frozen ``Study`` of DataFrames out.

``SCHEMA`` names the columns of each file; whatever writes the records imports it. An empty entry means missing, and so
does a column of ``LATER`` or the file of ``LATER_FILES`` that records from before it lack.
"""

# pandas ships no stubs and pyright infers "Series | DataFrame" for every selection:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false

import math
from dataclasses import dataclass, field
from gzip import BadGzipFile
from pathlib import Path

import numpy as np
import pandas as pd

from harness.reports.tuning import load_tuning

_CLIP_SIDES = ("pos_high", "pos_low", "neg_high", "neg_low")
LATER: dict[str, tuple[str, ...]] = {
    "cells.csv": ("failure", "condition"),
    "metrics.csv": (
        *("infra_frac", "num_rejected_groups", "greedy_reward_mean", "window_limited_frac", "replayed_frac"),
        *("response_tokens_right_mean", "response_tokens_wrong_mean"),
        *("alive_frac", "c_abs_mean", *(f"clip_{side}_frac" for side in _CLIP_SIDES)),
        *("clip_seq_frac", *(f"clip_seq_{side}_frac" for side in _CLIP_SIDES)),
        *("ratio_segment_min", "ratio_segment_max", "ratio_seq_min", "ratio_seq_max"),
        *("ess_token_frac", "ess_segment_frac", "ess_seq_frac"),
        *("kl_ref_per_token_nats", "kl_ref_per_sequence_nats", "region_divergence", "divergence_before_step"),
        *("step_kept_frac", "backtracks", "correction_mean", "correction_zero_frac", "critic_grad_norm", "value_loss"),
        *("shaped_reward_mean", "competence", "open_prompts_frac", "waiting_prompts_frac", "rollout_lag"),
        *("routed_changed_frac", "tokens_rerouted_frac", "expert_load_max_frac"),
        *(f"log_ratio{unit}_std_{routes}" for unit in ("", "_seq") for routes in ("free", "replayed")),
        *("all_right_frac", "clip_pos_high_prob_mean"),
    ),
    "evals.csv": (
        *("num_responses", "pass_at_1", "pass_at_1_low", "pass_at_1_high", "pass_at_1_prompts", "pass_at_1_floor"),
    ),
}
"""Columns that were added after studies had been shipped; they are written, and need not be there to be read."""
SCHEMA: dict[str, tuple[str, ...]] = {
    "cells.csv": (
        *("cell", "arm", "task", "policy", "seed", "status", "cause", "objective", "region", "delta", "delta_unit"),
        *("budget_axis", "budget_amount", "spent_flops", "executed_flops", "eval_flops", "discarded_flops"),
        *("generated_tokens", "trained_tokens", "updates", "iterations", *LATER["cells.csv"]),
    ),
    "timing.csv": ("cell", "seconds", "train_seconds", "eval_seconds", "peak_memory_bytes"),
    "evals.csv": (
        *("cell", "split", "fraction", "iteration", "updates", "spent_flops", "generated_tokens"),
        *("score", "num_prompts", "response_tokens_mean", "infra", *LATER["evals.csv"]),
    ),
    "metrics.csv": (
        *("cell", "iteration", "updates", "spent_flops", "generated_tokens", "reward_mean", "response_tokens_mean"),
        *("length_limited_frac", "entropy_nats", "informative_frac", "clip_frac", "dead_frac"),
        *("kl_old_per_token_nats", "kl_old_per_sequence_nats", "grad_norm", "region_coef", "ratio_min", "ratio_max"),
        *("policy_loss", *LATER["metrics.csv"]),
    ),
    "ratios.csv": ("cell", "iteration_bin", "log_ratio_low", "log_ratio_high", "count"),
    "surrogates.csv": ("arm", "advantage", "ratio", "loss", "weight"),
    "distributions.csv": ("cell", "name", "x_low", "x_high", "y_low", "y_high", "count"),
}
LATER_FILES = frozenset({"distributions.csv"})
"""Files that were added after studies had been shipped."""
TEXT_COLUMNS = frozenset(
    [
        *("cell", "arm", "task", "policy", "condition", "status", "failure", "cause", "objective", "region"),
        *("delta_unit", "budget_axis", "split", "iteration_bin", "name"),
    ]
)
CHOICES: dict[str, frozenset[str]] = {
    "status": frozenset({"completed", "failed", "running", "missing"}),
    "failure": frozenset({"divergence", "unscored", "budget", "error", ""}),
    "budget_axis": frozenset({"flops", "tokens", "updates", "seconds"}),
    "delta_unit": frozenset({"per_sequence", "per_token", ""}),
    "split": frozenset({"validation", "test"}),
}
KEYS: dict[str, tuple[str, ...]] = {
    "cells.csv": ("arm", "task", "policy", "seed"),
    "timing.csv": ("cell",),
    "evals.csv": ("cell", "split", "fraction"),
    "metrics.csv": ("cell", "iteration"),
}
CONFIG_PREFIX = "config."
PHASE_PREFIX = "phase."
RATE_PREFIXES = ("pass_at_", "maj_at_")
"""Of evals.csv's columns for the k that a study asks for, with ``_low``, ``_high`` and ``_prompts`` behind it."""
FURTHER_PREFIXES = (CONFIG_PREFIX, PHASE_PREFIX, *RATE_PREFIXES)
"""Columns that begin like this stand behind those of ``SCHEMA``."""
DEFAULT_BASELINE = "grpo"


@dataclass(frozen=True, eq=False)
class Study:
    """One study's records, one DataFrame a file, columns as in ``SCHEMA``."""

    cells: pd.DataFrame
    """One row a cell, in the sweep's order; also ``config.<dotted.key>`` (text) for each setting that differs and
    ``phase.<phase>.<amount>`` (numbers) of the ledger."""
    timing: pd.DataFrame
    """Wall-clock seconds and peak memory in bytes: not reproducible."""
    evals: pd.DataFrame
    metrics: pd.DataFrame
    ratios: pd.DataFrame
    surrogates: pd.DataFrame
    distributions: pd.DataFrame
    """Counts over a whole run of what has one number (y is empty) or two, by name; an empty bin has no row."""
    tuning: pd.DataFrame = field(default_factory=pd.DataFrame)
    """One row a trial of a tuned sweep, see ``harness.reports.tuning``; empty for any other."""

    def frame(self) -> pd.DataFrame:
        """Merge the metrics with their cells.

        Returns:
            One row an iteration of a cell: the metrics' columns, then the cell's. A column that both have
            (``updates``, ``spent_flops``, ``generated_tokens``) is the running amount; the total gets ``_total``.

        Example:
            >>> load_study(folder).frame().groupby("arm")["entropy_nats"].mean()
        """
        return self.metrics.merge(self.cells, on="cell", how="left", validate="many_to_one", suffixes=("", "_total"))

    @property
    def arms(self) -> list[str]:
        """Arms in the order of the cells."""
        return list(dict.fromkeys(self.cells["arm"]))

    @property
    def tasks(self) -> list[str]:
        """Tasks in the order of the cells."""
        return list(dict.fromkeys(self.cells["task"]))

    def baseline(self, name: str | None = None) -> str:
        """Return the baseline arm: ``name``, or "grpo" if present, or the first arm.

        Raises:
            ValueError: the study has no such arm.
        """
        if name is None:
            return DEFAULT_BASELINE if DEFAULT_BASELINE in self.arms else self.arms[0]
        if name not in self.arms:
            raise ValueError(f"baseline {name!r} is not an arm of this study; arms: {', '.join(self.arms)}")
        return name


def load_study(folder: str | Path) -> Study:
    """Read the records of one study.

    Args:
        folder: holds the files of ``SCHEMA``, each as it is or as .csv.gz; columns beyond them are kept, those of
            ``LATER`` may be missing.

    Returns:
        The study with every column of ``SCHEMA``; numbers are float64 (NaN where empty), ``seed`` is int64, text is ""
        where empty.

    Raises:
        ValueError: a file or column is missing, an entry is not a number or not among the allowed words, a key
            occurs twice, or a row names a cell that cells.csv lacks. The message names the file and the column.
    """
    folder = Path(folder)
    frames = {name: _read(folder / name, columns) for name, columns in SCHEMA.items()}
    cells = frames["cells.csv"]
    if cells.empty:
        raise ValueError(f"cells.csv in {folder}: no rows; a study has at least one cell")
    if cells["seed"].isna().any() or (cells["seed"] % 1 != 0).any():
        raise ValueError("cells.csv: column 'seed' must be a whole number in every row")
    cells["seed"] = cells["seed"].astype("int64")
    _require_unique("cells.csv", cells, ("cell",))
    for name, key in KEYS.items():
        _require_unique(name, frames[name], key)
    for name, frame in frames.items():
        known, column = (cells["arm"], "arm") if name == "surrogates.csv" else (cells["cell"], "cell")
        strangers = frame.loc[~frame[column].isin(known), column]
        if len(strangers):
            raise ValueError(f"{name}: column {column!r} holds {strangers.iloc[0]!r}, which cells.csv does not have")
    read = {name.removesuffix(".csv"): frame for name, frame in frames.items()}
    return Study(**read, tuning=load_tuning(folder))


def _read(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    packed = path.with_name(f"{path.name}.gz")
    if packed.is_file() and not path.exists():
        return _parsed(packed, path.name, columns)
    if path.name in LATER_FILES and not path.exists():
        return pd.DataFrame({name: pd.Series(dtype=str if name in TEXT_COLUMNS else "float64") for name in columns})
    if not path.is_file():
        raise ValueError(f"{path.name} is missing in {path.parent}; a study needs {', '.join(SCHEMA)}")
    return _parsed(path, path.name, columns)


def _parsed(path: Path, name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    try:
        raw = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except (pd.errors.EmptyDataError, pd.errors.ParserError, EOFError, BadGzipFile) as error:
        raise ValueError(f"{path.name}: not a CSV file with a header row ({error})") from error
    lacking = [column for column in columns if column not in raw.columns]
    required = [column for column in lacking if column not in LATER.get(name, ())]
    if required:
        raise ValueError(f"{path.name}: missing column(s) {', '.join(map(repr, required))}")
    converted = {str(column): _convert(name, str(column), raw[column]) for column in raw.columns}
    empty = {name: pd.Series("" if name in TEXT_COLUMNS else math.nan, raw.index) for name in lacking}
    return pd.DataFrame({**converted, **empty})


def _convert(name: str, column: str, values: pd.Series) -> pd.Series:
    if column in CHOICES:
        wrong = values[~values.isin(CHOICES[column])]
        if len(wrong):
            allowed = ", ".join(repr(word) for word in sorted(CHOICES[column]))
            raise ValueError(f"{name}: column {column!r} holds {wrong.iloc[0]!r}; allowed: {allowed}")
    if column in TEXT_COLUMNS or not (column in SCHEMA[name] or column.startswith((PHASE_PREFIX, *RATE_PREFIXES))):
        return values
    return pd.Series(_numbers(name, column, values.to_numpy(dtype=object)), index=values.index)


def _numbers(name: str, column: str, texts: np.ndarray) -> np.ndarray:
    try:
        return np.where(texts == "", "nan", texts).astype(np.float64)
    except ValueError:  # blanks, or what is no number and has to be named
        return np.array([_number(name, column, text) for text in texts], np.float64)


def _number(name: str, column: str, text: str) -> float:
    if not text.strip():
        return math.nan
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{name}: column {column!r} holds {text!r}, which is not a number") from error


def _require_unique(name: str, frame: pd.DataFrame, key: tuple[str, ...]) -> None:
    repeated = frame.loc[frame.duplicated(list(key)), list(key)]
    if len(repeated):
        row = ", ".join(f"{column}={repeated.iloc[0][column]}" for column in key)
        raise ValueError(f"{name}: two rows share {row}; the columns {', '.join(key)} together must be unique")
