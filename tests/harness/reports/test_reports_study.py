"""Reading the records: one frame a file, and errors that name the file and the column."""

import gzip

import pandas as pd
import pytest
from synthetic_study import write_study

from harness.reports.scores import outcomes, pairs, troubles
from harness.reports.study import LATER, LATER_FILES, SCHEMA, load_study


@pytest.fixture
def folder(tmp_path):
    return write_study(tmp_path / "records", arms=("ppo", "grpo"), tasks=("arithmetic",), seeds=(0, 1), iterations=4)


def _edit(folder, name, change):
    frame = pd.read_csv(folder / name, dtype=str, keep_default_na=False)
    change(frame).to_csv(folder / name, index=False)


def test_one_frame_holds_metrics_and_cells(folder):
    frame = load_study(folder).frame()
    # 2 arms x 2 seeds x 4 iterations
    assert len(frame) == 16
    first = frame[(frame["arm"] == "grpo") & (frame["iteration"] == 1)].iloc[0]
    assert (first["updates"], first["updates_total"], first["config.lr"]) == (4, 16, "1e-4")


def test_numbers_are_read_exactly_and_blanks_are_missing(folder):
    _edit(folder, "metrics.csv", lambda x: x.assign(entropy_nats=["0.1234567890123456789"] + [""] * (len(x) - 1)))
    entropy = load_study(folder).metrics["entropy_nats"]
    assert entropy.iloc[0] == 0.1234567890123456789
    assert entropy.iloc[1:].isna().all()


@pytest.mark.parametrize("name", [name for name in SCHEMA if name not in LATER_FILES])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"^{name} is missing"):
        load_study(folder)


@pytest.mark.parametrize(
    ("name", "column"),
    [(n, column) for n, columns in SCHEMA.items() for column in columns if column not in LATER.get(n, ())],
)
def test_a_missing_column_is_named(folder, name, column):
    _edit(folder, name, lambda x: x.drop(columns=column))
    with pytest.raises(ValueError, match=rf"^{name}: missing column\(s\) '{column}'$"):
        load_study(folder)


def test_packed_files_are_read_as_they_are(folder):
    whole = load_study(folder)
    for name in ("metrics.csv", "ratios.csv"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes(), mtime=0))
        (folder / name).unlink()
    packed = load_study(folder)
    pd.testing.assert_frame_equal(packed.metrics, whole.metrics)
    pd.testing.assert_frame_equal(packed.ratios, whole.ratios)
    (folder / "ratios.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(ValueError, match=r"ratios\.csv\.gz: not a CSV file"):
        load_study(folder)


def test_records_from_before_a_metric_are_read_and_it_is_missing(folder):
    later = LATER["metrics.csv"]
    assert {"alive_frac", "ess_seq_frac", "kl_ref_per_token_nats"} < set(later) < set(SCHEMA["metrics.csv"])
    old = [column for column in later if column != "alive_frac"]
    _edit(folder, "metrics.csv", lambda x: x.drop(columns=old).assign(alive_frac=["0.25"] + [""] * (len(x) - 1)))
    study = load_study(folder)
    assert set(study.metrics.columns) == set(SCHEMA["metrics.csv"])
    assert study.metrics[list(later)].dtypes.eq("float64").all()
    assert study.metrics[old].isna().all(axis=None)
    assert study.metrics["alive_frac"].tolist()[:1] == [0.25]
    assert study.metrics["alive_frac"].isna().sum() == len(study.metrics) - 1
    assert study.frame()["ess_seq_frac"].isna().all()


def test_a_word_in_a_number_column_is_named(folder):
    _edit(folder, "evals.csv", lambda x: x.assign(score="high"))
    with pytest.raises(ValueError, match=r"evals.csv: column 'score' holds 'high', which is not a number"):
        load_study(folder)


@pytest.mark.parametrize(
    ("name", "column"), [("cells.csv", "status"), ("cells.csv", "budget_axis"), ("evals.csv", "split")]
)
def test_an_unknown_word_is_named_with_the_allowed_ones(folder, name, column):
    _edit(folder, name, lambda x: x.assign(**{column: "done"}))
    with pytest.raises(ValueError, match=f"{name}: column '{column}' holds 'done'; allowed: "):
        load_study(folder)


@pytest.mark.parametrize("name", ["cells.csv", "evals.csv", "metrics.csv", "timing.csv"])
def test_a_repeated_row_is_refused(folder, name):
    _edit(folder, name, lambda x: pd.concat([x, x.iloc[:1]]))
    with pytest.raises(ValueError, match=f"{name}: two rows share"):
        load_study(folder)


def test_two_cells_of_one_arm_task_policy_and_seed_are_refused(folder):
    _edit(folder, "cells.csv", lambda x: x.assign(arm="grpo"))
    with pytest.raises(ValueError, match="arm, task, policy, seed together must be unique"):
        load_study(folder)


def test_a_row_of_an_unknown_cell_is_refused(folder):
    _edit(folder, "ratios.csv", lambda x: x.assign(cell="ghost"))
    with pytest.raises(ValueError, match=r"ratios.csv: column 'cell' holds 'ghost'"):
        load_study(folder)


def test_a_study_without_cells_is_refused(folder):
    _edit(folder, "cells.csv", lambda x: x.iloc[:0])
    with pytest.raises(ValueError, match="no rows"):
        load_study(folder)


def test_the_baseline_is_grpo_or_the_first_arm(tmp_path, folder):
    assert load_study(folder).baseline() == "grpo"
    other = write_study(tmp_path / "b", arms=("gspo", "ppo"), tasks=("arithmetic",), seeds=(0,), iterations=2)
    assert load_study(other).baseline() == "gspo"
    with pytest.raises(ValueError, match="'grpoo' is not an arm of this study; arms: ppo, grpo"):
        load_study(folder).baseline("grpoo")


def test_a_combination_without_a_row_counts_as_missing(folder):
    _edit(folder, "cells.csv", lambda x: x[~((x["arm"] == "ppo") & (x["seed"] == "1"))])
    for name in ("timing.csv", "evals.csv", "metrics.csv", "ratios.csv"):
        _edit(folder, name, lambda x: x[x["cell"] != "ari00s1"])
    found = troubles(outcomes(load_study(folder)))
    assert [(t.arm, t.status, t.runs) for t in found] == [("ppo", "missing", ("1",))]


def test_pairs_align_by_policy_and_seed_whatever_the_row_order(folder):
    before = pairs(outcomes(load_study(folder)), "final", "arithmetic", "ppo", "grpo")
    _edit(folder, "cells.csv", lambda x: pd.concat([x.iloc[2:], x.iloc[:2].iloc[::-1]]))
    after = pairs(outcomes(load_study(folder)), "final", "arithmetic", "ppo", "grpo")
    assert [values.tolist() for values in before] == [values.tolist() for values in after]
    assert before[0].tolist() != before[1].tolist()


def test_a_failed_cell_has_no_score_even_if_it_was_evaluated(folder):
    _edit(folder, "cells.csv", lambda x: x.assign(status=["failed", *x["status"][1:]], cause="killed"))
    row = outcomes(load_study(folder)).iloc[0]
    assert row["status"] == "failed"
    assert pd.isna(row["final"])
    assert pd.isna(row["auc"])
    assert row["start"] == 0.30
