"""``evengrad compare | diff | status | gc`` on folders of the fake engine, with kills, failures and holders."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from harness.cli import main
from harness.sweeps.occupied import hold

FAKES = Path(__file__).parent / "sweeps"
sys.path.insert(0, str(FAKES))
BASE = """
name = "kills"
seeds = [0, 1]
workers = 2
arms = [{name = "a", objective = {name = "a"}}, {name = "b", objective = {name = "b"FAULT}}]
base.budget = {axis = "updates", amount = 8}
base.engine.checkpoint_every = 3
"""


def run_sweep(folder, text, out):
    from fake_sweep import plan_of

    from harness.sweeps.command import run_plan

    path = folder / "sweep.toml"
    path.write_text(text)
    plan = plan_of(path)
    return plan, run_plan(plan, out, lambda _: None, report=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two studies of the fake engine: one whole, one whose arm b fails."""
    folder = tmp_path_factory.mktemp("studies")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{FAKES}:{FAKES.parents[2]}")
        whole, _ = run_sweep(folder, BASE.replace("FAULT", ""), folder / "whole")
        failed, code = run_sweep(folder, BASE.replace("FAULT", ", fail_at = 4"), folder / "failed")
    assert code == 1
    return folder, whole, failed


@pytest.fixture
def studies(made, tmp_path, monkeypatch):
    """A copy of both, to be spoiled."""
    shutil.copytree(made[0] / "whole", tmp_path / "whole")
    shutil.copytree(made[0] / "failed", tmp_path / "failed")
    monkeypatch.chdir(tmp_path)
    return made[1], made[2]


def said(capsys, *words, code=0):
    assert main(list(words)) == code
    return capsys.readouterr().out


def content(folder):
    return {
        str(f): f.read_bytes()
        for f in sorted(Path(folder).rglob("*"))
        if f.is_file() and f.name != "lock" and f.parent.name != "lease"
    }


@pytest.mark.parametrize("command", ["compare", "diff", "status", "gc"])
def test_help_shows_an_example(capsys, command):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert f"example: evengrad {command} " in capsys.readouterr().out


# status


def test_status_of_a_finished_sweep(studies, capsys):
    assert said(capsys, "status", "whole") == "4 cells: 4 completed; 100% of all budgets spent\n"


def test_status_tells_failed_stalled_running_and_waiting_apart(studies, capsys):
    cells = [Path("failed/cells") / cell.key for cell in studies[1].cells]  # a0 a1 b0 b1
    (cells[0] / "status.json").write_text('{"cause":"","status":"running"}')
    (cells[0] / "metrics.jsonl").write_text('{"iteration":2,"updates":2}\n{"iteration":3,"upd')  # torn by a kill
    shutil.rmtree(cells[1])
    out = said(capsys, "status", "failed", code=1)
    assert "4 cells: 1 stalled, 1 waiting, 2 failed; 25% of all budgets spent" in out  # (2 + 0 + 3 + 3) of 32 updates
    assert "evengrad sweep goes on" in out
    assert out.count("loss is nan") == 2
    with hold(cells[0], "a test"):
        assert "1 running, 1 waiting, 2 failed" in said(capsys, "status", "failed", code=1)


def test_status_as_json_counts_the_time_to_go(studies, capsys):
    cells = [Path("whole/cells") / cell.key for cell in studies[0].cells]
    for cell in cells[:3]:
        (cell / "timing.jsonl").write_text('{"total":true,"seconds":10.0}\n')
    (cells[3] / "status.json").write_text('{"cause":"","status":"running"}')
    (cells[3] / "metrics.jsonl").write_text('{"iteration":2,"updates":2}\n')
    record = json.loads(said(capsys, "status", "whole", "--json"))
    assert record["counts"]["completed"] == 3
    assert record["seconds_to_go"] == pytest.approx(7.5)  # three quarters of a cell of 10 s
    assert [cell["fraction"] for cell in record["cells"]] == [1, 1, 1, 0.25]


def test_status_of_one_run_and_of_a_damaged_cell(studies, capsys):
    cell = Path("whole/cells") / studies[0].cells[0].key
    assert "1 cell: 1 completed" in said(capsys, "status", str(cell))
    (cell / "status.json").write_text("{")
    out = said(capsys, "status", "whole", code=1)
    assert "1 damaged" in out
    assert "cannot be read" in out


def test_status_changes_nothing(studies, capsys):
    before = content("failed")
    said(capsys, "status", "failed", code=1)
    assert content("failed") == before


# gc


def spoil(studies):
    """Make one of each kind of garbage; return the cells' folders."""
    cells = [Path("whole/cells") / cell.key for cell in studies[0].cells]
    sweep = json.loads(Path("whole/sweep.json").read_text())
    sweep["cells"] = sweep["cells"][:3]
    Path("whole/sweep.json").write_text(json.dumps(sweep))
    (cells[0] / "checkpoint").write_bytes(b"x" * 2048)
    (cells[1] / ".metrics.jsonl.tmp").write_bytes(b"torn")
    (cells[2] / "status.json").write_text('{"cause":"","status":"running"}')
    (cells[2] / "checkpoint").write_bytes(b"needed")
    return cells


def test_gc_lists_and_touches_nothing(studies, capsys):
    cells = spoil(studies)
    before = content("whole")
    out = said(capsys, "gc", "whole")
    assert content("whole") == before
    assert f"{cells[0]}/checkpoint  2.0 KiB  checkpoint of a completed cell" in out
    assert f"{cells[1]}/.metrics.jsonl.tmp  4 B  left by a write that was killed" in out
    assert "its cell is no longer in the sweep" in out
    assert "3 files and folders" in out
    assert "--delete" in out
    assert str(cells[2]) not in out  # it goes on from its checkpoint


def test_gc_deletes_just_that(studies, capsys):
    cells = spoil(studies)
    gone = {f"{cells[0]}/checkpoint", f"{cells[1]}/.metrics.jsonl.tmp"}
    kept = {
        name: data for name, data in content("whole").items() if name not in gone and not name.startswith(str(cells[3]))
    }
    assert "deleted" in said(capsys, "gc", "whole", "--delete")
    assert content("whole") == kept
    assert not cells[3].exists()
    assert said(capsys, "gc", "whole") == "nothing to delete\n"


def test_gc_leaves_what_a_living_process_holds(studies, capsys):
    cells = spoil(studies)
    with hold(cells[3], "a test"), hold(cells[0], "a test"):
        out = said(capsys, "gc", "whole", "--delete")
    assert cells[3].exists()
    assert (cells[0] / "checkpoint").exists()
    assert out.count("held by a living process") == 2
    with hold(Path("whole"), "a test"):
        assert main(["gc", "whole", "--delete"]) == 2
    assert "a sweep is running in whole" in capsys.readouterr().err
    assert cells[3].exists()


def test_gc_finishes_what_a_killed_one_began_and_leaves_strangers(studies, capsys):
    cells = spoil(studies)
    cells[3].rename(cells[3].with_name(f".trash-{cells[3].name}"))
    Path("whole/cells/notes").mkdir()
    Path("whole/cells/notes/mine.txt").write_text("keep")
    Path("whole/cells/link").symlink_to("/tmp")
    said(capsys, "gc", "whole", "--delete")
    assert sorted(f.name for f in Path("whole/cells").iterdir()) == sorted(
        ["link", "notes", *(c.name for c in cells[:3])]
    )
    assert Path("whole/cells/notes/mine.txt").read_text() == "keep"


def test_gc_of_another_folder_is_refused(tmp_path, capsys):
    assert main(["gc", str(tmp_path)]) == 2
    assert "holds no sweep" in capsys.readouterr().err


# diff


def test_diff_of_two_arms(studies, capsys):
    a, _, b, _ = (cell.key for cell in studies[0].cells)
    out = said(capsys, "diff", a, b[:7], "--out", "whole")
    assert out.split("\n")[1].split() == ["objective.name", "a", "b"]
    assert "metrics: differ from row 1 (iteration 1) on, in reward_mean" in out
    assert "samples: equal, 8 rows" in out


def test_diff_of_a_cell_with_itself_and_across_folders(studies, capsys):
    key = studies[0].cells[0].key
    out = said(capsys, "diff", f"whole/cells/{key}", f"failed/cells/{key}")
    assert "The same cell" in out
    assert "metrics: equal, 8 rows" in out
    assert "outcome" not in out


def test_diff_says_how_both_ended(studies, capsys):
    whole, failed = studies[0].cells[2].key, studies[1].cells[2].key
    out = said(capsys, "diff", f"whole/cells/{whole}", f"failed/cells/{failed}")
    assert "objective.fail_at" in out
    assert "loss is nan" in out
    assert "metrics: equal as far as both go, 8 and 3 rows" in out


@pytest.mark.parametrize(("word", "message"), [("", "fits 4 cells"), ("zzz", "no begun cell has such a key in whole")])
def test_diff_of_what_is_no_cell(studies, capsys, word, message):
    key = studies[0].cells[0].key
    assert main(["diff", word, key, "--out", "whole"]) == 2
    assert message in capsys.readouterr().err


# compare


def test_compare_pairs_what_can_be_paired(studies, capsys):
    out = said(capsys, "compare", "whole", "failed", "--out", "compared.csv")
    lines = {line.split()[1]: line for line in out.split("\n")[1:3]}
    assert lines["a"].split()[2:4] == ["2", "0"]
    assert lines["b"].split()[2:4] == ["0", "2"]
    assert "Not paired, no test score in B (diverged loss is nan" in out
    assert "2 cells: b on arithmetic (2)." in out
    assert Path("compared.csv").read_text().startswith("task,arm,num_pairs,")


def test_compact_records_know_what_their_cells_were_made_of(studies, capsys):
    """What a comparison says of two folders it says of their records alone; other versions are named."""
    from harness.sweeps.compact import compact

    for name in ("whole", "failed"):
        shutil.copytree(compact(Path(name)), f"records-{name}")
    of_folders = said(capsys, "compare", "whole", "failed")
    assert said(capsys, "compare", "records-whole", "records-failed").replace("records-", "") == of_folders
    file = Path("records-failed") / "provenance.json"
    known = json.loads(file.read_text())
    file.write_text(json.dumps({**known, "shared": {**known["shared"], "versions.torch": "1.0"}}))
    assert "versions.torch (absent and 1.0)" in said(capsys, "compare", "records-whole", "records-failed")


def test_compare_of_two_arms(studies, capsys):
    out = said(capsys, "compare", "whole:a", "whole:b")
    assert "a / b" in out
    assert out.split("\n")[1].split()[4:6] == ["2", "0"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("whole:a", "whole"), "one side names an arm and the other does not"),
        (("whole:c", "whole:a"), "has no arm 'c'; arms: a, b"),
        (("none", "whole"), "none is no folder of a study"),
        (("whole", "failed", "--out", "x.txt"), "x.txt should end with .md, .csv or .tex"),
    ],
)
def test_compare_refuses(studies, capsys, words, message):
    assert main(["compare", *words]) == 2
    assert message in capsys.readouterr().err
