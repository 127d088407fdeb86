"""Two studies side by side: paired by hand, and every reason why cells do not pair."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats
from synthetic_study import write_study

from harness.reports.scores import outcomes
from harness.reports.side_by_side import Side, compare_sides
from harness.reports.study import load_study


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    first = load_study(write_study(folder / "a", arms=("ppo", "grpo"), seeds=(0, 1, 2, 3), iterations=4))
    status = {("grpo", "arithmetic", 1): ("failed", "nan loss")}
    second = load_study(write_study(folder / "b", arms=("ppo", "grpo"), seeds=(0, 1, 2), statuses=status, iterations=4))
    return first, second


def changed(study, **columns):
    return dataclasses.replace(study, cells=study.cells.assign(**columns))


def final(study, arm, task, seed):
    cells, evals = study.cells, study.evals
    cell = cells[(cells["arm"] == arm) & (cells["task"] == task) & (cells["seed"] == seed)]["cell"].iloc[0]
    return evals[(evals["cell"] == cell) & (evals["split"] == "test") & (evals["fraction"] == 1)]["score"].iloc[0]


def notes(first, second, **sides):
    return " ".join(compare_sides(Side("first", first), Side("second", second)).notes)


def test_differences_are_those_of_scipy(pair) -> None:
    first, second = pair
    table = compare_sides(Side("first", first, "ppo"), Side("second", second, "grpo"))
    row = next(row for row in table.numbers if row["task"] == "synthesis")
    a = np.array([final(first, "ppo", "synthesis", seed) for seed in range(3)])
    b = np.array([final(second, "grpo", "synthesis", seed) for seed in range(3)])
    assert row["num_pairs"] == 3
    assert row["not_paired"] == 1
    assert row["difference"] == pytest.approx((b - a).mean())
    ends = stats.ttest_rel(b, a).confidence_interval(0.95)
    assert (row["difference_low"], row["difference_high"]) == pytest.approx((ends.low, ends.high))


def test_the_same_records_differ_by_nothing(pair) -> None:
    table = compare_sides(Side("x", pair[0]), Side("y", pair[0]))
    assert {row["difference"] for row in table.numbers} == {0.0}
    assert [row[:4] for row in table.rows] == [
        [task, arm, "4", "0"] for task in ("arithmetic", "synthesis") for arm in ("ppo", "grpo")
    ]


def test_unfinished_and_lone_cells_are_counted_with_the_reason(pair) -> None:
    text = notes(*pair)
    assert "Not paired, no test score in B (failed nan loss): 1 cell: grpo on arithmetic (1)." in text
    assert "Not paired, seed only in A: 4 cells" in text


def test_a_run_that_diverged_pairs_with_its_last_score(pair, tmp_path) -> None:
    gone = {("grpo", "arithmetic", 1): ("failed", "loss is nan at update 3")}
    second = load_study(write_study(tmp_path, arms=("ppo", "grpo"), seeds=(0, 1, 2), statuses=gone, iterations=20))
    table = compare_sides(Side("first", pair[0]), Side("second", second))
    (row,) = (row for row in table.numbers if (row["task"], row["arm"]) == ("arithmetic", "grpo"))
    assert row["num_pairs"] == 3
    ends = outcomes(second).set_index(["task", "arm", "seed"])["last"]
    carried = ends["arithmetic", "grpo", 1]
    assert row["second"] == pytest.approx(np.mean([carried, *(final(second, "grpo", "arithmetic", s) for s in (0, 2))]))
    assert "B: Diverged (a loss or gradient was not finite): grpo arithmetic seed 1" in " ".join(table.notes)


def test_other_budgets_do_not_pair(pair) -> None:
    table = compare_sides(Side("x", pair[0]), Side("y", changed(pair[0], budget_amount=1e12)))
    assert {row["num_pairs"] for row in table.numbers} == {0}
    assert all(math.isnan(row["difference"]) for row in table.numbers)
    assert "budgets differ: 2.00e+12 useful FLOPs in A, 1.00e+12 useful FLOPs in B: 16 cells" in " ".join(table.notes)
    assert table.rows[0][4:] == ["n/a (0 seeds)"] * 2 + ["n/a (0 pairs)"] * 3


@pytest.mark.parametrize("column", ["policy", "task", "arm"])
def test_other_labels_do_not_pair(pair, column) -> None:
    text = notes(pair[0], changed(pair[0], **{column: pair[0].cells[column] + "-x"}))
    assert f"Not paired, {column} only in A: 16 cells" in text
    assert f"Not paired, {column} only in B: 16 cells" in text


def test_other_test_prompts_do_not_pair(pair) -> None:
    fewer = dataclasses.replace(pair[0], evals=pair[0].evals.assign(num_prompts=128.0))
    assert "tested on 256 prompts in A, 128 in B: 16 cells" in notes(pair[0], fewer)


def test_another_warm_start_is_said(pair) -> None:
    evals = pair[0].evals
    shifted = evals.assign(score=evals["score"] + 0.1 * (evals["fraction"] == 0))
    assert "score differs in 16 of 16 pairs" in notes(pair[0], dataclasses.replace(pair[0], evals=shifted))


def test_settings_and_versions_are_compared_where_both_are_known(pair) -> None:
    cells = list(pair[0].cells["cell"])
    old = {cell: {"versions.torch": "2.12.0", "config.update.epochs": "1"} for cell in cells}
    new = {cell: {"versions.torch": "2.13.0", "config.update.epochs": "1"} for cell in cells}
    sides = Side("x", pair[0], None, old), Side("y", pair[0], None, new)
    text = " ".join(compare_sides(*sides).notes)
    assert "Differs beyond the arm in 16 of 16 pairs: versions.torch (2.12.0 and 2.13.0)." in text
    assert "epochs" not in text
    assert "B has records without them (provenance.json)" in " ".join(compare_sides(sides[0], Side("y", pair[0])).notes)


def test_an_arm_that_is_not_there_is_refused(pair) -> None:
    with pytest.raises(ValueError, match="x has no arm 'gspo'; arms: ppo, grpo"):
        Side("x", pair[0], "gspo")
