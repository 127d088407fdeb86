"""Kills, resumption and failures of a sweep, with the fake engine in real worker processes."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_sweep import plan_of

from harness.sweeps.compact import compact
from harness.sweeps.records import read_status

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BASE = """
name = "kills"
seeds = [0, 1]
workers = 2
arms = [{name = "a", objective = {name = "a"}}, {name = "b", objective = {name = "b"}}]
base.budget = {axis = "updates", amount = 40}
base.engine.checkpoint_every = 3
"""
NOT_REPRODUCIBLE = ("timing.jsonl", "timing.csv")


def write_sweep(folder, text=BASE):
    path = folder / "sweep.toml"
    path.write_text(text)
    return path


def start(sweep, out, *flags, sleep="0", log=""):
    environment = {**os.environ, "PYTHONPATH": f"{HERE}:{ROOT}", "FAKE_SLEEP": sleep, "FAKE_LOG": str(log)}
    command = [sys.executable, str(HERE / "fake_sweep.py"), str(sweep), str(out), *flags]
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_hear_ctrl_c,
    )


def _hear_ctrl_c():
    """A shell starts background jobs with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process, seconds=120):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def outputs(folder):
    compact(folder)
    files = (f for f in sorted(folder.rglob("*")) if f.is_file())
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in files
        if f.name not in NOT_REPRODUCIBLE and not f.name.startswith("worker-") and f.parent.name != "lease"
    }


def workers_of(process):
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(word) for word in children.read_text().split()] if children.exists() else []


def wait_for_workers(process, count):
    deadline = time.monotonic() + 20
    while len(found := workers_of(process)) < count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return found or [process.pid]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    code, out, err = finish(start(write_sweep(folder), folder / "out"))
    assert code == 0, (out, err)
    return outputs(folder / "out")


@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_random_instants_change_no_byte_and_repeat_no_cell(tmp_path, undisturbed, seed):
    draws = random.Random(seed)
    sweep, out, log = write_sweep(tmp_path), tmp_path / "out", tmp_path / "log"
    for _ in range(3):
        process = start(sweep, out, sleep="0.02", log=log)
        victims = wait_for_workers(process, 1)
        time.sleep(draws.uniform(0.0, 1.2))
        if draws.random() < 0.5:
            with contextlib.suppress(ProcessLookupError):
                os.kill(draws.choice(victims), signal.SIGKILL)
            time.sleep(draws.uniform(0.0, 0.5))
        process.kill()
        finish(process)
    code, stdout, err = finish(start(sweep, out, log=log))
    assert code == 0, (stdout, err)
    assert outputs(out) == undisturbed
    events = log.read_text().split("\n")
    for number, event in enumerate(events):
        if event.startswith("completed"):
            assert not any(later.startswith(event.replace("completed", "start")) for later in events[number:])


def test_workers_end_with_their_parent(tmp_path):
    process = start(write_sweep(tmp_path), tmp_path / "out", sleep="0.5")
    victims = wait_for_workers(process, 2)
    process.kill()
    finish(process)
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in victims) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(victims) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in victims)


def test_completed_cells_are_not_run_again(tmp_path):
    sweep, log = write_sweep(tmp_path), tmp_path / "log"
    finish(start(sweep, tmp_path / "out", log=log))
    code, out, _ = finish(start(sweep, tmp_path / "out", log=log))
    assert code == 0
    assert "4 of 4 cells completed, 0 run now" in out
    assert log.read_text().count("start") == 4


def test_a_further_arm_runs_alone(tmp_path):
    log = tmp_path / "log"
    finish(start(write_sweep(tmp_path), tmp_path / "out", log=log))
    more = BASE.replace("arms = [", 'arms = [{name = "c", objective = {name = "c"}}, ')
    code, out, _ = finish(start(write_sweep(tmp_path, more), tmp_path / "out", log=log))
    assert code == 0
    assert "6 of 6 cells completed, 2 run now" in out


def with_fault(fault):
    return BASE.replace('objective = {name = "a"}', f'objective = {{name = "a", {fault}}}')


def test_a_failed_cell_is_a_row_and_runs_again_only_when_asked(tmp_path):
    sweep, log = write_sweep(tmp_path, with_fault("fail_at = 5")), tmp_path / "log"
    code, out, err = finish(start(sweep, tmp_path / "out", log=log))
    assert code == 1
    assert "2 of 4 cells completed" in out
    assert "loss is nan" in out
    assert "a on arithmetic, tiny, seed 0: failed, score" in err
    assert (compact(tmp_path / "out") / "cells.csv").read_text().count(",failed,loss is nan,") == 2
    assert finish(start(sweep, tmp_path / "out", log=log))[0] == 1
    assert log.read_text().count("start") == 4
    assert finish(start(sweep, tmp_path / "out", "--retry-failed", log=log))[0] == 1
    assert log.read_text().count("start") == 6


def test_an_unforeseen_error_is_a_failure_with_its_place(tmp_path):
    code, out, _ = finish(start(write_sweep(tmp_path, with_fault("crash_at = 5")), tmp_path / "out"))
    assert code == 1
    assert "KeyError: 'surprise' (fake_engine.py:" in out
    assert "Traceback" in "".join(f.read_text() for f in (tmp_path / "out").glob("worker-*.log"))


def test_a_cell_whose_worker_dies_three_times_fails_and_the_others_complete(tmp_path):
    sweep, log = write_sweep(tmp_path, with_fault("die_at = 5")), tmp_path / "log"
    code, out, _ = finish(start(sweep, tmp_path / "out", log=log))
    assert code == 1
    assert out.count("worker died 3 times (signal 9)") == 2
    assert "2 of 4 cells completed" in out
    assert log.read_text().count("start") == 8  # 2 cells x 3 attempts + 2 that complete
    cell = next(cell for cell in plan_of(sweep).cells if cell.arm == "a")
    assert read_status(tmp_path / "out/cells" / cell.key)["cause"] == "worker died 3 times (signal 9)"


def test_a_corrupt_checkpoint_fails_its_cell_with_a_line_that_says_what_to_do(tmp_path):
    sweep = write_sweep(tmp_path)
    cell = plan_of(sweep).cells[0]
    folder = tmp_path / "out/cells" / cell.key
    process = start(sweep, tmp_path / "out", sleep="0.05")
    deadline = time.monotonic() + 20
    while not (folder / "checkpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    finish(process)
    raw = (folder / "checkpoint").read_bytes()
    (folder / "checkpoint").write_bytes(raw[:5] + b"!" + raw[6:])
    code, out, _ = finish(start(sweep, tmp_path / "out"))
    assert code == 1
    assert f"{folder / 'checkpoint'} is corrupt; delete it to start the cell anew" in out
    (folder / "checkpoint").unlink()
    assert finish(start(sweep, tmp_path / "out", "--retry-failed"))[0] == 0


def test_two_sweeps_in_one_folder_are_refused(tmp_path):
    sweep = write_sweep(tmp_path)
    first = start(sweep, tmp_path / "out", sleep="0.2")
    deadline = time.monotonic() + 20
    while not (tmp_path / "out/sweep.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    code, _, err = finish(start(sweep, tmp_path / "out"))
    first.kill()
    finish(first)
    assert code == 1
    assert "another process is running a sweep in this folder" in err


def test_ctrl_c_stops_and_the_sweep_goes_on_later(tmp_path, undisturbed):
    sweep = write_sweep(tmp_path)
    process = start(sweep, tmp_path / "out", sleep="0.02")
    deadline = time.monotonic() + 20
    while not list((tmp_path / "out").glob("cells/*/checkpoint")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] != 0
    assert finish(start(sweep, tmp_path / "out"))[0] == 0
    assert outputs(tmp_path / "out") == undisturbed


def test_damage_to_a_completed_cell_is_told(tmp_path):
    sweep = write_sweep(tmp_path)
    finish(start(sweep, tmp_path / "out"))
    cell = plan_of(sweep).cells[0]
    metrics = tmp_path / "out/cells" / cell.key / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-7])
    code, _, err = finish(start(sweep, tmp_path / "out"))
    assert code == 1
    assert "metrics.jsonl holds" in err
    assert "to run the cell anew" in err
