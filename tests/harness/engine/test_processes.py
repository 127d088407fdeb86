"""Runs that several processes share: the gradients, weights, charges and checkpoints of one process."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from processes_job import CASES
from safetensors.torch import load
from tiny_engine import double, make_config

from harness.config.errors import UserError
from harness.engine.checkpoint import restore_run, save_run
from harness.engine.run import build_run
from harness.engine.world import World, join_world, own_gpu

JOB = Path(__file__).with_name("processes_job.py")
REPOSITORY = Path(__file__).parents[3]


def outcomes(folder, taught, processes):
    """Return what the job writes when so many processes share it."""
    out = folder / f"{processes}.pt"
    start = [sys.executable] if processes == 1 else [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    start += [] if processes == 1 else ["--nproc-per-node", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([*start, JOB, taught, out], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(out, weights_only=False)


@pytest.fixture(scope="module")
def alone(taught, tmp_path_factory):
    return outcomes(tmp_path_factory.mktemp("alone"), taught, 1)


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def shared(request, taught, tmp_path_factory):
    return outcomes(tmp_path_factory.mktemp("shared"), taught, request.param)


def flat(tensors):
    return torch.cat([value.flatten() for value in tensors.values()])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES)
def test_the_processes_make_the_updates_of_one(alone, shared, case):
    expected, found = alone[case], shared[case]
    assert found["gradients"].keys() == expected["gradients"].keys()
    for what, gradient in expected["gradients"].items():
        assert flat(gradient).dtype == torch.float64
        assert found["gradients"][what].keys() == gradient.keys()
        gap = flat(found["gradients"][what]) - flat(gradient)
        assert gap.norm() <= 1e-12 * flat(gradient).norm()
        assert flat(gradient).norm() > 0 or case in ("fspo",)
    for name, value in expected["tensors"].items():
        torch.testing.assert_close(found["tensors"][name], value, rtol=1e-9, atol=1e-11)
    assert found["spent"] == expected["spent"]
    for one, other in zip(found["metrics"], expected["metrics"], strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            if isinstance(value, float):
                assert math.isclose(one[name], value, rel_tol=1e-9, abs_tol=1e-12), name
            else:
                assert one[name] == value, name


def test_a_checkpoint_of_several_processes_is_that_of_one(tiny, monkeypatch, shared, alone):
    run = double(build_run(make_config(objective={"name": "ppo"})))
    restore_run(run, shared["checkpoint"])
    assert save_run(run, {}) == shared["checkpoint"]
    ours, theirs = load(alone["checkpoint"]), load(shared["checkpoint"])
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(theirs[name], value, rtol=1e-9, atol=1e-11)


CELL = """
policy = { name = "tiny" }
objective = { name = "ppo" }
trust_region = { name = "dual" }
rollout = { num_prompts = 4, group_size = 2, max_response_tokens = 12 }
update = { minibatches = 2 }
budget = { axis = "updates", amount = 4 }
eval = { points = 1, num_prompts = 4, test_prompts = 4 }
engine = { processes = 2, checkpoint_every = 1 }
"""


TALKATIVE = """
import os
from objectives.ppo import PPO

print("a print of a plug-in")
os.write(1, b"and one past Python")

class Talkative(PPO):
    pass
"""


def train(folder, *settings):
    """Start the command and return its process; what it says goes to a file."""
    file = folder / "run.toml"
    file.write_text(CELL)
    command = [sys.executable, "-m", "harness.cli", "train", str(file), "--out", str(folder / "cell"), *settings]
    with (folder / "log").open("w") as log:
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log, start_new_session=True)


def finish(folder, *settings):
    """Run the command to its end and return the bytes of what it recorded."""
    assert train(folder, *settings).wait() == 0, (folder / "log").read_text()
    assert json.loads((folder / "cell" / "status.json").read_text())["status"] == "completed"
    return [(folder / "cell" / name).read_bytes() for name in ("metrics.jsonl", "evals.jsonl", "weights.safetensors")]


@pytest.mark.timeout(600)
def test_a_run_of_two_processes_goes_on_after_a_kill_and_with_one(tmp_path):
    whole, cut, alone = (tmp_path / name for name in ("whole", "cut", "alone"))
    whole.mkdir()
    cut.mkdir()
    expected = finish(whole)
    job = train(cut)
    while not (cut / "cell" / "checkpoint").exists():
        assert job.poll() is None, (cut / "log").read_text()
        time.sleep(0.05)
    os.kill(job.pid, signal.SIGKILL)  # the parent alone: the processes have to notice
    job.wait()
    shutil.copytree(cut, alone)
    assert finish(cut) == expected
    weights = load(finish(alone, "engine.processes=1")[-1])
    for name, value in load(expected[-1]).items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-4)


@pytest.mark.timeout(600)
def test_what_a_plugin_prints_in_one_of_the_processes_is_no_answer(tmp_path):
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    metrics, *_ = finish(tmp_path, f"objective.name={tmp_path / 'talkative.py'}:Talkative", "budget.amount=1")
    assert metrics


def test_a_world_of_another_size_is_refused():
    assert join_world(1, "cpu") == World()
    with pytest.raises(UserError, match=r"engine\.processes = 2, but 1 process"):
        join_world(2, "cpu")


def test_each_process_sees_a_gpu_of_its_own():
    assert own_gpu({"LOCAL_RANK": "3"}) == "3"
    assert own_gpu({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,6"}) == "6"
    with pytest.raises(UserError, match="names 2 GPU"):
        own_gpu({"LOCAL_RANK": "2", "CUDA_VISIBLE_DEVICES": "4,6"})


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"engine": {"processes": 3}}, "engine.processes = 3 does not divide the 2 prompts of a minibatch"),
        ({"engine": {"processes": 2}, "budget": {"axis": "seconds", "amount": 9}}, "use another axis"),
    ],
)
def test_what_processes_cannot_share_is_refused_in_one_line(tables, message):
    with pytest.raises(UserError, match=message):
        make_config(**tables)


def test_dealt_work_comes_back_in_order(monkeypatch):
    items, dealt = list("abcde"), []
    for rank in range(3):
        world = World(rank, 3)
        dealt.append([item.upper() for item, _ in world.deal(items)])
        assert [counts for _, counts in world.deal(items)] == ([True, True] if rank < 2 else [True, False])
    monkeypatch.setattr(World, "gather", lambda *_: dealt)
    assert World(0, 3).undeal(dealt[0], 5) == list("ABCDE")
    assert World(0, 3).deal([]) == []


@pytest.mark.timeout(600)
def test_a_run_of_two_processes_that_diverges_is_evaluated_where_it_ended(tmp_path):
    poisoned = Path(__file__).with_name("even_answer.py")
    assert train(tmp_path, f"objective.name={poisoned}:Poisoned", "objective.at=1").wait() == 1
    ended = json.loads((tmp_path / "cell" / "status.json").read_text())
    assert (ended["failure"], ended["cause"]) == ("divergence", "loss is nan at update 2")
    evals = [json.loads(line) for line in (tmp_path / "cell" / "evals.jsonl").read_text().splitlines()]
    assert [(row["split"], row["updates"]) for row in evals[-2:]] == [("validation", 1), ("test", 1)]
