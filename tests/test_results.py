"""What is shipped under results/ follows from its own records."""

from pathlib import Path

import pytest

from harness.config.loading import load_sweep
from harness.reports.report import write_report
from harness.reports.study import load_study

ROOT = Path(__file__).parent.parent
CLAIM = ROOT / "results" / "claim"
STUDIES = sorted(folder.parent for folder in (ROOT / "results").glob("*/tables"))
MAX_RECORDS_BYTES = 5_000_000


def test_there_is_a_shipped_study() -> None:
    assert ROOT / "results" / "claim" in STUDIES


@pytest.mark.parametrize("folder", STUDIES, ids=lambda f: f.name)
def test_tables_and_figures_come_from_the_committed_records(folder: Path, tmp_path: Path) -> None:
    sweep = load_sweep(folder / "sweep.toml")
    formats = sorted({path.suffix[1:] for path in (folder / "figures").iterdir()})
    written = write_report(load_study(folder / "records"), tmp_path, baseline=sweep.baseline, formats=formats)
    names = {str(path.relative_to(tmp_path)) for path in written}
    shipped = {str(path.relative_to(folder)) for part in ("tables", "figures") for path in (folder / part).iterdir()}
    assert names == shipped
    for path in (tmp_path / "tables").iterdir():
        assert path.read_bytes() == (folder / "tables" / path.name).read_bytes(), path.name


@pytest.mark.parametrize("folder", STUDIES, ids=lambda f: f.name)
def test_records_are_complete_and_small(folder: Path) -> None:
    study = load_study(folder / "records")
    sweep = load_sweep(folder / "sweep.toml")
    assert set(study.cells["status"]) <= {"completed", "failed"}
    assert set(study.cells["failure"]) <= {"", "divergence"}
    assert set(study.cells["seed"]) == set(sweep.seeds)
    assert sum(file.stat().st_size for file in (folder / "records").iterdir()) < MAX_RECORDS_BYTES


def test_the_tuned_study_is_what_a_comparison_needs() -> None:
    """Ten seeds and more a cell of the table, tests of 500 prompts and more, every arm tuned by as many trials."""
    study = load_study(CLAIM / "records")
    tests = study.evals.query("split == 'test'").merge(study.cells[["cell", "arm", "task"]], on="cell")
    assert (tests["num_prompts"] >= 500).all()
    assert (study.cells.groupby(["arm", "task"])["seed"].nunique() >= 10).all()
    assert study.tuning.groupby(["arm", "apart"]).size().nunique() == 1
    seeds = set(load_sweep(CLAIM / "sweep.toml").tuning.seeds)
    assert not seeds & set(study.cells["seed"])


def test_every_arm_of_the_tuned_study_gains_on_fresh_data() -> None:
    study = load_study(CLAIM / "records")
    tests = study.evals.query("split == 'test'").merge(study.cells[["cell", "arm", "task"]], on="cell")
    mean = tests[tests["task"].str.endswith("epochs=1")].groupby(["arm", "task", "fraction"])["score"].mean().unstack()
    assert len(mean) == 20
    assert (mean[1.0] > mean[0.0]).all()


def test_every_cell_of_the_tuned_study_ends_within_one_update_of_the_budget() -> None:
    cells = load_study(CLAIM / "records").cells
    cells = cells[cells["status"] == "completed"]
    update = (cells["phase.update.flops"] + cells["phase.critic.flops"].fillna(0)) / cells["updates"]
    left = cells["budget_amount"] - cells["spent_flops"]
    assert (left >= 0).all()
    assert (left < 2 * update).all()  # the update that no longer fitted may be larger than the mean one
    assert (cells.loc[cells["arm"] == "ppo", "phase.critic.flops"] > 0).all()
