"""The door with sampler.name = "vllm": train, kill and resume, eval, sweep, tensor parallelism, bad input."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cli import main
from harness.reports.study import load_study

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
RUN = """
sampler = { name = "vllm", kv_cache_gib = 0.25 }
rollout = { num_prompts = 4, group_size = 4, max_response_tokens = 24 }
update = { minibatches = 2, learning_rate = 1e-4 }
eval = { points = 2, num_prompts = 16, test_prompts = 16, temperature = 0.0 }
engine = { checkpoint_every = 1 }
budget = { axis = "updates", amount = 12 }
"""
SWEEP = """
name = "small"
seeds = [0]
arms = [{ name = "grpo", objective = { name = "grpo" } }, { name = "gspo", objective = { name = "gspo" } }]
[base]
"""


def evengrad(*words, **options):
    command = [sys.executable, "-m", "harness.cli", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, **options)


def digests(folder):
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if file.is_file() and file.name != "timing.jsonl"
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Run undisturbed; return the file of the run and its folder."""
    home = tmp_path_factory.mktemp("run")
    (home / "run.toml").write_text(RUN)
    done = evengrad("train", home / "run.toml", "--out", home / "out")
    assert done.returncode == 0, done.stderr
    return home / "run.toml", home / "out"


def test_a_run_is_recorded_with_the_version_of_vllm(trained):
    identity = json.loads((trained[1] / "config.json").read_text())
    assert identity["config"]["sampler"]["name"] == "vllm"
    assert identity["versions"]["vllm"]
    rows = [json.loads(line) for line in (trained[1] / "metrics.jsonl").read_text().splitlines()]
    assert [row["updates"] for row in rows] == [2, 4, 6, 8, 10, 12]


def test_a_killed_run_goes_on_to_the_same_bytes(trained, tmp_path):
    file, undisturbed = trained
    out = tmp_path / "out"
    words = [sys.executable, "-m", "harness.cli", "train", str(file), "--out", str(out)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        while run.poll() is None and not (out / "checkpoint").exists():
            time.sleep(0.02)
        os.kill(run.pid, signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL
    assert not (out / "weights.safetensors").exists()
    done = evengrad("train", file, "--out", out)
    assert done.returncode == 0, done.stderr
    assert digests(out) == digests(undisturbed)


def test_final_weights_are_evaluated_with_either_sampler(trained, tmp_path):
    found = []
    for sampler in ("vllm", "native"):
        rows = tmp_path / f"{sampler}.jsonl"
        done = evengrad("eval", trained[1], "--json", "--sampler", sampler, "--out", rows)
        assert done.returncode == 0, done.stderr
        found.append((json.loads(done.stdout)["score"], rows.read_text()))
    assert found[0] == found[1]  # the run's evaluation is greedy
    evals = [json.loads(line) for line in (trained[1] / "evals.jsonl").read_text().splitlines()]
    assert found[0][0] == evals[-1]["score"]


def test_a_sweep_has_a_vllm_in_its_worker(tmp_path):
    (tmp_path / "sweep.toml").write_text(SWEEP + RUN.replace("amount = 12", "amount = 4"))
    done = evengrad("sweep", tmp_path / "sweep.toml", "--out", tmp_path / "out", "--workers", "1")
    assert done.returncode == 0, done.stderr
    cells = load_study(tmp_path / "out" / "records").cells
    assert cells["status"].tolist() == ["completed"] * 2
    assert cells["updates"].tolist() == [4, 4]


@pytest.mark.parametrize("setting", ["sampler.tensor_parallel_size=2", "engine.processes=2"])
def test_two_processes_share_a_model_or_the_work(trained, tmp_path, setting):
    words = [setting, "budget.amount=4", "eval.points=1"]
    done = evengrad("train", trained[0], *words, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    scores = []
    for folder in (trained[1], tmp_path / "out"):
        rows = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
        scores.append([row["score"] for row in rows if row["fraction"] == 0])
    assert scores[0] == scores[1]  # greedy, at the start
    rows = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [row["updates"] for row in rows] == [2, 4]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (
            "sampler.kv_cache_gib=0.00001",
            "cannot run this policy here with sampler.kv_cache_gib = 1e-05: Cannot auto-fit",
        ),
        (
            "sampler.tensor_parallel_size=3",
            "sampler.kv_cache_gib = 0.25: Total number of attention heads (4) must be divisible",
        ),
        ("rollout.max_response_tokens=250", "do not fit into the policy's context of 256 tokens"),
    ],
)
def test_bad_input_is_refused_in_one_line(trained, tmp_path, capsys, word, reason):
    """What is refused without asking vLLM: tests/harness/config/test_config_sampler.py."""
    assert main(["train", str(trained[0]), word, "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line
