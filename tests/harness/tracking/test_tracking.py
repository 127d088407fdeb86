"""W&B offline and TensorBoard as they write, and a sweep whose mirror dies."""

import json
import struct
from pathlib import Path

import pytest

from harness.cli import main
from harness.config.errors import UserError
from harness.sweeps.run_folder import RunFolder
from harness.tracking import process, sinks
from harness.tracking.process import track, tracked

FAKES = Path(__file__).parents[1] / "sweeps"
LABELS = {"arm": "grpo", "task": "arithmetic", "policy": "tiny", "facts": {}, "config": {}}
CELLS = [{**LABELS, "key": f"k{seed}", "seed": seed} for seed in (0, 1)]
HISTOGRAM = {"edges": [-1.0, 0.0, 1.0], "counts": [3, 4]}
SWEEP = """
name = "small"
seeds = [0]
base.budget = {axis = "updates", amount = 6}
arms = [{name = "a", objective = {name = "grpo"}}]
"""


@pytest.fixture
def study(tmp_path):
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "sweep.json").write_text(json.dumps({"name": "small", "cells": CELLS}))
    for cell in CELLS:
        with RunFolder.open(folder / "cells" / cell["key"], {"config": {"seed": cell["seed"]}}) as run:
            run.append("evals", {"split": "test", "fraction": 0.0, "iteration": 0, "score": 0.25})
            for iteration in range(1, 6):
                row = {"iteration": iteration, "reward_mean": iteration / 8, "critic_grad_norm": None}
                run.append("metrics", {**row, "verdicts": {"pass": 2}, "ratio_hist": HISTOGRAM})
            run.append("evals", {"split": "test", "fraction": 1.0, "iteration": 5, "score": 0.5})
            run.finish("completed")
    (folder / "tables").mkdir()
    (folder / "tables" / "comparison.csv").write_text("a,b\n")
    return folder


def chunks(data):
    """Yield the records of a .wandb file: LevelDB's log format behind a header of 7 bytes."""
    block, header, whole = 32_768, 7, b""
    place = header
    while place + header <= len(data):
        left = block - place % block
        if left < header:  # the padding of a block's end
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + header])
        whole += data[place + header : place + header + length]
        place += header + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


def wandb_records(folder):
    """Return the records of every offline run."""
    from wandb.proto.wandb_internal_pb2 import Record

    files = sorted((folder / "tracking" / "wandb").glob("offline-run-*/*.wandb"))
    return [[Record.FromString(chunk) for chunk in chunks(file.read_bytes())] for file in files]


def history(records):
    rows = []
    for record in records:
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return rows


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_wandb_offline_has_every_row_once(study, monkeypatch):
    pytest.importorskip("wandb")
    for variable in ("WANDB_PROJECT", "WANDB_DATA_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    track(study, "wandb:offline")
    runs = wandb_records(study)
    attempts = [records for records in runs if history(records)]
    assert len(runs) == 3  # two cells and the report
    for records in attempts:
        rows = history(records)
        assert [row["train/iteration"] for row in rows if "train/iteration" in row] == [1, 2, 3, 4, 5]
        assert [row["eval/test/score"] for row in rows if "eval/test/score" in row] == [0.25, 0.5]
        assert all("train/critic_grad_norm" not in row for row in rows)
        assert rows[0]["train/verdicts/pass"] == 2
        begun = next(record.run for record in records if record.WhichOneof("record_type") == "run")
        assert begun.run_group.startswith("grpo on arithmetic, tiny, seed")
        assert begun.display_name.endswith("attempt 1")
    kinds = {record.WhichOneof("record_type") for records in runs for record in records}
    assert "artifact" in kinds  # of tables and records
    before = len(list((study / "tracking" / "wandb").glob("offline-run-*")))
    track(study, "wandb")  # nothing new: only the report is handed over again
    assert len(list((study / "tracking" / "wandb").glob("offline-run-*"))) == before + 1


def events(file):
    from tensorboardX.proto.event_pb2 import Event

    data, place = file.read_bytes(), 0
    while place < len(data):
        (length,) = struct.unpack("<Q", data[place : place + 8])
        event = Event()
        event.ParseFromString(data[place + 12 : place + 12 + length])
        place += 16 + length
        yield event


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_every_row_once(study):
    pytest.importorskip("tensorboardX")
    track(study, "tensorboard")
    files = sorted((study / "tracking" / "tensorboard").glob("k*/attempt-1/events*"))
    assert len(files) == 2
    scalars = [
        (value.tag, event.step, value.simple_value) for event in events(files[0]) for value in event.summary.value
    ]
    rewards = [(step, value) for tag, step, value in scalars if tag == "train/reward_mean"]
    assert rewards == [(i, i / 8) for i in range(1, 6)]
    assert [(step, value) for tag, step, value in scalars if tag == "eval/test/score"] == [(0, 0.25), (5, 0.5)]


def said_of(folder, target, monkeypatch, program):
    """Return what is said of a mirror whose process runs ``program``."""
    monkeypatch.setattr(process.sys, "executable", program)
    lines = []
    with tracked(folder, target, lines.append, patience=1.0):
        pass
    return lines


@pytest.mark.parametrize(
    ("script", "trouble"),
    [
        ("echo 'wandb.errors.CommError: no network' >&2; exit 1", "wandb.errors.CommError: no network"),
        ("printf 'a.BError: x\\n  see:\\n' >&2; exit 1", "a.BError: x"),
        ("kill -9 $$", "it was killed"),
        ("exec sleep 60", "not done after 1 s"),
    ],
)
def test_a_mirror_that_fails_is_one_line(study, tmp_path, monkeypatch, script, trouble):
    monkeypatch.setattr(process, "check_target", lambda _: None)
    program = tmp_path / "mirror"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    (line,) = said_of(study, "wandb", monkeypatch, str(program))
    assert line == (
        f"warning: the mirror to wandb ended early ({trouble}); no record is lost; for the rest: "
        f"evengrad track {study} --to wandb"
    )


def test_a_mirror_that_cannot_start_is_one_line(study, monkeypatch):
    monkeypatch.setattr(process, "check_target", lambda _: None)
    (line,) = said_of(study, "wandb", monkeypatch, "/none/python")
    assert "No such file" in line


def test_an_error_of_the_sweep_is_not_hidden_by_the_mirrors(study, monkeypatch, tmp_path):
    monkeypatch.setattr(process, "check_target", lambda _: None)
    monkeypatch.setattr(process.sys, "executable", "/bin/false")
    lines = []
    with pytest.raises(KeyboardInterrupt), tracked(study, "wandb", lines.append):
        raise KeyboardInterrupt
    assert len(lines) == 1


def test_unknown_and_absent_targets_are_refused_before_anything_runs(monkeypatch):
    with pytest.raises(UserError, match="unknown --track 'wandbb': wandb, "):
        sinks.check_target("wandbb")
    monkeypatch.setattr(sinks.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"needs wandb: pip install 'evengrad\[wandb\]'"):
        sinks.check_target("wandb:online")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tracked_sweep_has_the_bytes_of_one_that_is_not(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tensorboardX")
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.setenv("PYTHONPATH", f"{FAKES}:{FAKES.parents[2]}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.sweeps.command._report", lambda *_: None)
    Path("sweep.toml").write_text(SWEEP)
    command = ["sweep", "sweep.toml", "--engine", "fake_engine:run_cell"]
    assert main([*command, "--out", "plain"]) == 0
    assert main([*command, "--out", "mirrored", "--track", "tensorboard"]) == 0
    assert "warning" not in capsys.readouterr().out

    def bytes_of(out):
        files = (
            f
            for f in sorted(Path(out, "cells").rglob("*"))
            if f.is_file() and f.name != "timing.jsonl" and f.parent.name != "lease"
        )
        return {str(f.relative_to(out)): f.read_bytes() for f in files}

    assert bytes_of("plain") == bytes_of("mirrored")
    assert len(list(Path("mirrored/tracking/tensorboard").glob("*/attempt-1/events*"))) == 1
