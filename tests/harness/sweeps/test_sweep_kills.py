"""Kills and full disks at every call that changes a file: nothing is lost, no cell runs twice, the bytes are the same.

The processes are forked, which takes milliseconds; ``test_executor`` kills those that a user's sweep has.
"""

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter

import pytest
from fake_sweep import ENGINE, plan_of
from forked_crew import ForkedCrew
from test_executor import BASE, outputs

from harness.config.errors import CompletedError, StorageError, UserError
from harness.sweeps import executors
from harness.sweeps.command import run_plan
from harness.sweeps.compact import compact
from harness.sweeps.engines import execute, load_engine
from harness.sweeps.records import read_status
from harness.sweeps.study import StudyFolder
from tests import faults

FULL = 3  # exit status of a process that says that the disk is full
SHORT = BASE.replace("amount = 40", "amount = 7")


def planned(folder, text=BASE):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.toml").write_text(text)
    return plan_of(folder / "sweep.toml")


def files_of(folder):
    kept = (f for f in sorted(folder.rglob("*")) if f.is_file() and f.parent.name != "lease" and "timing" not in f.name)
    return {str(f.relative_to(folder)): f.read_bytes() for f in kept}


def run_cell(cell, folder, at=None, how="kill"):
    """Run a cell in a forked process; return its exit status and, undisturbed, the number of changes that it made."""

    def work():
        counted = faults.install(at, how)
        try:
            with contextlib.suppress(CompletedError):
                execute(load_engine(ENGINE), cell.config, folder, cell.identity, lambda _: None)
        except StorageError as error:
            return FULL if "what was recorded is whole: mend this and run the same command again" in str(error) else 1
        (folder.parent / "changes").write_text(str(counted.count))
        return 0

    return faults.in_child(work)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a cell, the files of its undisturbed run and the number of its changes."""
    folder = tmp_path_factory.mktemp("whole")
    cell = planned(folder, SHORT).cells[0]
    assert run_cell(cell, folder / "cell") == 0
    return cell, files_of(folder / "cell"), int((folder / "changes").read_text())


@pytest.mark.parametrize("how", ["kill", "full"])
def test_a_cell_that_stops_before_a_change_of_a_file_goes_on_to_the_same_bytes(whole, tmp_path, monkeypatch, how):
    stop_cell_at_each(whole, tmp_path, monkeypatch, how, every=3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["kill", "full"])
def test_a_cell_that_stops_before_any_change_of_a_file_goes_on_to_the_same_bytes(whole, tmp_path, monkeypatch, how):
    stop_cell_at_each(whole, tmp_path, monkeypatch, how, every=1)


def stop_cell_at_each(whole, tmp_path, monkeypatch, how, every):
    cell, expected, changes = whole
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    assert changes > 100
    for at in range(1, changes + 1, every):
        folder, log = tmp_path / f"{at}" / "cell", tmp_path / "log"
        log.write_text("")
        code = run_cell(cell, folder, at, how)
        assert code == -signal.SIGKILL if how == "kill" else code in (FULL, 0)
        reached = [int(line.split()[2]) for line in log.read_text().splitlines() if line.startswith("checkpoint")]
        completed = folder.exists() and read_status(folder)["status"] == "completed"
        log.write_text("")
        assert run_cell(cell, folder) == 0
        assert files_of(folder) == expected, at
        starts = [int(line.split()[2]) for line in log.read_text().splitlines() if line.startswith("start")]
        assert starts == [] if completed else starts[0] >= max(reached, default=0), at


def run_sweep(plan, out, crew, at=None, how="kill"):
    """Run a sweep and make its records in this process; return the exit status."""
    executors._crew = lambda *_: crew
    counted = faults.install(at, how)
    try:
        code = run_plan(plan, out, lambda _: None, report=False)
        if code == 0:
            compact(out)
    except UserError as error:
        return FULL if "cannot write to" in str(error) else 1
    (out.parent / "changes").write_text(str(counted.count))
    return code


def undisturbed_sweep(folder, text):
    """Return a plan, all output of its undisturbed run and the number of changes that the sweep's process makes."""
    plan = planned(folder, text)
    assert faults.in_child(lambda: run_sweep(plan, folder / "out", ForkedCrew(ENGINE))) == 0
    return plan, outputs(folder / "out"), int((folder / "changes").read_text())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return a sweep of four cells of 40 iterations."""
    return undisturbed_sweep(tmp_path_factory.mktemp("sweep"), BASE)


def stop_at_each(tmp_path, how, every):
    plan, expected, changes = undisturbed_sweep(
        tmp_path / "undisturbed", SHORT.replace("seeds = [0, 1]", "seeds = [0]")
    )
    assert changes > 50
    for at in range(1, changes + 1, every):
        out = tmp_path / str(at) / "out"
        out.parent.mkdir()
        code = faults.in_child(lambda out=out, at=at: run_sweep(plan, out, ForkedCrew(ENGINE), at, how))
        assert code == -signal.SIGKILL if how == "kill" else code in (FULL, 0)
        assert faults.in_child(lambda out=out: run_sweep(plan, out, ForkedCrew(ENGINE))) == 0
        assert outputs(out) == expected, at


@pytest.mark.parametrize("how", ["kill", "full"])
def test_a_sweep_whose_process_stops_before_a_change_of_a_file_ends_with_the_same_bytes(tmp_path, how):
    stop_at_each(tmp_path, how, every=6)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["kill", "full"])
def test_a_sweep_whose_process_stops_before_any_change_of_a_file_ends_with_the_same_bytes(tmp_path, how):
    stop_at_each(tmp_path, how, every=1)


def kill(draws, plan, out):
    """Start the sweep, and end it or a worker of it in one of many ways; return what was done."""
    what = draws.choice(
        ["sweep at a call", "sweep at an instant", "worker at a call", "worker at an instant", "full disk"]
    )
    at, seconds, calls = draws.randint(1, 60), draws.uniform(0.01, 0.25), draws.randint(1, 250)

    def work():
        fates = {"worker at a call": [None] * draws.randint(0, 3) + [(calls, "kill")], "full disk": [(calls, "full")]}
        crew = ForkedCrew(ENGINE, fates.get(what, ()))
        if what == "worker at an instant":
            signal.signal(signal.SIGALRM, lambda *_: [os.kill(pid, signal.SIGKILL) for pid in crew.pids()[:1]])
            signal.setitimer(signal.ITIMER_REAL, seconds)
        return run_sweep(plan, out, crew, at if what == "sweep at a call" else None)

    pid = faults.fork(work)
    if what == "sweep at an instant":
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    return what, faults.ended(pid)


def check_log(log, plan, completed):
    """Raise unless completed cells were left alone and every other start goes on from the last checkpoint."""
    reached, starts = Counter(), Counter()
    for line in log.read_text().splitlines():
        word, key, *iteration = line.split()
        if word == "checkpoint":
            reached[key] = max(reached[key], int(iteration[0]))
        elif word == "start":
            starts[key] += 1
            assert int(iteration[0]) >= reached[key], line
    for key, before in completed.items():
        assert starts[key] == before, key
    for cell in plan.cells:
        if cell.key not in completed and (log.parent / "out/cells" / cell.key / "status.json").exists():
            status = json.loads((log.parent / "out/cells" / cell.key / "status.json").read_text())
            if status["status"] == "completed":
                completed[cell.key] = starts[cell.key]


def many_kills(undisturbed, tmp_path, monkeypatch, count, seed):
    plan, expected, _ = undisturbed
    draws, done, number = random.Random(seed), Counter(), 0
    while sum(done.values()) < count:
        number += 1
        home = tmp_path / str(number)
        home.mkdir()
        monkeypatch.setenv("FAKE_LOG", str(home / "log"))
        (home / "log").write_text("")
        completed = {}
        for _ in range(draws.randint(3, 12)):
            what, code = kill(draws, plan, home / "out")
            assert code in (0, -signal.SIGKILL, FULL), (what, code)
            done[what] += 1
            check_log(home / "log", plan, completed)
        assert faults.in_child(lambda home=home: run_sweep(plan, home / "out", ForkedCrew(ENGINE))) == 0
        check_log(home / "log", plan, completed)
        assert outputs(home / "out") == expected
    return done


def test_40_random_kills_and_full_disks_change_no_byte_and_repeat_no_cell(undisturbed, tmp_path, monkeypatch):
    assert len(many_kills(undisturbed, tmp_path, monkeypatch, 40, seed=0)) == 5


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_200_random_kills_and_full_disks_change_no_byte_and_repeat_no_cell(undisturbed, tmp_path, monkeypatch):
    assert len(many_kills(undisturbed, tmp_path, monkeypatch, 200, seed=1)) == 5


def test_a_limit_on_the_size_of_files_is_told_and_nothing_is_lost(whole, tmp_path):
    cell, expected, _ = whole
    folder = tmp_path / "cell"

    def work():
        faults.limit_file_size(6000)
        try:
            execute(load_engine(ENGINE), cell.config, folder, cell.identity, lambda _: None)
        except StorageError as error:
            return FULL if "File too large" in str(error) else 0
        return 0

    assert faults.in_child(work) == FULL
    assert read_status(folder)["status"] == "running"
    assert (folder / "checkpoint").exists()
    assert run_cell(cell, folder) == 0
    assert files_of(folder) == expected


def test_a_new_cell_changes_no_byte_of_the_others(undisturbed, tmp_path):
    plan, expected, _ = undisturbed
    more = BASE.replace("seeds = [0, 1]", "seeds = [2, 0, 1]").replace("arms = [", 'arms = [{name = "c"}, ')
    for text in (BASE, more):
        changed = planned(tmp_path, text)
        assert faults.in_child(lambda changed=changed: run_sweep(changed, tmp_path / "out", ForkedCrew(ENGINE))) == 0
    after = outputs(tmp_path / "out")
    assert len(changed.cells) == 9
    kept = [name for name in expected if name.startswith("cells/")]
    assert len(kept) == 4 * len([n for n in kept if plan.cells[0].key in n]) > 20
    assert all(after[name] == expected[name] for name in kept)


def test_a_killed_start_leaves_a_folder_that_a_sweep_may_have(undisturbed, tmp_path):
    plan, _, _ = undisturbed
    for at in range(1, 30):
        folder = tmp_path / str(at)

        def work(folder=folder, at=at):
            faults.install(at)
            StudyFolder.open(folder, plan.sweep, plan.cells)

        faults.in_child(work)
        with StudyFolder.open(folder, plan.sweep, plan.cells):
            assert json.loads((folder / "sweep.json").read_text())["format"] == 1
