import copy

import pytest
import torch
from safetensors.torch import load_file
from tiny_engine import free_run, make_config, make_policy, roll, update
from torch import nn

from harness.engine.backtrack import Undo
from harness.engine.checkpoint import policy_weights, restore_run, save_run
from harness.engine.policy import load_weights
from harness.engine.weights import checkpoint_weights, full_weights, weights_digest

MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


@pytest.mark.parametrize("settings", [{}, {"tie_word_embeddings": False}, {"moe": MOE}], ids=["tied", "untied", "moe"])
def test_names_are_those_of_saved_files_and_of_both_ends_of_a_tie(tmp_path, settings):
    policy = make_policy(**settings)
    policy.model.save_pretrained(tmp_path)
    expected = load_file(tmp_path / "model.safetensors")
    found = checkpoint_weights(policy)
    names = [name for name, _ in found]
    assert len(set(names)) == len(names)
    assert set(names) == {*expected, "lm_head.weight"}
    assert any(".experts.3.up_proj.weight" in name for name in names) == ("moe" in settings)
    for name, value in found:
        tied = "model.embed_tokens.weight" if name not in expected else name
        assert torch.equal(value, expected[tied])
        assert not value.requires_grad


def test_a_weight_comes_once_under_the_models_own_name():
    policy = make_policy(moe=MOE)
    names = [name for name, _ in full_weights(policy)]
    assert names == [name for name, _ in policy.model.named_parameters()]
    assert "lm_head.weight" not in names


def step(run):
    update(run, roll(run))


def put_back(run):
    before = run.optimizer.snapshot()
    step(run)
    yield
    run.optimizer.put_back(before)


def undo(run):
    before = Undo(run.optimizer)
    step(run)
    yield
    before.shrink(0.5)
    yield
    with before.before():
        yield
    yield
    before.undo(counted=False)


def restore(run):
    payload = save_run(run, {})
    step(run)
    yield
    restore_run(run, payload)


def load(run, tmp_path):
    file = tmp_path / "weights.safetensors"
    file.write_bytes(policy_weights(run))
    step(run)
    yield
    load_weights(run.policy, file)


WAYS = {"put back": put_back, "undone": undo, "restored": restore}


def history(run, way):
    """Return the digests at the start, at every halt of ``way`` and at its end."""
    found = [weights_digest(run.policy)]
    for _ in way:
        found.append(weights_digest(run.policy))
    return [*found, weights_digest(run.policy)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("way", [*WAYS, "loaded"])
def test_steps_change_the_digest_and_what_undoes_them_brings_it_back(tiny, tmp_path, way, dtype):
    run = free_run(make_config(policy={"dtype": dtype}, update={"learning_rate": 0.1, "warmup_updates": 0}))
    digests = history(run, load(run, tmp_path) if way == "loaded" else WAYS[way](run))
    assert digests[-1] == digests[0]
    if way == "undone":
        start, stepped, shrunk, before, again, _ = digests
        assert before == start
        assert again == shrunk
        assert len({start, stepped, shrunk}) == 3
    else:
        assert digests[1] != digests[0]


def smallest(policy):
    weight = policy.model.model.norm.weight
    weight[3] = torch.nextafter(weight[3], torch.tensor(2.0))


def swapped(policy):
    weight = policy.model.model.embed_tokens.weight
    weight[[2, 5]] = weight[[5, 2]]


def through_data(policy):
    policy.model.model.layers[1].mlp.up_proj.weight.data.mul_(1.001)


def replaced(policy):
    layer = policy.model.model.layers[0].self_attn.q_proj
    layer.weight = nn.Parameter(layer.weight * 2)


def exchanged(policy):
    first, second = policy.model.model.layers
    first.input_layernorm.weight, second.input_layernorm.weight = (
        second.input_layernorm.weight,
        first.input_layernorm.weight,
    )


def negated(policy):
    policy.model.model.layers[0].mlp.down_proj.weight.neg_()


def doubled(policy):
    for parameter in policy.model.parameters():
        parameter.mul_(2)


def permuted(policy):
    weight = policy.model.model.layers[0].mlp.down_proj.weight
    weight.copy_(weight.roll(1, -1))


@pytest.mark.parametrize("change", [smallest, swapped, through_data, replaced, exchanged, negated, doubled, permuted])
def test_any_change_shows(change):
    policy = make_policy()
    with torch.no_grad():
        for norm in policy.model.model.layers:
            norm.input_layernorm.weight.copy_(torch.rand(32))
        before = weights_digest(policy)
        change(policy)
    assert weights_digest(policy) != before


def test_equal_weights_have_one_digest_and_other_precisions_another():
    policy = make_policy()
    assert weights_digest(policy) == weights_digest(policy.frozen_copy())
    half = copy.deepcopy(policy)
    half.model.to(torch.bfloat16)
    assert weights_digest(half) != weights_digest(policy)
    assert weights_digest(half) == weights_digest(half.frozen_copy())
