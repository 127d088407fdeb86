"""The sweep's folder and its compact records."""

import csv

import fake_engine
import pytest
from fake_sweep import plan_of

from harness.config.errors import CorruptRecordError, UserError
from harness.reports.study import SCHEMA, load_study
from harness.sweeps.compact import compact
from harness.sweeps.layout import read_sweep
from harness.sweeps.run_folder import RunFolder
from harness.sweeps.study import StudyFolder, load

TEXT = """
name = "study"
seeds = [0, 1]
baseline = "b"
arms = [{name = "a", update = {epochs = 2}}, {name = "b", objective = {name = "gspo"}}]
base.budget = {axis = "updates", amount = 9}
axes.task = [{name = "arithmetic"}, {name = "synthesis"}]
"""


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "sweep.toml").write_text(TEXT)
    return plan_of(tmp_path / "sweep.toml")


def run(plan, folder, cells):
    with StudyFolder.open(folder, plan.sweep, plan.cells) as study:
        for cell in cells:
            with RunFolder.open(study.cell(cell.key), cell.identity) as run_folder:
                fake_engine.run_cell(cell.config, run_folder, lambda _: None)


def rows(folder, name):
    with (folder / "records" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_records_of_a_whole_sweep_are_what_reports_read(plan, tmp_path):
    run(plan, tmp_path / "out", plan.cells)
    study = load_study(compact(tmp_path / "out"))
    assert list(study.cells["cell"]) == [cell.key for cell in plan.cells]
    assert list(study.cells["status"]) == ["completed"] * 8
    assert (study.arms, study.tasks) == (["a", "b"], ["arithmetic", "synthesis"])
    assert list(study.cells["config.update.epochs"])[::4] == ["2", "1"]
    assert (study.cells["executed_flops"] == 18e6).all()
    assert len(study.metrics) == 72
    assert len(study.evals) == 24
    assert len(study.timing) == 8
    assert len(load(tmp_path / "out")) == 72


def test_ratio_counts_are_summed_over_thirds_of_the_run(plan, tmp_path):
    run(plan, tmp_path / "out", plan.cells[:1])
    compact(tmp_path / "out")
    found = [tuple(row.values())[1:] for row in rows(tmp_path / "out", "ratios.csv")]
    assert found == [
        ("first third", "-1.0", "0.0", "6"),  # 1 + 2 + 3
        ("first third", "0.0", "1.0", "6"),
        ("second third", "-1.0", "0.0", "15"),
        ("second third", "0.0", "1.0", "6"),
        ("last third", "-1.0", "0.0", "24"),
        ("last third", "0.0", "1.0", "6"),
    ]


def test_surrogates_are_written_once_an_arm(plan, tmp_path):
    run(plan, tmp_path / "out", plan.cells)
    compact(tmp_path / "out")
    found = [(row["arm"], row["ratio"], row["loss"]) for row in rows(tmp_path / "out", "surrogates.csv")]
    assert found == [("a", "0.5", "-0.5"), ("a", "1.5", "-1.2"), ("b", "0.5", "-0.5"), ("b", "1.5", "-1.2")]


def test_an_incomplete_sweep_shows_missing_running_and_failed_cells(plan, tmp_path):
    run(plan, tmp_path / "out", plan.cells[:1])
    with StudyFolder.open(tmp_path / "out", plan.sweep, plan.cells) as study:
        running = RunFolder.open(study.cell(plan.cells[1].key), plan.cells[1].identity)
        running.append("metrics", fake_engine.metric(4, 0.5))
        running.flush()
        with RunFolder.open(study.cell(plan.cells[2].key), plan.cells[2].identity) as failed:
            failed.finish("failed", "loss is\nnan, so there")
    compact(tmp_path / "out")
    found = rows(tmp_path / "out", "cells.csv")
    assert [row["status"] for row in found] == ["completed", "running", "failed"] + ["missing"] * 5
    assert (found[2]["failure"], found[2]["cause"]) == ("error", "loss is nan, so there")
    assert (found[1]["spent_flops"], found[1]["executed_flops"], found[3]["spent_flops"]) == ("4000000.0", "", "")
    assert list(found[0])[: len(SCHEMA["cells.csv"])] == list(SCHEMA["cells.csv"])
    with running:
        pass


def test_compacting_twice_gives_the_same_bytes(plan, tmp_path):
    run(plan, tmp_path / "out", plan.cells)
    first = {f.name: f.read_bytes() for f in compact(tmp_path / "out").iterdir()}
    assert {f.name: f.read_bytes() for f in compact(tmp_path / "out").iterdir()} == first
    assert sorted(first) == sorted([*SCHEMA, "provenance.json"])


def test_the_baseline_is_a_label_of_an_arm(plan, tmp_path):
    run(plan, tmp_path / "out", [])
    assert read_sweep(tmp_path / "out")["baseline"] == "b"


def test_a_surrogate_of_unequal_lists_is_told(plan, tmp_path):
    run(plan, tmp_path / "out", plan.cells[:1])
    file = tmp_path / "out/cells" / plan.cells[0].key / "surrogate.json"
    file.write_text('{"ratio": [1], "advantage": [1, 2], "loss": [1], "weight": [1]}')
    with pytest.raises(CorruptRecordError, match=r"surrogate\.json does not hold lists of one length"):
        compact(tmp_path / "out")


def test_a_strange_folder_is_refused_and_not_touched(plan, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.tex").write_text("x")
    with pytest.raises(UserError, match=r"is no sweep's folder \(it holds thesis\.tex\)"):
        StudyFolder.open(tmp_path / "out", plan.sweep, plan.cells)
    assert [f.name for f in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_another_sweeps_folder_is_refused_and_not_touched(plan, tmp_path):
    run(plan, tmp_path / "out", [])
    before = (tmp_path / "out/sweep.json").read_bytes()
    other = plan.sweep.model_copy(update={"name": "other"})
    with pytest.raises(UserError, match="holds the sweep 'study', not 'other'"):
        StudyFolder.open(tmp_path / "out", other, plan.cells)
    assert (tmp_path / "out/sweep.json").read_bytes() == before


def test_a_file_in_place_of_the_folder_is_a_user_error(plan, tmp_path):
    (tmp_path / "out").write_text("x")
    with pytest.raises(UserError, match="cannot write to"):
        StudyFolder.open(tmp_path / "out", plan.sweep, plan.cells)


def test_no_sweep_no_records(tmp_path):
    with pytest.raises(UserError, match="holds no sweep"):
        compact(tmp_path)
