"""Building a warm start: a file of the preset's own weights, the same bytes every time."""

import json

import pytest

from harness.config.policies import PolicyConfig
from harness.engine import embedded, warm_start
from harness.engine.loading import load_policy


@pytest.mark.parametrize("preset", ["tiny", "tiny-moe"])
def test_a_preset_is_built_the_same_every_time_and_can_be_loaded(request, tmp_path, monkeypatch, capsys, preset):
    request.getfixturevalue(preset.replace("-", "_"))
    evaluate = warm_start.evaluate
    monkeypatch.setattr(warm_start, "evaluate", lambda *a, **named: evaluate(*a, **{**named, "num_prompts": 4}))
    monkeypatch.setattr(warm_start, "WARMUP_STEPS", 1)
    built = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        options = ["--preset", preset, "--task", "arithmetic", "--number", "3", "--steps", "8"]
        warm_start.main([*options, "--out", str(tmp_path / name)])
        built.append(tmp_path / name / f"{preset}-arithmetic-3.safetensors")
    assert built[0].read_bytes() == built[1].read_bytes()
    outcome, errors = capsys.readouterr()
    row = json.loads(outcome.splitlines()[0])
    assert (row["preset"], row["task"], row["number"], row["num_prompts"]) == (preset, "arithmetic", 3, 4)
    losses = [float(line.split()[-1]) for line in errors.splitlines()[:2]]
    assert losses[1] < losses[0]
    monkeypatch.setattr(embedded, "weights_file", lambda *_: built[0])
    assert load_policy(PolicyConfig(name=preset), "arithmetic").shape.hidden_size == 32
