"""Kills and full disks at random changes of a file, in forked processes: every stateful part ends byte-equal."""

import os
import random
import signal
from pathlib import Path

import pytest
from test_train import small
from tiny_engine import cell, digests

from harness.config.errors import StorageError
from tests import faults

FULL = 3
FEW = {"name": "arithmetic", "train_size": 4, "validation_size": 6, "test_size": 6}
REPLAY = {"strategy": "all", "num_replays": 4, "min_cache": 4, "max_cache": 4}
PARTS = {
    "dual": {"objective": {"name": "gspo"}, "trust_region": {"name": "dual"}},
    "adaptive": {"trust_region": {"name": "adaptive"}},
    "backtrack": {"trust_region": {"name": "backtrack", "delta": 1e-3}},
    "replay": {"task": FEW, "replay": REPLAY, "rollout": {"num_prompts": 4, "group_size": 2}},
    "windows": {"objective": {"name": "tppo"}, "rollout": {"window_tokens": 4, "max_response_tokens": 8}},
    "lag": {"rollout": {"lag": 2}},
    "reward history": {"shaping": {"name": "bingo", "slope_start": 1, "slope_rollouts": 2}},
    "curriculum": {
        "task": {"name": "arithmetic"},
        "prompts": {"order": "easy_to_hard", "start_share": 0.3, "max_pass_rate": 0.6, "revisit": 2},
    },
    "critic": {"objective": {"name": "ppo"}},
    "critic, dual, lag and replay": {
        "objective": {"name": "ppo"}, "trust_region": {"name": "dual"}, "task": FEW, "replay": REPLAY,
        "rollout": {"num_prompts": 4, "group_size": 2, "lag": 1},
    },
}  # fmt: skip


def config_of(part):
    tables = {"budget": {"axis": "updates", "amount": 12}, "engine": {"checkpoint_every": 2}, **PARTS[part]}
    return small(eval={"points": 2}, **tables)


def attempt(config, folder, at=None, how="kill"):
    """Run the cell in a forked process; return its exit status."""

    def work():
        counted = faults.install(at, how)
        try:
            cell(config, folder)
        except StorageError:
            return FULL
        Path(f"{folder}.changes").write_text(str(counted.count))
        return 0

    return faults.in_child(work)


def disturbed(part, tmp_path, cells, seed):
    """Stop the cell again and again until it ends, ``cells`` times over; return how often it was stopped."""
    config, draws, stops = config_of(part), random.Random(seed), 0
    assert attempt(config, tmp_path / "whole") == 0
    expected, changes = digests(tmp_path / "whole"), int(Path(tmp_path / "whole.changes").read_text())
    assert "weights.safetensors" in expected
    for number in range(cells):
        folder = tmp_path / str(number)
        for number_of_stop in range(20):
            how = draws.choice(["kill", "kill", "full"]) if number_of_stop else "kill"
            code = attempt(config, folder, draws.randint(1, changes), how)
            assert code in (0, -signal.SIGKILL, FULL)
            if code == 0:
                break
            stops += 1
        assert attempt(config, folder) == 0
        assert digests(folder) == expected
    return stops


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_stopped_at_random_calls_ends_byte_equal(tiny, tmp_path, part):
    assert disturbed(part, tmp_path, cells=1, seed=len(part)) >= 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_stopped_at_many_random_calls_ends_byte_equal(tiny, tmp_path, part):
    stops = disturbed(part, tmp_path, cells=int(os.environ.get("KILLED_CELLS", "8")), seed=1)
    assert stops >= 8
