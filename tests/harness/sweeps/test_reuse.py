"""Cells that another sweep has completed are taken over, and those that cannot be trusted are not."""

import hashlib
import os
from pathlib import Path

import pytest
from fake_sweep import plan_of

from harness.sweeps.command import run_plan
from harness.sweeps.layout import cell_folder
from harness.sweeps.reuse import studies_in, take_over

HERE = Path(__file__).parent
TEXT = """
name = "NAME"
seeds = SEEDS
workers = 1
arms = [{name = "a"}, {name = "b", objective = {name = "gspo"}}]
base.budget = {axis = "updates", amount = 3}
"""


def run(folder, name, seeds, monkeypatch, **options):
    monkeypatch.setenv("FAKE_LOG", str(folder / "log"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parents[2])]))
    file = folder / f"{name}.toml"
    file.write_text(TEXT.replace("NAME", name).replace("SEEDS", str(seeds)))
    plan, said = plan_of(file), []
    assert run_plan(plan, folder / "out" / name, said.append, report=False, reuse=[folder / "out"], **options) == 0
    return plan, said


def starts(folder):
    return (folder / "log").read_text().count("start ")


def digests(path):
    files = [file for file in path.iterdir() if not file.name.startswith(("lock", "lease"))]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_a_cell_is_never_computed_twice(tmp_path, monkeypatch):
    one, _ = run(tmp_path, "one", [0, 1], monkeypatch)
    assert starts(tmp_path) == 4
    two, said = run(tmp_path, "two", [1, 2], monkeypatch)
    assert starts(tmp_path) == 6
    assert "2 of 4 cells were completed by another sweep: copied" in said
    both = {cell.key for cell in one.cells} & {cell.key for cell in two.cells}
    for key in both:
        assert digests(cell_folder(tmp_path / "out/one", key)) == digests(cell_folder(tmp_path / "out/two", key))


@pytest.mark.parametrize("damage", ["metrics.jsonl", "status.json", "config.json", "weights.safetensors"])
def test_a_damaged_cell_is_computed_again(tmp_path, monkeypatch, damage):
    plan, _ = run(tmp_path, "one", [0], monkeypatch)
    file = cell_folder(tmp_path / "out/one", plan.cells[0].key) / damage
    file.write_bytes(file.read_bytes()[:-10])
    run(tmp_path, "two", [0], monkeypatch)
    assert starts(tmp_path) == 3


def test_a_half_made_copy_is_none(tmp_path, monkeypatch):
    plan, _ = run(tmp_path, "one", [0], monkeypatch)
    out, key = tmp_path / "out/two", plan.cells[0].key
    (out / "cells" / f".{key}.tmp").mkdir(parents=True)
    assert take_over(plan.cells, out, studies_in(tmp_path / "out")) == [cell.key for cell in plan.cells]
    assert {path.name for path in (out / "cells").iterdir()} == {cell.key for cell in plan.cells}
    assert take_over(plan.cells, out, studies_in(tmp_path / "out")) == []
