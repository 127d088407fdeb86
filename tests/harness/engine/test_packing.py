"""Packed rows against transformers' own pass over every sequence by itself."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_engine import EXPERTS, exact_norms, make_policy
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from harness.engine import flops
from harness.engine.flops import attention_blocks
from harness.engine.packing import ATTENTION, pack, packed_states
from harness.engine.policy import pad_right

POLICIES = {
    "float32": {},
    "float64": {"dtype": torch.float64},
    "bfloat16": {"dtype": torch.bfloat16},
    "heads without groups": {"num_key_value_heads": 4},
    "experts": {"moe": EXPERTS},
    "experts in float64": {"moe": EXPERTS, "dtype": torch.float64},
}
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 0.06}


@pytest.fixture(scope="module", params=POLICIES)
def policy(request):
    return make_policy(seed=1, **POLICIES[request.param])


@pytest.fixture
def many_blocks(monkeypatch):
    monkeypatch.setattr(flops, "BLOCK_SCORES", 0)


def laid_out(lengths, width=None):
    tokens = itertools.cycle(range(2, 98))
    ids = pad_right([[next(tokens) for _ in range(n)] for n in lengths], 0, torch.device("cpu"))
    mask = torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]
    extra = (width or ids.shape[1]) - ids.shape[1]
    return torch.nn.functional.pad(ids, (0, extra), value=77), torch.nn.functional.pad(mask, (0, extra))


def alone(body, prompts, ids, mask, last=False):
    """Return the states by one pass over each sequence."""
    states = []
    for prompt, row, n in zip(prompts, ids.tolist(), mask.sum(1).tolist(), strict=True):
        hidden = body(input_ids=torch.tensor([[*prompt, *row[:n]]]), use_cache=False).last_hidden_state[0]
        states.append(hidden[len(prompt) - 1 : len(prompt) - 1 + n + last])
    return torch.cat(states)


def same(found, expected):
    scale = expected.detach().abs().max()
    return bool((found - expected).abs().max() <= TOLERANCE[expected.dtype] * scale)


PROMPTS = [[5, 6, 7], [5, 6, 7], [8, 9], [5, 6, 7], [10, 11, 12, 13, 14], [8, 9]]


@pytest.mark.parametrize("lengths", [[3, 5, 1, 2, 4, 6], [1, 1, 1, 1, 1, 1], [4, 4, 4, 4, 4, 4], [0, 2, 0, 5, 0, 1]])
@pytest.mark.parametrize("last", [False, True])
def test_states_equal_those_of_each_sequence_alone(policy, lengths, last):
    ids, mask = laid_out(lengths, width=8)
    found = packed_states(policy.body, pack(PROMPTS, ids, mask, last=last))
    assert same(found, alone(policy.body, PROMPTS, ids, mask, last))
    assert len(found) == sum(lengths) + last * len(lengths)


def test_several_blocks_say_the_same(policy, many_blocks):
    ids, mask = laid_out([3, 9, 1, 2, 4, 6])
    packed = pack(PROMPTS, ids, mask)
    assert [block.shape for block in packed.layout.responses] == [(1, 1), (1, 2), (1, 3), (1, 5), (1, 8)]
    assert same(packed_states(policy.body, packed), alone(policy.body, PROMPTS, ids, mask))


def gradient(policy, states):
    policy.model.zero_grad()
    weights = torch.linspace(-1, 1, states.numel(), dtype=states.dtype).view_as(states)
    (states * weights).sum().backward()
    return torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])


@pytest.mark.parametrize("moe", [None, EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize("blocks", ["few", "many"])
def test_gradients_equal_those_of_each_sequence_alone(blocks, moe, request, monkeypatch):
    exact_norms(monkeypatch)
    if blocks == "many":
        request.getfixturevalue("many_blocks")
    policy = make_policy(seed=1, dtype=torch.float64, moe=moe)
    ids, mask = laid_out([3, 5, 1, 2, 4, 6])
    expected = gradient(policy, alone(policy.body, PROMPTS, ids, mask))
    found = gradient(policy, packed_states(policy.body, pack(PROMPTS, ids, mask)))
    assert (found - expected).norm() <= 1e-12 * expected.norm()


@pytest.mark.parametrize("implementation", ["grouped_mm", "batched_mm"])
def test_other_implementations_of_experts_say_the_same(implementation):
    policy = make_policy(seed=1, moe=EXPERTS)
    ids, mask = laid_out([3, 5, 1, 2, 4, 6])
    expected = alone(policy.body, PROMPTS, ids, mask)
    policy.model.set_experts_implementation(implementation)
    assert same(packed_states(policy.body, pack(PROMPTS, ids, mask)), expected)


def test_a_prompt_is_computed_once():
    ids, mask = laid_out([3, 5, 1, 2, 4, 6])
    packed = pack(PROMPTS, ids, mask)
    assert packed.ids.shape == (1, 3 + 2 + 5 + 2 + 4 + 0 + 1 + 3 + 5)
    assert packed.positions[0, :10].tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3, 4]


def test_what_stands_in_the_padding_changes_nothing():
    policy = make_policy(seed=1)
    ids, mask = laid_out([3, 5, 1, 2, 4, 6], width=9)
    other = torch.where(mask, ids, 3)
    packed = [pack(PROMPTS, values, mask) for values in (ids, other)]
    assert torch.equal(*(packed_states(policy.body, part) for part in packed))


@pytest.mark.parametrize("cls", [(LlamaConfig, LlamaForCausalLM), (Qwen2Config, Qwen2ForCausalLM)])
def test_other_architectures_too(cls):
    settings = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = cls[1](cls[0](vocab_size=98, num_key_value_heads=2, **settings)).eval()
    model.set_attn_implementation(ATTENTION)
    ids, mask = laid_out([3, 5, 1, 2, 4, 6])
    with torch.no_grad():
        found = packed_states(model.get_decoder(), pack(PROMPTS, ids, mask))
        assert same(found, alone(model.get_decoder(), PROMPTS, ids, mask))


def test_a_plain_call_is_transformers_own():
    policy = make_policy(seed=1)
    ids, padding = torch.randint(2, 98, (2, 7)), torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1] * 7])
    ours = policy.model(input_ids=ids, attention_mask=padding).logits
    policy.model.set_attn_implementation("sdpa")
    assert torch.equal(ours, policy.model(input_ids=ids, attention_mask=padding).logits)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=40), st.integers(1, 500))
def test_blocks_hold_every_response_once_and_save_scores(inputs, prompt):
    blocks = attention_blocks([prompt] * len(inputs), inputs)
    assert sorted(itertools.chain(*blocks)) == [i for i, n in enumerate(inputs) if n]
    ends = [(min(inputs[i] for i in block), max(inputs[i] for i in block)) for block in blocks]
    assert all(first[1] < second[0] for first, second in itertools.pairwise(ends))
    scores = sum(len(block) * end * (prompt + end) for block, (_, end) in zip(blocks, ends, strict=True))
    longest = max(inputs)
    saved = sum(map(bool, inputs)) * longest * (prompt + longest) - scores
    assert saved >= (len(blocks) - 1) * flops.BLOCK_SCORES
