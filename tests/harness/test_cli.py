"""The command line: exit statuses, one-line messages, and that help costs nothing."""

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import main

FAKES = Path(__file__).parent / "sweeps"
ROOT = FAKES.parents[2]
ENGINE = ("--engine", "fake_engine:run_cell")
RUN = 'budget = {axis = "updates", amount = 6}\n'
SWEEP = """
name = "small"
seeds = [0, 1]
base.budget = {axis = "updates", amount = 6}
base.update.minibatches = 2
arms = [{name = "grpo"}, {name = "gspo", objective = {name = "gspo", clip_low = 0.1}}]
"""


@pytest.fixture(autouse=True)
def _fake_engine_can_be_imported(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.setenv("PYTHONPATH", f"{FAKES}:{ROOT}")
    monkeypatch.chdir(tmp_path)


def write(text, name="file.toml"):
    Path(name).write_text(text)
    return name


def message_of(capsys, *arguments):
    """Return what a refused command says; it must be one line and exit 2."""
    assert main(arguments) == 2
    line = capsys.readouterr().err
    assert line.startswith("evengrad: ")
    assert line.count("\n") == 1
    return line


def test_help_takes_less_than_half_a_second_and_imports_nothing_heavy():
    code = """
import sys
from harness.cli import main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
heavy = {"torch", "pandas", "pydantic", "rich", "transformers"} & set(sys.modules)
assert not heavy, heavy
"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert "sweep" in done.stdout
    # Processor time: on a busy machine the clock tells of others.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


@pytest.mark.parametrize("command", ["train", "sweep", "report", "eval", "verify", "samples", "track", "list", "check"])
def test_every_commands_help_shows_an_example(capsys, command):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"example: evengrad {command} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("traim",), "invalid choice: 'traim'"),
        (("sweep",), "the following arguments are required: SWEEP.toml"),
        (("sweep", "s.toml", "--worker-count", "2"), "unrecognized arguments: --worker-count 2"),
        (("sweep", "s.toml", "--workers", "0"), "0 is less than 1"),
        (("sweep", "s.toml", "--workers", "x"), "argument --workers: 'x' is no whole number"),
        (("sweep", "none.toml"), "cannot read none.toml: No such file or directory"),
        (("train", "none.toml"), "cannot read none.toml"),
        (("report", "none"), "cells.csv is missing in none"),
        (("eval", "none"), "none is no run's folder"),
        (("status", "none"), "none is the folder of neither a sweep nor a run"),
        (("track", "none"), "none holds no sweep"),
        (("sweep", "s.toml", "--track", "x"), "cannot read s.toml"),
        (("list", "nothing"), "invalid choice: 'nothing'"),
        (("check", "nothing"), "unknown plug-in 'nothing'"),
        (("check", "none.py:Nothing"), "cannot read none.py: No such file"),
    ],
)
def test_bad_arguments(capsys, words, message):
    assert message in message_of(capsys, *words)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "gspo", clip', 'name = "gspoo", clip', "arm gspo: unknown objective 'gspoo'; did you mean 'gspo'"),
        (
            "clip_low = 0.1",
            "clip_lo = 0.1",
            "arm gspo: objective 'gspo' has no setting 'clip_lo'; did you mean 'clip_low'",
        ),
        ("clip_low = 0.1", "clip_low = -1", "arm gspo: objective 'gspo': clip_low"),
        ("clip_low = 0.1", 'clip_low = "x"', "clip_low = 'x' is a str, expected float"),
        ("minibatches = 2", "minibatches = 1", "wants several updates a rollout, but update.minibatches x"),
        ("amount = 6", "amount = 0.5", "arm grpo: budget.amount is too small for one update"),
        ('"updates", amount', '"update", amount', "should be 'flops', 'tokens', 'updates' or 'seconds'"),
        ("seeds = [0, 1]", "seeds = []", "seeds = [] List should have at least 1 item"),
        ("seeds = [0, 1]", "sedes = [0, 1]", "unknown key sedes; did you mean seeds?"),
        ("seeds = [0, 1]", 'seeds = [0]\naxes."task.max_operan" = [1]', "task.name is missing"),
        ("seeds = [0, 1]", 'seeds = [0]\nbase.task = {name = "arithmetik"}', "unknown task 'arithmetik'; did you mean"),
        ("seeds = [0, 1]", 'seeds = [0]\nbase.trust_region = {name = "dual", delta = -1}', "dual': delta"),
        ("seeds = [0, 1]", 'seeds = [0]\nbase.task = {name = "arithmetic", max_operand = 0}', "max_operand' is 0"),
        ("seeds = [0, 1]", "seeds = [0]\nbase.rollout.group_size = 1", "needs rollout.group_size >= 2, got 1"),
    ],
)
def test_bad_sweeps_start_nothing(capsys, old, new, message):
    assert old in SWEEP
    line = message_of(capsys, "sweep", write(SWEEP.replace(old, new)), *ENGINE, "--out", "out")
    assert message in line
    assert not Path("out").exists()


def test_a_dry_run_lists_the_cells_and_writes_nothing(capsys):
    assert main(["sweep", write(SWEEP), "--dry-run", *ENGINE, "seeds=[0,1,2]"]) == 0
    out = capsys.readouterr().out
    assert "6 cells, 3.6e+07 FLOPs estimated" in out
    assert out.count("missing") == 6
    assert not Path("results").exists()


def test_a_sweep_runs_and_writes_records_tables_and_figures(capsys):
    assert main(["sweep", write(SWEEP), *ENGINE, "--workers", "1", "budget.amount=4"]) == 0
    out = Path("results/runs/small")
    assert "4 of 4 cells completed, 4 run now" in capsys.readouterr().out
    assert (out / "records/cells.csv").read_text().count("completed") == 4
    assert list((out / "tables").glob("*.csv"))
    assert list((out / "figures").glob("*.png"))
    assert main(["report", str(out), "--out", "paper", "--figure", "final_scores"]) == 0
    assert [f.name for f in Path("paper/figures").iterdir() if f.suffix == ".png"] == ["final_scores.png"]
    assert "baseline 'ppo' is not an arm" in message_of(capsys, "report", str(out), "--baseline", "ppo")
    assert "unknown figure 'final_score'" in message_of(capsys, "report", str(out), "--figure", "final_score")


def test_records_are_reported_with_the_baseline_of_the_sweep_beside_them(capsys):
    assert main(["sweep", write(SWEEP), *ENGINE, "--workers", "1", "budget.amount=4", "baseline=gspo"]) == 0
    study = Path("kept")
    shutil.copytree("results/runs/small/records", study / "records")
    write(f'baseline = "gspo"\n{SWEEP}', str(study / "sweep.toml"))
    assert main(["report", str(study), "--figure", "final_scores"]) == 0
    tables = [Path(place) / "tables" / "comparison.csv" for place in ("results/runs/small", "kept")]
    assert tables[0].read_bytes() == tables[1].read_bytes()
    assert ",gspo," in tables[1].read_text()


def test_a_failed_cell_gives_status_1_and_a_table(capsys):
    arguments = ["sweep", write(SWEEP), *ENGINE, "seeds=[100]", "--out", "out"]
    assert main(arguments) == 1
    assert capsys.readouterr().out.count("loss is nan") == 2
    assert main([*arguments, "--retry-failed"]) == 1


def test_a_strange_folder_is_refused_and_not_touched(capsys):
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("x")
    assert "is no sweep's folder" in message_of(capsys, "sweep", write(SWEEP), *ENGINE, "--out", "mine")
    assert "is no cell's folder" in message_of(capsys, "train", write(RUN), *ENGINE, "--out", "mine")
    assert [f.name for f in Path("mine").iterdir()] == ["thesis.tex"]


def test_train_runs_once_and_says_how_it_goes(capsys):
    run = write(RUN, "one.toml")
    assert main(["train", run, *ENGINE, "seed=3"]) == 0
    assert "100% of the budget, score" in capsys.readouterr().out
    assert main(["train", run, "seed=3", *ENGINE]) == 0
    assert capsys.readouterr().out == "completed: results/runs/one\n"
    assert "it differs in config.seed" in message_of(capsys, "train", run, *ENGINE, "seed=4")


def test_a_failed_run_gives_status_1(capsys):
    assert main(["train", write(RUN), *ENGINE, "seed=100"]) == 1
    assert "failed: loss is nan" in capsys.readouterr().out


def test_an_interrupted_run_gives_status_130(capsys, monkeypatch):
    import fake_engine

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fake_engine, "misbehave", interrupted)
    assert main(["train", write(RUN), *ENGINE]) == 130
    assert "goes on from the last checkpoint" in capsys.readouterr().err


def test_list_shows_summaries_settings_and_presets(capsys):
    assert main(["list", "objectives"]) == 0
    out = capsys.readouterr().out
    assert "gspo: GSPO: one length-normalised" in out
    assert "clip_low=0.0003" in out
    assert "preset detached: " in out
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    for word in (
        "[regions]",
        "dual: ",
        "[tasks]",
        "arithmetic: ",
        "[policies]",
        "tiny: ",
        "[figures]",
        "final_scores: ",
    ):
        assert word in out


def test_check_runs_the_contract_of_every_kind(capsys):
    for name in ("grpo", "none", "arithmetic"):
        assert main(["check", name]) == 0, name
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) > 3
        assert all(line.startswith("ok ") for line in lines)


def test_check_tells_broken_claims_in_a_line_each(capsys):
    source = (
        (ROOT / "objectives/grpo.py")
        .read_text()
        .replace("return sequence_mean(step)", "return sequence_mean(step) / step.loss_mask.shape[1]")
    )
    Path("broken.py").write_text(source)
    assert main(["check", "broken.py:GRPO"]) == 1
    assert "BROKEN " in capsys.readouterr().out


def test_check_refuses_a_class_of_no_kind(capsys):
    Path("other.py").write_text("class Other:\n    pass\n")
    assert "is neither an Objective nor" in message_of(capsys, "check", "other.py:Other")
