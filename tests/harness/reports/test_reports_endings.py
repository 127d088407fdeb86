"""Runs that diverged, seeds that were lost, and the tables beside the comparison."""

import csv
import io
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from synthetic_study import with_scores, write_study

from harness.reports.accuracy import accuracy_frame, accuracy_table
from harness.reports.comparison import compare, comparison_table, worst_cases
from harness.reports.fits import fit_frame, fit_table
from harness.reports.formats import to_csv, to_markdown
from harness.reports.pooling import aggregate_table, profile_frame, profile_table
from harness.reports.ranking import rank_frame
from harness.reports.scores import outcomes
from harness.reports.stability import run_stability, stability_table
from harness.reports.study import load_study
from harness.reports.tables import all_tables
from harness.reports.thresholds import threshold_frame, threshold_table

ROOT = Path(__file__).resolve().parents[3]
FINALS = {"grpo": [0.40, 0.42, 0.44, 0.46], "gspo": [0.50, 0.53, 0.56, 0.60], "ppo": [0.30, 0.35, 0.31, 0.33]}
GONE = {("gspo", "arithmetic", 1): ("failed", "loss is nan at update 7")}
LOST = {("gspo", "arithmetic", 1): ("failed", "worker died 3 times (signal 9)")}


def _rows(table):
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


@pytest.fixture
def gone(tmp_path):
    """One run of gspo stopped after 11 of 20 iterations: its last score is that at half of the budget."""
    return load_study(with_scores(tmp_path / "gone", FINALS, statuses=GONE, iterations=20))


def test_only_a_recorded_divergence_is_one(tmp_path):
    """The kind of failure says so, never the words of its cause."""
    statuses = {("gspo", "arithmetic", 1): ("failed", "CUDA error: loss is nan on the device")}
    study = load_study(with_scores(tmp_path, FINALS, statuses=statuses))
    assert outcomes(study).set_index(["arm", "seed"]).loc[("gspo", 1), "status"] == "failed"


def test_a_run_that_diverged_carries_its_last_finite_score_forward(gone):
    row = compare(gone).set_index("arm").loc["gspo"]
    # a line from 0.2 to 0.53 is at 0.365 after half of the budget
    carried = [0.50, 0.365, 0.56, 0.60]
    assert row["final_score"] == pytest.approx(np.mean(carried))
    assert row["difference"] == pytest.approx(np.mean(np.subtract(carried, FINALS["grpo"])))
    assert (row["num_pairs"], row["completed"], row["diverged"], row["failed"]) == (4, 3, 1, 0)
    # the curve is 0.2 to 0.365 over the first half and 0.365 on the second: (0.2825 + 0.365) / 2
    auc = outcomes(gone).set_index(["arm", "seed"])["auc"]
    assert auc["gspo", 1] == pytest.approx(0.32375)


def test_a_worst_case_row_stands_beside_it(gone):
    worst = worst_cases(gone)
    assert list(worst["arm"]) == ["gspo"]
    assert worst["final_score"][0] == pytest.approx(np.mean([0.50, 0.0, 0.56, 0.60]))
    assert worst["difference"][0] == pytest.approx(np.mean([0.10, -0.42, 0.12, 0.14]))
    rows = _rows(comparison_table(gone))
    assert [row["arm"] for row in rows] == ["grpo", "gspo", "gspo (worst case)", "ppo"]
    assert rows[1]["seeds"] == rows[2]["seeds"] == "3/4 seeds, 1 diverged"
    assert "0.365 at 50% of the budget stands for its end" in rows[1]["failures"]
    assert rows[2]["Holm p"] == "-"
    numbers = list(csv.DictReader(io.StringIO(to_csv(comparison_table(gone)))))
    assert [row["case"] for row in numbers] == ["", "", "worst", ""]


def test_every_table_says_that_a_run_diverged(gone):
    for table in all_tables(gone):
        text = to_markdown(table)
        assert "1 diverged" in text, table.name
        if table.name not in ("accuracy", "costs", "timing"):  # of completed cells alone
            assert "Its last finite score stands for its end" in text, table.name


def test_a_divergence_shortens_no_other_curve(gone):
    frame = rank_frame(gone).set_index(["axis", "arm"])
    assert frame.loc[("spent_flops", "grpo"), "amount"] == pytest.approx(2e12)
    assert frame.loc[("spent_flops", "gspo"), "score"] == pytest.approx(np.mean([0.50, 0.365, 0.56, 0.60]))


def test_a_lost_seed_is_dropped_for_all_arms_and_named(tmp_path):
    study = load_study(with_scores(tmp_path, FINALS, statuses=LOST))
    frame = compare(study).set_index("arm")
    assert frame.loc["grpo", "final_score"] == pytest.approx(np.mean([0.40, 0.44, 0.46]))
    assert frame.loc["ppo", "difference"] == pytest.approx(np.mean([-0.10, -0.13, -0.13]))
    assert list(frame["num_pairs"]) == [0, 3, 3]
    rows = _rows(comparison_table(study))
    assert [row["seeds"] for row in rows] == ["4/4 seeds, 1 dropped", "3/4 seeds, 1 failed", "4/4 seeds, 1 dropped"]
    named = "gspo arithmetic seed 1 (worker died 3 times (signal 9)). The sweep runs them again with --retry-failed."
    for table in (comparison_table(study), aggregate_table(study), threshold_table(study)):
        assert any(named in note for note in table.notes), table.name
    iqm = {row["arm"]: row["iqm"] for row in aggregate_table(study).numbers}
    assert iqm["grpo"] == pytest.approx(np.mean([0.40, 0.44, 0.46]))


def test_an_arm_that_fails_throughout_drops_no_seed(tmp_path):
    statuses = {("gspo", "arithmetic", seed): ("failed", "out of memory") for seed in range(4)}
    study = load_study(with_scores(tmp_path, FINALS, statuses=statuses))
    assert not outcomes(study)["dropped"].any()
    assert compare(study).set_index("arm").loc["ppo", "num_pairs"] == 4


def test_cells_that_are_not_finished_drop_no_seed(tmp_path):
    statuses = {("gspo", "arithmetic", 1): ("running", ""), ("ppo", "arithmetic", 2): ("missing", "")}
    study = load_study(with_scores(tmp_path, FINALS, statuses=statuses))
    assert list(compare(study)["num_pairs"]) == [0, 3, 3]


def test_compute_to_threshold_counts_misses(tmp_path):
    """Straight lines from 0.2 over 2e12 FLOPs, evaluated at each quarter; grpo's mean gain is 0.23."""
    study = load_study(with_scores(tmp_path, FINALS))
    frame = threshold_frame(study, scores={"arithmetic": [0.45]}).set_index("arm")
    assert list(frame["hits"]) == [1, 4, 0]
    assert (frame.loc["grpo", "spent_flops"], frame.loc["ppo", "spent_flops"]) == (math.inf, math.inf)
    # 0.5, 0.53: after 0.83 and 0.76 of the budget, so at its end; 0.56, 0.60: at 0.69 and 0.625, so at three quarters
    assert frame.loc["gspo", "spent_flops"] == pytest.approx(1.75e12)
    assert frame["ratio"].isna().all()
    rows = {(row["threshold"], row["arm"]): row for row in _rows(threshold_table(study))}
    assert rows["0.430 (100%)", "ppo"]["useful FLOPs"] == "not reached"
    assert rows["0.430 (100%)", "ppo"]["reached [95%]"] == "0/4 [0.00, 0.49]"
    # half of the gain is 0.315: grpo needs 3, 3, 2 and 2 quarters, gspo 2, 2, 2 and 2 (0.345 at one quarter: never)
    half = threshold_frame(study).query("level == 0.5").set_index("arm").loc["gspo"]
    logs = np.log([3 / 2, 3 / 2, 1, 1])
    low, high = stats.t.interval(0.95, 3, np.mean(logs), stats.sem(logs))
    found = [half[name] for name in ("ratio", "ratio_low", "ratio_high")]
    assert found == pytest.approx(list(np.exp([np.mean(logs), low, high])))


def test_thresholds_need_a_gain_of_the_baseline(tmp_path):
    study = load_study(with_scores(tmp_path, {"grpo": [0.2, 0.1], "gspo": [0.5, 0.6]}))
    table = threshold_table(study)
    assert table.rows == []
    assert any("No threshold: grpo has no gain on validation in arithmetic" in note for note in table.notes)
    assert "| task" in to_markdown(table)


def test_stability_counts_what_went_wrong(tmp_path):
    folder = with_scores(tmp_path, FINALS, statuses=GONE, iterations=20)
    metrics = pd.read_csv(folder / "metrics.csv")
    seed = metrics["cell"].str[-1]
    metrics.loc[
        (metrics["cell"].str.startswith("ari02")) & (seed == "0") & (metrics["iteration"] == 9), "entropy_nats"
    ] = 0.001
    late = metrics["cell"].str.startswith("ari02") & (seed == "2") & (metrics["iteration"] > 17)
    metrics.loc[late, "reward_mean"] = 0.1
    metrics.loc[metrics["cell"].eq("ari00s3") & (metrics["iteration"] == 4), "grad_norm"] = 77.5
    metrics.to_csv(folder / "metrics.csv", index=False)
    study = load_study(folder)
    runs = run_stability(study).set_index(["arm", "run"])
    assert runs["collapsed"].sum() == 3
    # rewards 0.3 + 0.3 i / 20: the highest mean of three is at 17, 0.54, and the last 0.1
    assert runs.loc[("ppo", "2"), "largest_fall"] == pytest.approx(0.44)
    rows = {row["arm"]: row for row in _rows(stability_table(study))}
    assert rows["gspo"]["diverged [95%]"] == rows["gspo"]["collapsed [95%]"] == "1/4 [0.05, 0.70]"
    assert rows["ppo"]["collapsed [95%]"] == "2/4 [0.15, 0.85]"
    assert rows["grpo"]["largest gradient norm"] == "77.50"
    assert (rows["gspo"]["worst seed"], rows["ppo"]["worst seed"]) == ("0.365 (seed 1)", "0.300 (seed 0)")
    strict = run_stability(study, entropy_floor=10.0)
    assert strict["collapsed"].all()


def test_stability_of_unrecorded_metrics_is_missing(tmp_path):
    blank = ("entropy_nats", "grad_norm", "reward_mean")
    study = load_study(write_study(tmp_path, ("grpo",), ("arithmetic",), blank_metrics=blank, iterations=4))
    row = _rows(stability_table(study))[0]
    assert [row[name] for name in list(row)[6:9]] == ["n/a"] * 3


def test_accuracy_knows_the_sampling_error_of_the_prompts(tmp_path):
    folder = with_scores(tmp_path, {"grpo": [0.50, 0.25], "gspo": [0.75, 0.75]})
    frame = accuracy_frame(load_study(folder)).set_index("arm")
    # Wilson's interval of 128 and of 64 of 256 prompts
    ends = [stats.binomtest(hits, 256).proportion_ci(method="wilson") for hits in (128, 64)]
    assert frame.loc["grpo", "prompt_low"] == pytest.approx(np.mean([end.low for end in ends]))
    assert frame.loc["grpo", "prompt_high"] == pytest.approx(np.mean([end.high for end in ends]))
    assert _rows(accuracy_table(load_study(folder)))[0]["prompts"] == "256"
    evals = pd.read_csv(folder / "evals.csv")
    evals["num_responses"] = 1024
    for name, value in (("pass_at_1", 0.5), ("pass_at_1_low", 0.4), ("pass_at_1_high", 0.6), ("pass_at_4", 0.7)):
        evals[name] = value
    evals.to_csv(folder / "evals.csv", index=False)
    table = accuracy_table(load_study(folder))
    assert table.header[4:6] == ["pass@1", "pass@4"]
    assert table.rows[0][4:6] == ["0.500 ± 0.000 [0.400, 0.600]", "0.700 ± 0.000 [n/a]"]


def test_accuracy_of_partly_worth_responses_is_no_share(tmp_path):
    study = load_study(with_scores(tmp_path, {"grpo": [0.3333, 0.25]}))
    assert accuracy_frame(study)["num"].tolist() == [1]


def test_profiles_hold_the_share_of_runs(tmp_path):
    study = load_study(with_scores(tmp_path, FINALS))
    frame = profile_frame(study).set_index(["arm", "threshold"])
    assert frame.loc[("grpo", 0.43), "share"] == 0.5
    assert (frame["low"] <= frame["share"]).all()
    assert (frame["share"] <= frame["high"]).all()
    assert _rows(profile_table(study))[1]["> 0.5"] == "0.75"


def test_fits_of_a_study_are_made_or_refused(tmp_path):
    fractions = tuple(point / 12 for point in range(13))
    folder = write_study(tmp_path, ("grpo", "gspo"), ("arithmetic",), range(4), iterations=60, fractions=fractions)
    study = load_study(folder)
    frame = fit_frame(study)
    table = fit_table(study)
    assert list(frame["num_seeds"]) == [4, 4]
    for row, verdict in zip(frame.to_dict("records"), (row[-2] for row in table.rows), strict=True):
        assert verdict == (f"refused: {row['refusal']}" if row["refusal"] else "fitted")
    few = fit_table(load_study(with_scores(tmp_path / "few", FINALS)))
    assert {row[-2] for row in few.rows} == {"refused: 4 evaluations after the start, 5 needed beyond the lower knee"}
