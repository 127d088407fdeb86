"""The mirror hands every row over once, whatever is killed, and changes nothing of what it mirrors."""

import json
from pathlib import Path

import pytest

from harness.sweeps.run_folder import RunFolder
from harness.tracking.mirror import Mirror

CELL = {"key": "a1", "arm": "grpo", "task": "arithmetic", "policy": "tiny", "seed": 0, "facts": {}, "config": {}}


class FakeRun:
    def __init__(self, runs, cell, attempt):
        self.rows, self.end, self.name = [], None, (cell["key"], attempt)
        runs.append(self)

    def log(self, stream, row):
        self.rows.append((stream, row["iteration"]))

    def finish(self, status, cause):
        self.end = (status, cause)


class FakeSink:
    name = "fake"

    def __init__(self):
        self.runs, self.reports = [], []

    def open(self, cell, attempt, identity):
        assert identity == {"seed": 0}
        return FakeRun(self.runs, cell, attempt)

    def report(self, sweep, folder):
        self.reports.append(sweep["name"])

    def rows(self):
        return [row for run in self.runs for row in run.rows]


@pytest.fixture
def study(tmp_path):
    (tmp_path / "sweep.json").write_text(json.dumps({"name": "s", "cells": [CELL]}))
    return tmp_path


def write(folder, iterations, value=0.5):
    for iteration in iterations:
        folder.append("metrics", {"iteration": iteration, "reward_mean": value})
    return folder.flush()


def opened(study):
    return RunFolder.open(study / "cells" / "a1", {"seed": 0})


def content(study):
    return {f: f.read_bytes() for f in sorted((study / "cells").rglob("*")) if f.is_file() and f.parent.name != "lease"}


def test_rows_are_handed_over_once_and_the_end_is_told(study):
    sink = FakeSink()
    mirror = Mirror(study, sink)
    mirror.poll()
    assert sink.runs == []
    with opened(study) as folder:
        folder.append("evals", {"iteration": 0, "split": "validation", "score": 0.1})
        write(folder, [1, 2])
        mirror.poll()
        mirror.poll()
        assert sink.rows() == [("metrics", 1), ("metrics", 2), ("evals", 0)]
        write(folder, [3])
        folder.finish("completed")
    mirror.poll()
    mirror.close(report=True)
    assert sink.rows()[3:] == [("metrics", 3)]
    assert [(run.name, run.end) for run in sink.runs] == [(("a1", 1), ("completed", ""))]
    assert sink.reports == ["s"]


def test_a_cut_back_begins_a_new_attempt_and_no_row_is_there_twice(study):
    sink = FakeSink()
    mirror = Mirror(study, sink)
    with opened(study) as folder:
        kept = write(folder, [1, 2])
        write(folder, [3, 4])
        mirror.poll()
    with opened(study) as folder:  # the first one was killed: cut back to its checkpoint, written again
        folder.truncate(kept)
        mirror.poll()
        write(folder, [3])
        mirror.poll()
        write(folder, [4, 5])
        folder.finish("completed")
    mirror.poll()
    assert sink.rows() == [("metrics", i) for i in (1, 2, 3, 4, 5)]
    assert [(run.name, run.rows[-1][1], run.end[0]) for run in sink.runs] == [
        (("a1", 1), 4, "interrupted"),
        (("a1", 2), 5, "completed"),
    ]


def test_rows_that_are_not_the_same_again_are_all_sent_again(study):
    sink = FakeSink()
    mirror = Mirror(study, sink)
    with opened(study) as folder:
        write(folder, [1, 2], 0.5)
        mirror.poll()
    with opened(study) as folder:
        folder.truncate({})
        write(folder, [1, 2, 3], 0.75)
        mirror.poll()
    assert [run.rows for run in sink.runs] == [[("metrics", 1), ("metrics", 2)], [("metrics", i) for i in (1, 2, 3)]]


def test_a_torn_line_waits_until_it_is_whole(study):
    sink = FakeSink()
    mirror = Mirror(study, sink)
    with opened(study) as folder:
        write(folder, [1])
        with (folder.path / "metrics.jsonl").open("ab") as file:
            file.write(b'{"iteration":')
            file.flush()
            mirror.poll()
            assert sink.rows() == [("metrics", 1)]
            file.write(b"2}\n")
        mirror.poll()
    assert sink.rows() == [("metrics", 1), ("metrics", 2)]


def test_a_killed_mirror_sends_again_what_no_finished_run_had_and_no_more(study):
    with opened(study) as folder:
        write(folder, [1, 2])
        Mirror(study, FakeSink()).poll()  # killed: its run is never finished
        second = FakeSink()
        mirror = Mirror(study, second)
        mirror.poll()
        mirror.close(report=False)
        assert second.rows() == [("metrics", 1), ("metrics", 2)]
        assert second.runs[0].name == ("a1", 2)
        write(folder, [3])
        folder.finish("failed", "loss is nan")
    third = FakeSink()
    Mirror(study, third).poll()
    assert third.rows() == [("metrics", 3)]
    assert third.runs[0].end == ("failed", "loss is nan")
    fourth = FakeSink()
    Mirror(study, fourth).poll()
    assert fourth.runs == []


def test_nothing_of_the_cells_is_changed(study):
    with opened(study) as folder:
        write(folder, [1, 2])
        before = content(study)
        mirror = Mirror(study, FakeSink())
        mirror.poll()
        mirror.close(report=True)
        assert content(study) == before
    assert sorted(f.name for f in Path(study).iterdir()) == ["cells", "sweep.json", "tracking"]
