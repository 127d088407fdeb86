"""The report as files: complete, atomic, byte-reproducible across processes, without torch."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from synthetic_study import write_study

from harness.reports import report
from harness.reports.figures import FIGURES
from harness.reports.report import write_report
from harness.reports.study import load_study

TABLES = 10
ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import sys
from harness.reports.report import write_report
from harness.reports.study import load_study
files = write_report(load_study(sys.argv[1]), sys.argv[2])
assert "torch" not in sys.modules, "torch"
assert "pydantic" not in sys.modules, "pydantic"
print(sum(file.parent.name == "tables" for file in files), len(files))
"""


@pytest.fixture
def small(tmp_path):
    folder = write_study(
        tmp_path / "records", arms=("grpo", "gspo+dual"), tasks=("arithmetic",), seeds=(0, 1), iterations=4
    )
    return load_study(folder)


def test_two_processes_write_the_same_bytes_and_never_import_torch(tmp_path):
    statuses = {("gspo+dual", "arithmetic", 1): ("failed", "nan loss")}
    settings = {"arms": ("grpo", "gspo+dual"), "tasks": ("arithmetic",), "iterations": 6, "statuses": statuses}
    records = write_study(tmp_path / "records", **settings)
    other_hashes = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = os.environ | {"PYTHONHASHSEED": other_hashes, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(records), str(tmp_path / "1")]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    write_report(load_study(records), tmp_path / "2")
    out, error = process.communicate(timeout=240)
    assert process.returncode == 0, error
    assert int(out.split()[0]) == TABLES * 3
    names = sorted(path.relative_to(tmp_path / "1") for path in (tmp_path / "1").rglob("*.*"))
    drawn = {name.stem for name in names if name.parent.name == "figures"}
    assert {"learning_curves", "entropy", "stability", "pareto"} <= drawn <= set(FIGURES)
    assert len(names) == int(out.split()[1]) == TABLES * 3 + 3 * len(drawn)
    different = [
        str(name) for name in names if (tmp_path / "1" / name).read_bytes() != (tmp_path / "2" / name).read_bytes()
    ]
    assert different == []
    pdf = (tmp_path / "1" / "figures" / "entropy.pdf").read_bytes()
    assert b"CreationDate" not in pdf
    assert b"Software" not in (tmp_path / "1" / "figures" / "entropy.png").read_bytes()


def test_timing_alone_depends_on_the_clock(tmp_path):
    records = write_study(
        tmp_path / "records", arms=("grpo", "gspo"), tasks=("arithmetic",), seeds=(0, 1), iterations=4
    )
    write_report(load_study(records), tmp_path / "a", figures=[])
    timing = records / "timing.csv"
    timing.write_text(timing.read_text().replace("22.0", "31.5"))
    write_report(load_study(records), tmp_path / "b", figures=[])
    changed = {
        path.stem
        for path in (tmp_path / "a" / "tables").iterdir()
        if path.read_bytes() != (tmp_path / "b" / "tables" / path.name).read_bytes()
    }
    assert changed == {"timing"}


def test_only_the_asked_figures_are_written(small, tmp_path):
    written = write_report(small, tmp_path / "out", figures=["final_scores"])
    made = [path.name for path in written if path.parent.name == "figures"]
    assert made == ["final_scores.png", "final_scores.pdf", "final_scores.svg"]
    assert sorted((tmp_path / "out").rglob("*.*")) == sorted(written)
    assert written[-3].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert written[-2].read_bytes()[:5] == b"%PDF-"
    assert b"<svg" in written[-1].read_bytes()
    assert b"date" not in written[-1].read_bytes()


def test_the_formats_can_be_chosen(small, tmp_path):
    written = write_report(small, tmp_path / "out", figures=["final_scores"], formats=["svg"])
    assert [path.name for path in written if path.parent.name == "figures"] == ["final_scores.svg"]


def test_a_figure_without_data_is_left_out_and_said(small, tmp_path):
    said = []
    written = write_report(small, tmp_path / "out", formats=["png"], say=said.append)
    lines = [line for line in said if line.startswith("left out: figure routing_replay: ")]
    assert len(lines) == 1
    assert "no policy is a mixture of experts" in lines[0]
    assert "routing_replay.png" not in {path.name for path in written}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"figures": ["routing_replay"]}, "figure routing_replay: metrics.csv has no routed_changed_frac"),
        ({"formats": ["gif"]}, "unknown figure format 'gif'; known: png, pdf, svg"),
        ({"figures": ["final_score"]}, "unknown figure 'final_score'; near: final_scores"),
        ({"baseline": "nobody"}, "not an arm"),
        ({"style": "no-such-style"}, "no matplotlib style"),
    ],
)
def test_a_wrong_request_writes_nothing(small, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        write_report(small, tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_an_interrupted_write_leaves_the_old_file(small, tmp_path, monkeypatch):
    write_report(small, tmp_path, figures=[])
    table = tmp_path / "tables" / "comparison.md"
    before = table.read_bytes()

    def broken(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(report.os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_report(small, tmp_path, baseline="gspo+dual", figures=[])
    assert table.read_bytes() == before
    assert not [path for path in table.parent.iterdir() if path.name.startswith(".")]


def test_the_baseline_reaches_the_figures(small, tmp_path):
    figure = FIGURES["paired_differences"](small, baseline="gspo+dual")
    assert figure.get_supxlabel() == "difference in test score to gspo+dual"


def test_processes_that_draw_end_with_a_report_that_is_killed(tmp_path):
    records = write_study(tmp_path / "records", arms=("grpo",), tasks=("arithmetic",), seeds=(0,), iterations=4)
    program = (
        "import sys, time; from harness.reports import report; from harness.reports.study import load_study\n"
        "report._draw = lambda name, **_: time.sleep(600)\n"
        "report.write_report(load_study(sys.argv[1]), sys.argv[2])"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(records), str(tmp_path)], cwd=ROOT) as job:
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
        _wait_until(lambda: len(children.read_text().split()) > 1)
        drawing = [Path(f"/proc/{number}") for number in children.read_text().split()]
        job.kill()
    _wait_until(lambda: not any(place.exists() for place in drawing))


def _wait_until(true):
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.05)
