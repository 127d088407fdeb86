"""What a sweep says while it goes."""

import io

import pytest
from rich.console import Console

from harness.config.sweep import SweepConfig
from harness.sweeps.grid import expand
from harness.sweeps.pool import Outcome
from harness.sweeps.progress import Progress, describe_seconds


def cells():
    arms = [{"name": "grpo"}, {"name": "gspo", "objective": {"name": "gspo"}}]
    base = {"budget": {"axis": "updates", "amount": 8}}
    return expand(SweepConfig.model_validate({"name": "s", "seeds": [0, 1], "arms": arms, "base": base}))


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def plain(clock):
    out = io.StringIO()
    return Progress(4, 1, 0, Console(file=out, width=200), clock), out


def test_a_line_when_a_cell_ends_with_score_counts_and_time_to_go(clock):
    progress, out = plain(clock)
    first, second = cells()[:2]
    with progress:
        progress.started(first)
        progress.started(second)
        clock.now = 10.0
        progress.progressed(first, {"fraction": 0.0})
        progress.progressed(first, {"fraction": 1.0, "score": 0.5})
        progress.progressed(second, {"fraction": 0.0})
        progress.ended(first, Outcome("completed"))
        progress.ended(second, Outcome("failed", "loss is [nan]"))
    assert out.getvalue().split("\n") == [
        "grpo on arithmetic, tiny, seed 0: completed, score 0.500 [2/4 done, 1 running, 0 failed, 20 s to go]",
        "grpo on arithmetic, tiny, seed 1: failed: loss is [nan] [2/4 done, 0 running, 1 failed, 5 s to go]",
        "",
    ]


def test_at_most_one_line_in_15_seconds_besides(clock):
    progress, out = plain(clock)
    cell = cells()[0]
    progress.started(cell)
    progress.progressed(cell, {"fraction": 0.0, "score": 0.25})
    progress.progressed(cell, {"fraction": 0.4, "score": None})
    for second in range(31):
        clock.now = float(second)
        progress.tick()
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("1/4 done, 1 running, 0 failed, ")
    assert lines[0].endswith("; grpo on arithmetic, tiny, seed 0: 40%, score 0.250")


def test_work_done_before_a_resumption_does_not_count_as_speed(clock):
    progress, _ = plain(clock)
    cell = cells()[0]
    progress.started(cell)
    progress.progressed(cell, {"fraction": 0.5})
    clock.now = 10.0
    assert progress.summary() == "1/4 done, 1 running, 0 failed"
    progress.progressed(cell, {"fraction": 0.75})
    assert progress.summary().endswith("1 min 30 s to go")  # 2.25 cells left at 0.25 cells in 10 s


def test_a_terminal_gets_a_table(clock):
    out = io.StringIO()
    progress = Progress(4, 0, 0, Console(file=out, width=120, force_terminal=True), clock)
    with progress:
        progress.started(cells()[0])
        progress.progressed(cells()[0], {"fraction": 0.4, "score": 0.31})
        progress.put_back(cells()[0], "worker died (signal 9)")
        progress.started(cells()[2])
        progress.progressed(cells()[2], {"fraction": 0.4, "score": 0.31})
    text = out.getvalue()
    for word in ("gspo", "40%", "0.310", "budget", "it goes on from its last checkpoint"):
        assert word in text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (80, "1 min 20 s"), (7500, "2 h 05 min")])
def test_seconds_are_told_in_words(seconds, text):
    assert describe_seconds(seconds) == text
