"""vLLM never draws from weights of before: after every way to change them it is greedy as the native sampler is."""

from contextlib import closing

import pytest
import torch
from tiny_engine import free_run, make_config, make_policy, plugin, roll, update
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from harness.config.sampler import SamplerConfig
from harness.engine.backtrack import Undo
from harness.engine.checkpoint import policy_weights, restore_run, save_run
from harness.engine.embedded import weights_file
from harness.engine.flops import ModelShape
from harness.engine.packing import ATTENTION
from harness.engine.policy import Policy, load_weights
from harness.engine.samplers import NativeSampler
from harness.engine.samplers.vllm import VllmSampler
from harness.engine.streams import noises
from harness.engine.tokenizer import CharTokenizer

pytestmark = pytest.mark.vllm

PROMPTS = [[19, 13, 20, 29], [21, 22, 13, 23, 24, 29], [20, 29]]


@pytest.fixture
def run(sampler):
    """Return a run whose sampler is the file's, at steps so large that greedy responses change."""
    settings = {"learning_rate": 3e-3, "warmup_updates": 0}
    policy = {"name": "tiny", "weights": str(weights_file("tiny", "arithmetic", 0))}
    tables = {"policy": policy, "task": plugin("EvenAnswer"), "rollout": {"max_response_tokens": 12}}
    made = free_run(make_config(update=settings, **tables))
    made.sampler = sampler
    return made


def step(run):
    update(run, roll(run))
    run.iteration += 1


def greedy(sampler, policy):
    noise = noises(0, "greedy", 0, map(str, PROMPTS), 1)
    return sampler.sample(policy, PROMPTS, noise, limit=16, temperature=0, charge=lambda _: None)


def check(run, seen):
    """Compare with the native sampler; add what was drawn to ``seen``."""
    found, expected = greedy(run.sampler, run.policy), greedy(NativeSampler(), run.policy)
    assert torch.equal(found.ids, expected.ids)
    torch.testing.assert_close(found.logprobs, expected.logprobs, atol=1e-3, rtol=0)
    seen.append(expected.logprobs.sum().item())


def test_steps_and_what_undoes_them(run):
    seen = []
    check(run, seen)
    payload, snapshot, before = save_run(run, {}), run.optimizer.snapshot(), Undo(run.optimizer)
    step(run)
    check(run, seen)
    run.optimizer.put_back(snapshot)
    check(run, seen)
    step(run)
    check(run, seen)
    before.shrink(0.5)
    check(run, seen)
    with before.before():
        check(run, seen)
    check(run, seen)
    before.undo(counted=True)
    check(run, seen)
    step(run)
    check(run, seen)
    restore_run(run, payload)
    check(run, seen)
    start, stepped, back, second, shrunk, inside, outside, undone, third, restored = seen
    assert start == back == inside == undone == restored
    assert shrunk == outside
    assert len({start, stepped, second, shrunk, third}) == 5  # or the test would see nothing


def test_other_weights_in_the_same_model(run, tmp_path):
    seen = []
    file = tmp_path / "weights.safetensors"
    file.write_bytes(policy_weights(run))
    check(run, seen)
    with torch.no_grad():
        for layer in run.policy.model.model.layers:
            layer.mlp.up_proj.weight.data.mul_(0.7)
    check(run, seen)
    last = run.policy.model.model.layers[2].self_attn
    last.o_proj.weight = nn.Parameter(last.o_proj.weight.detach() * 2)
    check(run, seen)
    with torch.no_grad():
        run.policy.head.weight.mul_(1.2)  # tied: the embedding and the head, under two names
    check(run, seen)
    load_weights(run.policy, file)
    check(run, seen)
    assert len(set(seen)) == 4
    assert seen[4] == seen[0]


def test_a_reference_beside_the_policy(run):
    seen = []
    reference = run.policy.frozen_copy()
    step(run)
    check(run, seen)
    found, expected = greedy(run.sampler, reference), greedy(NativeSampler(), reference)
    assert torch.equal(found.ids, expected.ids)
    check(run, seen)
    assert seen[0] == seen[1] != expected.logprobs.sum().item()


def qwen2():
    """Return a policy whose attention has biases."""
    config = Qwen2Config(
        vocab_size=98, hidden_size=128, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, attn_implementation=ATTENTION,
    )  # fmt: skip
    return Policy(Qwen2ForCausalLM(config).eval(), CharTokenizer(), ModelShape.from_config(config.to_dict()))


@pytest.mark.parametrize(
    "make", [lambda: make_policy(head_dim=32, tie_word_embeddings=False), qwen2], ids=["untied", "qwen2"]
)
def test_other_models(make):
    policy = make()
    config = SamplerConfig.model_validate({"name": "vllm", "kv_cache_gib": 0.25})
    with closing(VllmSampler(config)) as made:
        for seed in (1, 2):
            torch.manual_seed(seed)
            with torch.no_grad():
                for name, parameter in policy.model.named_parameters():
                    parameter.copy_(torch.randn_like(parameter) * 0.3 + name.endswith("norm.weight"))
            assert torch.equal(greedy(made, policy).ids, greedy(NativeSampler(), policy).ids)
