"""Products of layers that are trained through adapters: by hand, and as torch counts them."""

import itertools

import pytest
import torch
from test_flops import MODELS, quickly_counted, responses, sampling, score
from tiny_engine import make_policy
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.config.errors import UserError
from harness.config.policies import LoraConfig
from harness.engine.critic import Critic
from harness.engine.flops import ModelShape, PassRows
from harness.engine.layers import count_products
from harness.engine.lora import with_adapters
from harness.engine.passes import forward_work, value_work
from harness.engine.recompute import recompute_layers
from harness.engine.weights import full_weights

PROMPTS, LENGTHS = [[3, 4, 5, 9, 9], [6, 7, 8]], [2, 7]
ROWS = PassRows([5, 3], LENGTHS, [0, 1], [True, True])
TARGETS = [["all-linear"], ["q_proj"], ["k_proj", "o_proj"], ["v_proj"], ["o_proj"], ["gate_proj"], ["down_proj"]]
HAND = {
    "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 3,
    "intermediate_size": 5, "vocab_size": 7,
}  # fmt: skip


def test_a_model_counted_by_hand():
    """Two layers of 4: q and o 4x6, k and v 4x3, three of 4x5, 132 weights a layer; adapters of rank 2 on v and up."""
    found = count_products(HAND, LoraConfig(rank=2, targets=["v_proj", "up_proj"]))
    v, up = 2 * (4 + 3), 2 * (4 + 5)
    assert found.adapters == 2 * (v + up)
    assert found.forward == 2 * 132 + found.adapters
    assert found.merge == 2 * 2 * (12 + 20)
    # First layer: v's A has no gradient of its input, q and k nothing; from o on all inputs. Second: all inputs.
    first = (8 + 2 * 6) + 24 + 3 * 20 + 2 * up
    assert found.backward == first + (132 + 2 * v + 2 * up)
    assert found.scores_backward == 1 + 4  # of the first layer the values' gradient alone
    assert found.again == found.forward - 2 * 20  # not the products of down, which has no adapter
    assert found.scores_again == 4


def test_without_adapters_a_backward_pass_is_twice_a_forward_one():
    found = count_products(HAND, LoraConfig())
    assert (found.forward, found.backward, found.scores_backward) == (264, 528, 8)
    assert (found.again, found.scores_again, found.adapters, found.merge) == (264 - 40, 4, 0, 0)


def test_the_start_has_no_adapters():
    shape, adapted = ModelShape.from_config(HAND), ModelShape.from_config(HAND, LoraConfig(rank=2))
    assert adapted.start.response_forward(ROWS) == shape.response_forward(ROWS) < adapted.response_forward(ROWS)
    assert adapted.start.decode(3, 20) == shape.decode(3, 20) < adapted.decode(3, 20)


@pytest.fixture(autouse=True)
def plain_products():
    with sdpa_kernel(SDPBackend.MATH):
        yield


def adapted(model, targets):
    return with_adapters(make_policy(**MODELS[model]), LoraConfig(rank=3, targets=targets), 0)


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        *itertools.product(["gqa", "moe with dense layers"], TARGETS),
        ("untied", ["all-linear"]),
        ("moe", ["all-linear"]),
        ("moe", ["v_proj"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("recompute", [False, True])
def test_an_update_is_counted_exactly_wherever_the_first_adapter_stands(model, targets, recompute):
    policy = adapted(model, targets)
    work = forward_work(policy.shape, ROWS, backward=True).executed_flops + policy.shape.head(9)  # head in two chunks
    if recompute:
        recompute_layers(policy.body)
        work += policy.shape.recomputed_body(ROWS)
    assert quickly_counted(lambda: score(policy, PROMPTS, LENGTHS, chunk=4).logprobs.sum().backward()) == work


@pytest.mark.parametrize("model", ["gqa", "moe"])
def test_other_passes_are_counted_exactly(model):
    policy = adapted(model, ["all-linear"])
    critic = Critic(policy)
    ids, mask = responses(LENGTHS)
    torch.nn.init.ones_(critic.head.weight)
    for bootstrap in (False, True):
        trained = quickly_counted(lambda b=bootstrap: critic.values(PROMPTS, ids, mask, bootstrap=b).sum().backward())
        assert trained == value_work(policy.shape, ROWS, bootstrap=bootstrap, backward=True).executed_flops
    with torch.no_grad():
        assert (
            quickly_counted(lambda: score(policy, PROMPTS, LENGTHS)) == forward_work(policy.shape, ROWS).executed_flops
        )
    uniforms = torch.rand(2, 3, 6, generator=torch.Generator().manual_seed(0)).double().numpy()
    total, booked = sampling(policy, PROMPTS, uniforms)
    assert total == booked.executed_flops
    assert quickly_counted(lambda: dict(full_weights(policy))) == policy.shape.merge() > 0


def test_experts_that_all_tokens_share_are_refused():
    with pytest.raises(UserError, match="Qwen2-MoE"):
        count_products({"shared_expert_intermediate_size": 8}, LoraConfig())
