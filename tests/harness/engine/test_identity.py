import json
import shutil
from pathlib import Path

import pytest
from tiny_engine import PLUGINS, make_config, plugin

import harness
from harness.engine import embedded
from harness.engine import identity as module
from harness.engine.identity import identity


def test_it_is_plain_json_and_the_same_every_time(tiny):
    found = identity(make_config())
    assert json.loads(json.dumps(found)) == found
    assert identity(make_config()) == found
    assert found["versions"].keys() == {"torch", "transformers", "numpy", "scipy", "pydantic-monty"}


@pytest.mark.parametrize(
    "tables",
    [
        {"seed": 1},
        {"rollout": {"temperature": 0.5}},
        {"engine": {"threads": 2}},
        {"eval": {"samples": 2}},
        {"trust_region": {"name": "dual"}},
        {"objective": {"name": "gspo"}},
    ],
    ids=str,
)
def test_every_setting_is_in_it(tiny, tables):
    assert identity(make_config(**tables)) != identity(make_config())


def test_the_source_of_a_plug_in_is_in_it(tiny, tmp_path):
    copy = tmp_path / "even_answer.py"
    shutil.copy(PLUGINS, copy)
    config = make_config(objective={**plugin("Mixed"), "name": f"{copy}:Mixed"})
    before = identity(config)
    copy.write_text(copy.read_text() + "\n# another\n")
    after = identity(config)
    assert before["config"] == after["config"]
    assert before["sources"]["objective"] != after["sources"]["objective"]


def test_the_weights_of_an_embedded_policy_are_in_it(tiny, tmp_path, monkeypatch):
    before = identity(make_config())["sources"]["policy"]
    other = tmp_path / "other.safetensors"
    other.write_bytes(tiny.read_bytes() + b" ")
    monkeypatch.setattr(embedded, "weights_file", lambda *_: other)
    assert identity(make_config())["sources"]["policy"] != before


@pytest.mark.parametrize(
    "file", ["engine/update.py", "engine/embedded/__init__.py", "scoring.py", "reports/pass_at_k.py"]
)
def test_the_engines_sources_are_in_it_with_the_presets(tiny, tmp_path, monkeypatch, file):
    folder = tmp_path / "harness"
    shutil.copytree(Path(harness.__file__).parent, folder)
    monkeypatch.setattr(module.harness, "__file__", str(folder / "__init__.py"))
    before = module._engine_hash()
    (folder / file).write_text((folder / file).read_text() + "\n")
    assert module._engine_hash() != before


def test_a_new_objective_beside_it_changes_nothing(tiny, tmp_path):
    copy = tmp_path / "even_answer.py"
    shutil.copy(PLUGINS, copy)
    config = make_config(objective={**plugin("Mixed"), "name": f"{copy}:Mixed"})
    before = identity(config)
    (tmp_path / "newcomer.py").write_text("x = 1\n")
    assert identity(config) == before
