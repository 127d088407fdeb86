"""The same sweep by every executor: Slurm's jobs (submitit's local and debug ones), Ray, two machines at once."""

import contextlib
import importlib.util
import json
import os
import random
import secrets
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_sweep import plan_of
from test_executor import BASE, HERE, ROOT, finish, outputs, start, undisturbed, write_sweep

from harness import cli
from harness.config.errors import UserError
from harness.config.executor import ExecutorConfig, SlurmConfig
from harness.sweeps.executors import check_executor
from harness.sweeps.grid import dump_config
from harness.sweeps.layout import cell_folder
from harness.sweeps.lease import read_lease
from harness.sweeps.slurm_crew import SlurmCrew

__all__ = ["undisturbed"]  # a fixture

SLURM = ["executor.name=slurm", "executor.slurm.cluster=local"]


def outcome(folder):
    """Return the outputs but for submitit's files."""
    return {name: raw for name, raw in outputs(folder).items() if not name.startswith("slurm/")}


def running(out):
    """Return the processes that hold a cell now."""
    leases = [read_lease(folder) for folder in out.glob("cells/*")]
    return [lease["pid"] for lease in leases if lease and not lease.get("released")]


def wait_until(true, seconds=120):
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert true()


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("name", ["ray", "slurm"])
def test_a_missing_package_is_told_with_the_command_that_brings_it(monkeypatch, name):
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    check_executor(ExecutorConfig(name="local"))
    with pytest.raises(UserError, match=rf"pip install 'evengrad\[{name}\]', or take --executor local"):
        check_executor(ExecutorConfig(name=name))


def test_the_command_line_wins_over_the_file(tmp_path, capsys, monkeypatch):
    text = BASE.replace('{name = "a"}', '{name = "grpo"}').replace('{name = "b"}', '{name = "ppo"}')
    sweep = write_sweep(tmp_path, text + 'executor = {name = "slurm", lease_seconds = 5}\n')
    seen = []
    monkeypatch.setattr(
        "harness.sweeps.command.run_plan", lambda plan, *_, **named: seen.append((plan.sweep, named)) or 0
    )
    words = ["sweep", str(sweep), "--engine", "fake_engine:run_cell", "--out", str(tmp_path / "out")]
    assert cli.main(words) == 0
    assert cli.main([*words, "--executor", "ray", "executor.ray.gpus=1", "--join"]) == 0
    (first, _), (second, named) = seen
    assert (first.executor.name, first.executor.lease_seconds, first.executor.ray.gpus) == ("slurm", 5, 0)
    assert (second.executor.name, second.executor.lease_seconds, second.executor.ray.gpus) == ("ray", 5, 1)
    assert named["join"]
    assert cli.main([*words, "--executor", "kubernetes"]) == 2
    assert "invalid choice: 'kubernetes'" in capsys.readouterr().err


def test_an_executor_is_no_part_of_a_cell(tmp_path):
    sweep = write_sweep(tmp_path)
    assert [c.key for c in plan_of(sweep).cells] == [c.key for c in plan_of(sweep, ["executor.name=ray"]).cells]


def test_jobs_in_this_process_give_the_same_bytes(tmp_path, undisturbed):
    settings = ["executor.name=slurm", "executor.slurm.cluster=debug"]
    code, out, err = finish(start(write_sweep(tmp_path), tmp_path / "out", *settings))
    assert code == 0, (out, err)
    assert outcome(tmp_path / "out") == undisturbed


@pytest.mark.timeout(900)
def test_a_job_that_dies_is_replaced_once_and_the_sweep_gives_the_same_bytes(tmp_path, undisturbed):
    out, log = tmp_path / "out", tmp_path / "log"
    process = start(write_sweep(tmp_path), out, *SLURM, sleep="0.1", log=log)
    wait_until(lambda: list(out.glob("cells/*/checkpoint")) and running(out))
    kill(running(out)[0])
    code, stdout, err = finish(process, 600)
    assert code == 0, (stdout, err)
    assert err.count("worker died") == 1
    assert outcome(out) == undisturbed
    assert log.read_text().count("start") == 5


@pytest.mark.timeout(900)
def test_jobs_that_outlive_the_sweeps_process_are_waited_for_and_not_run_again(tmp_path, undisturbed):
    out, log, sweep = tmp_path / "out", tmp_path / "log", write_sweep(tmp_path)
    process = start(sweep, out, *SLURM, sleep="0.4", log=log)
    wait_until(lambda: len(running(out)) == 2)
    process.kill()
    process.communicate()
    code, stdout, err = finish(start(sweep, out, sleep="0.1", log=log), 600)
    assert code == 0, (stdout, err)
    assert outcome(out) == undisturbed
    assert log.read_text().count("start") == 4


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Put an sbatch on the path that keeps what it is given."""
    for name, text in (("srun", ""), ("sbatch", f'cat "$1" >> {tmp_path}/asked; echo Submitted batch job 7')):
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "asked"


def job_of(tmp_path):
    cell = plan_of(write_sweep(tmp_path)).cells[0]
    return {"key": cell.key, "folder": str(tmp_path), "config": dump_config(cell.config), "patience_seconds": 60}


def test_slurm_is_asked_for_what_the_settings_say(tmp_path, slurm):
    settings = SlurmConfig(
        partition="gpu", minutes=90, memory_gb=24, gpus=2, cpus=6, parameters={"account": "lab", "qos": "low"}
    )
    SlurmCrew("fake_engine:run_cell", settings, tmp_path / "slurm").start(job_of(tmp_path))
    asked = slurm.read_text()
    for line in (
        "partition=gpu",
        "time=90",
        "mem=24GB",
        "gpus-per-node=2",
        "cpus-per-task=6",
        "account=lab",
        "qos=low",
    ):
        assert f"#SBATCH --{line}\n" in asked, (line, asked)
    assert "export OMP_NUM_THREADS=6" in asked


def test_a_job_that_sbatch_refuses_is_told(tmp_path, slurm):
    (tmp_path / "bin/sbatch").write_text("#!/bin/sh\necho 'invalid partition' >&2; exit 1\n")
    with pytest.raises(UserError, match=r"sbatch refuses a job: .*invalid partition"):
        SlurmCrew("fake_engine:run_cell", SlurmConfig(), tmp_path / "slurm").start(job_of(tmp_path))


def test_a_machine_without_slurm_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"executor 'slurm' cannot start: .*; run it where sbatch is"):
        SlurmCrew("fake_engine:run_cell", SlurmConfig(), tmp_path)


def test_an_address_without_a_cluster_is_told(tmp_path):
    settings = ["executor.name=ray", "executor.ray.address=127.0.0.1:1"]
    code, _, err = finish(start(write_sweep(tmp_path), tmp_path / "out", *settings), 300)
    assert code == 1
    assert "user error: no Ray cluster at 127.0.0.1:1" in err


@pytest.fixture(scope="module")
def ray_cluster(tmp_path_factory):
    """Start a cluster of this machine, as ``ray start`` does; return its address, environment and the cells' log."""
    home = tmp_path_factory.mktemp("ray")
    port = random.randint(20000, 30000)
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    workers = {"PYTHONPATH": f"{HERE}:{ROOT}", "FAKE_SLEEP": "0.05", "FAKE_LOG": str(home / "log")}
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--include-dashboard=false"]
    command += ["--num-cpus=2", "--node-ip-address=127.0.0.1", f"--port={port}", "--temp-dir=/tmp/evengrad-ray"]
    with (home / "cluster").open("w") as log:
        cluster = subprocess.Popen(command, env={**os.environ, **environment, **workers}, stdout=log, stderr=log)
    wait_until(lambda: "will now block" in (home / "cluster").read_text() or cluster.poll() is not None)
    assert cluster.poll() is None, (home / "cluster").read_text()
    yield f"127.0.0.1:{port}", environment, home / "log"
    cluster.terminate()
    cluster.wait(60)


def killed_on_ray(ray_cluster, tmp_path, monkeypatch, undisturbed, kills, seed):
    address, environment, log = ray_cluster
    draws, done, number = random.Random(seed), {"sweep": 0, "worker": 0}, 0
    settings = ["executor.name=ray", f"executor.ray.address={address}"]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    while sum(done.values()) < kills:
        number += 1
        home = tmp_path / str(number)
        home.mkdir()
        sweep, out = write_sweep(home), home / "out"
        log.write_text("")
        process = start(sweep, out, *settings)
        for _ in range(draws.randint(2, 5)):
            wait_until(lambda process=process, out=out: process.poll() is not None or running(out))
            time.sleep(draws.uniform(0, 1))
            if process.poll() is not None:
                break
            what = draws.choice(["sweep", "worker", "worker"])
            victims = running(out)
            if what == "worker" and victims:
                kill(draws.choice(victims))
                done["worker"] += 1
            elif what == "sweep":
                process.kill()
                process.communicate()
                done["sweep"] += 1
                process = start(sweep, out, *settings)
        code, stdout, err = finish(process, 300)
        if "worker died 3 times" in stdout:  # three kills between two checkpoints of one cell
            code, stdout, err = finish(start(sweep, out, *settings, "--retry-failed"), 300)
        assert code == 0, (stdout, err)
        assert outputs(out) == undisturbed
        events = log.read_text().splitlines()
        for place, event in enumerate(events):
            if event.startswith("completed"):
                assert not any(later.startswith(event.replace("completed", "start")) for later in events[place:])
    return done


@pytest.mark.timeout(900)
def test_kills_on_a_ray_cluster_change_no_byte_and_repeat_no_cell(ray_cluster, tmp_path, monkeypatch, undisturbed):
    assert sum(killed_on_ray(ray_cluster, tmp_path, monkeypatch, undisturbed, 3, seed=3).values()) >= 3


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_kills_on_a_ray_cluster_change_no_byte_and_repeat_no_cell(ray_cluster, tmp_path, monkeypatch, undisturbed):
    done = killed_on_ray(
        ray_cluster, tmp_path, monkeypatch, undisturbed, int(os.environ.get("RAY_KILLS", "60")), seed=4
    )
    assert min(done.values()) > 0


@pytest.mark.timeout(900)
def test_a_second_machine_shares_the_work_of_a_sweep(tmp_path, undisturbed):
    out, log = tmp_path / "out", tmp_path / "log"
    sweep = write_sweep(tmp_path, BASE.replace("workers = 2", "workers = 1"))
    first = start(sweep, out, sleep="0.1", log=log)
    wait_until(lambda: running(out))
    second = start(sweep, out, "--join", sleep="0.1", log=log)
    (code, stdout, err), (other, others, other_err) = finish(first, 600), finish(second, 600)
    assert (code, other) == (0, 0), (stdout, err, others, other_err)
    assert outputs(out) == undisturbed
    assert log.read_text().count("start") == log.read_text().count("completed") == 4
    assert [f.name for f in out.glob("worker-*.log")] != ["worker-0.log"]


def test_what_cannot_be_joined_is_told(tmp_path):
    sweep = write_sweep(tmp_path)
    code, _, err = finish(start(sweep, tmp_path / "out", "--join"))
    assert code == 1
    assert "no sweep was begun in" in err
    assert finish(start(sweep, tmp_path / "out"))[0] == 0
    before = {f: f.read_bytes() for f in (tmp_path / "out").rglob("*") if f.is_file()}
    changed = write_sweep(tmp_path, BASE.replace("amount = 40", "amount = 41"))
    code, _, err = finish(start(changed, tmp_path / "out", "--join"))
    assert code == 1
    assert "has 4 cells that this one has not, and lacks 4 of this one's: join it with the same file" in err
    assert {f: f.read_bytes() for f in (tmp_path / "out").rglob("*") if f.is_file()} == before


def test_a_sweep_that_is_changed_while_it_runs_is_refused_then_and_its_cells_stay(tmp_path, undisturbed):
    out, sweep = tmp_path / "out", write_sweep(tmp_path)
    process = start(sweep, out, sleep="0.1")
    wait_until(lambda: running(out))
    write_sweep(tmp_path, BASE.replace("amount = 40", "amount = 41"))
    code, _, err = finish(start(sweep, out))
    assert code == 1
    assert "another process is running a sweep in this folder" in err
    assert "to share its work, add --join" in err
    code, stdout, err = finish(process, 300)
    assert code == 0, (stdout, err)
    assert outputs(out) == undisturbed
    code, stdout, _ = finish(start(sweep, out))
    assert "4 cells of an earlier form of this sweep stay in" in stdout
    kept = {name: raw for name, raw in outputs(out).items() if name in undisturbed and name.startswith("cells/")}
    assert kept == {name: raw for name, raw in undisturbed.items() if name.startswith("cells/")}


def test_a_folder_of_another_version_is_told_and_not_touched(tmp_path):
    out, sweep = tmp_path / "out", write_sweep(tmp_path)
    assert finish(start(sweep, out))[0] == 0
    text = (out / "sweep.json").read_text()
    for change, told in [
        (lambda s: s.update(format=2), "records of format 2, this one reads and writes format 1"),
        (lambda s: [c.pop("facts") for c in s["cells"]], "by an older version of evengrad (its cells lack facts)"),
    ]:
        description = json.loads(text)
        change(description)
        (out / "sweep.json").write_text(json.dumps(description))
        code, _, err = finish(start(sweep, out))
        assert (code, told in err) == (1, True), err
        assert json.loads((out / "sweep.json").read_text()) == description
    (out / "sweep.json").write_text(text)
    folder = cell_folder(out, plan_of(sweep).cells[0].key)
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**status, "streams": {}}))
    code, _, err = finish(start(sweep, out))
    assert code == 1
    assert "was written by an older version of evengrad (no digest of metrics, evals, samples); delete" in err
