"""One writer at a time: on this machine at once, between machines by beats, whatever the wall clocks say."""

import json
import os
import shutil
import signal
import threading
import time

import pytest

from harness.config.errors import BusyError, LostLeaseError, StorageError
from harness.sweeps import holders, lease
from harness.sweeps.lease import Lease, read_lease
from harness.sweeps.run_folder import RunFolder
from tests import faults

IDENTITY = {"config": {"seed": 0}}
PATIENCE = 0.6  # beats come ten a second


def take(folder, wait=0.1, patience=PATIENCE):
    folder.mkdir(exist_ok=True)
    return Lease.take(folder, "this cell", wait, patience)


@pytest.fixture
def elsewhere(monkeypatch):
    """Make what this process does from now on look as if it came from another machine."""

    def move(name):
        monkeypatch.setattr(holders, "_machine", lambda: name)

    return move


def numbers(folder):
    return sorted(int(f.name) for f in (folder / "lease").iterdir())


def test_a_released_lease_is_free_at_once_and_its_number_is_not_used_again(tmp_path):
    for number in (1, 2, 3):
        held = take(tmp_path)
        assert numbers(tmp_path) == [number]
        held.release()
        assert read_lease(tmp_path)["released"]


def test_a_living_holder_of_this_machine_is_named_and_never_taken_for_dead(tmp_path, monkeypatch):
    monkeypatch.setattr(Lease, "_keep_alive", lambda self: None)  # as if its thread did not run
    held = take(tmp_path)
    began = time.monotonic()
    with pytest.raises(BusyError, match=rf"another process is running this cell \(.*, process {os.getpid()}\)"):
        take(tmp_path, wait=2 * PATIENCE)
    assert time.monotonic() - began >= 2 * PATIENCE
    held.check()


def test_a_killed_holder_of_this_machine_is_replaced_at_once(tmp_path):
    def work():
        take(tmp_path)
        os.kill(os.getpid(), signal.SIGKILL)

    assert faults.in_child(work) == -signal.SIGKILL
    began = time.monotonic()
    take(tmp_path, patience=1000).release()
    assert time.monotonic() - began < 5


def test_a_killed_holder_that_nobody_has_waited_for_is_dead(tmp_path):
    pid = faults.fork(lambda: take(tmp_path) and os.kill(os.getpid(), signal.SIGKILL))
    while not read_lease(tmp_path) or holders._started(pid) != "":
        time.sleep(0.01)
    take(tmp_path, patience=1000).release()
    os.waitpid(pid, 0)


def test_a_process_number_that_is_given_again_is_another_process(tmp_path):
    held = take(tmp_path)
    record = {**read_lease(tmp_path), "started": "1"}
    held._ended.set()
    (tmp_path / "lease/000001").write_bytes(lease._format(record))
    take(tmp_path, patience=1000).release()


def test_a_holder_on_another_machine_is_busy_as_long_as_it_beats(tmp_path, elsewhere):
    elsewhere("theirs")
    held = take(tmp_path)
    elsewhere("ours")
    began = time.monotonic()
    with pytest.raises(BusyError, match="another process is running this cell"):
        take(tmp_path, wait=0)
    assert time.monotonic() - began < PATIENCE
    held.check()
    held.release()


def test_a_silent_holder_on_another_machine_is_replaced_after_the_patience_and_finds_out(tmp_path, elsewhere):
    elsewhere("theirs")
    silent = take(tmp_path)
    silent._ended.set()
    elsewhere("ours")
    began = time.monotonic()
    held = take(tmp_path)
    assert time.monotonic() - began >= PATIENCE
    with pytest.raises(LostLeaseError, match="another process has taken over"):
        silent.check()
    silent.release()  # changes nothing of the next one's
    held.check()
    with pytest.raises(BusyError):
        take(tmp_path)


def test_a_paused_holder_stops_at_its_next_beat(tmp_path, elsewhere):
    elsewhere("theirs")
    paused = take(tmp_path)
    paused._guard.acquire()  # its thread cannot beat
    elsewhere("ours")
    take(tmp_path)
    paused._guard.release()
    deadline = time.monotonic() + 5
    while not paused.lost and time.monotonic() < deadline:
        time.sleep(0.01)
    assert paused.lost


def test_clocks_that_go_backwards_are_not_looked_at(tmp_path, elsewhere, monkeypatch):
    wall = iter(range(10**6, 0, -1000))
    monkeypatch.setattr(time, "time", lambda: next(wall))
    elsewhere("theirs")
    held = take(tmp_path)
    for file in (tmp_path / "lease").iterdir():
        os.utime(file, (0, 0))
    elsewhere("ours")
    with pytest.raises(BusyError):
        take(tmp_path, wait=2 * PATIENCE)
    held._ended.set()
    os.utime(tmp_path / "lease/000001", (2**31, 2**31))
    take(tmp_path).release()


def contend(folder, until, machine):
    """Enter and leave, checking that nobody else is inside; return 0, or 1 if somebody was."""
    holders._machine = lambda: machine
    entered = 0
    while time.monotonic() < until:
        try:
            held = take(folder, wait=0, patience=5)
        except BusyError:
            continue
        inside = os.open(folder / "inside", os.O_CREAT | os.O_EXCL)
        entered += 1
        time.sleep(0.001)
        held.check()
        os.close(inside)
        os.unlink(folder / "inside")
        held.release()
    (folder / f"entered-{os.getpid()}").write_text(str(entered))


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_of_many_that_want_it_one_gets_it(tmp_path, links, monkeypatch):
    if not links:
        monkeypatch.setattr(lease.files, "link", no_links)
    until = time.monotonic() + 3
    pids = [faults.fork(lambda n=n: contend(tmp_path, until, f"machine {n}")) for n in range(6)]
    assert [faults.ended(pid) for pid in pids] == [0] * 6
    assert sum(int(f.read_text()) for f in tmp_path.glob("entered-*")) > 20


def no_links(path, name):
    raise OSError(lease._NO_LINKS[0], "this file system has no links")


def test_of_many_that_wait_for_a_dead_machine_one_gets_it(tmp_path):
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        assert faults.in_child(lambda folder=folder: die_elsewhere(folder)) == 0

        def work(folder=folder):
            try:
                held = take(folder, wait=0, patience=PATIENCE)
            except BusyError:
                return 1
            time.sleep(2)
            held.check()
            return 0

        pids = [faults.fork(work) for _ in range(5)]
        assert sorted(faults.ended(pid) for pid in pids) == [0, 1, 1, 1, 1]


def die_elsewhere(folder):
    holders._machine = lambda: "theirs"
    take(folder)
    return 0


def test_an_old_listing_gives_no_second_lease(tmp_path, monkeypatch):
    held = [take(tmp_path), None]
    held[0].release()
    held[1] = take(tmp_path)  # number 2; number 1 is gone
    record = holders.this_process()
    assert not lease._claim(tmp_path, 0, record)  # it has seen an empty folder
    assert numbers(tmp_path) == [2]
    held[1].check()


def test_a_folder_that_is_gone_is_lost(tmp_path):
    held = take(tmp_path / "cell")
    shutil.rmtree(tmp_path / "cell")
    with pytest.raises(LostLeaseError):
        held.check()


def test_how_the_work_goes_can_be_read_from_outside(tmp_path):
    held = take(tmp_path)
    held.tell({"fraction": 0.25, "score": None, "iteration": 3})
    deadline = time.monotonic() + 5
    while "fraction" not in read_lease(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    found = read_lease(tmp_path)
    assert (found["fraction"], found["pid"], "score" in found) == (0.25, os.getpid(), False)
    held.release()
    assert read_lease(tmp_path / "nothing") == {}


def test_a_cell_that_was_taken_over_is_not_written_by_the_one_thought_dead(tmp_path, elsewhere):
    elsewhere("theirs")
    with RunFolder.open(tmp_path, IDENTITY, 0, PATIENCE) as theirs:
        theirs.append("metrics", {"a": 1})
        offsets = theirs.flush()
        theirs.write_checked("checkpoint", b"one")
        theirs.append("metrics", {"a": 2})
        theirs._lease._ended.set()
        elsewhere("ours")
        with RunFolder.open(tmp_path, IDENTITY, 0, PATIENCE) as ours:
            ours.truncate(offsets)
            theirs.append("metrics", {"a": "stale"})
            ours.append("metrics", {"a": 3})
            with pytest.raises(LostLeaseError):
                theirs.write_checked("checkpoint", b"stale")
            assert ours.read_checked("checkpoint") == b"one"
            ours.finish("completed")
        with pytest.raises(LostLeaseError):
            theirs.finish("failed", "stale")
    assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"a":1}\n{"a":3}\n'
    assert json.loads((tmp_path / "status.json").read_text())["status"] == "completed"
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_full_disk_takes_no_lease_and_leaves_no_half_of_one(tmp_path):
    def work():
        faults.install(1, "full")
        try:
            RunFolder.open(tmp_path / "cell", IDENTITY)
        except StorageError as error:
            return 0 if "No space left on device" in str(error) else 1
        return 2

    assert faults.in_child(work) == 0
    with RunFolder.open(tmp_path / "cell", IDENTITY):
        pass


def test_beats_go_on_while_the_main_thread_works(tmp_path):
    held = take(tmp_path)
    before = threading.active_count()
    time.sleep(PATIENCE)
    assert read_lease(tmp_path)["beat"] >= 3
    held.release()
    time.sleep(PATIENCE / 2)
    assert threading.active_count() < before
