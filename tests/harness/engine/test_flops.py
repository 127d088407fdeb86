"""The closed forms equal torch's counter to the last FLOP: eager attention, eager experts."""

import pytest
import torch
from tiny_engine import cell, make_config, make_policy, sample
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from harness.engine import cache, train, update
from harness.engine.critic import Critic
from harness.engine.flops import ModelShape, PassRows
from harness.engine.ledger import Work
from harness.engine.logprobs import score_responses
from harness.engine.passes import forward_work, value_work
from harness.engine.policy import pad_right
from harness.engine.samplers import native

TRAIN_FACTOR = 3  # forward and backward, where all weights are trained
MODELS = {
    "dense": {"num_key_value_heads": 4, "head_dim": 8},
    "gqa": {"num_key_value_heads": 2, "head_dim": 8},
    "wide heads": {"head_dim": 24},
    "untied": {"tie_word_embeddings": False},
    "moe": {"moe": {"moe_intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2}},
    "moe with dense layers": {
        "num_hidden_layers": 4,
        "moe": {
            "moe_intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2, "decoder_sparse_step": 2,
            "mlp_only_layers": [3],
        },
    },
}  # fmt: skip


@pytest.fixture(params=MODELS)
def eager(request):
    with sdpa_kernel(SDPBackend.MATH):  # attention by plain matrix products, which the counter sees one by one
        yield make_policy(**MODELS[request.param])


def counted(work):
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


class Counter(TorchDispatchMode):
    """FlopCounterMode without its tracking of modules, which takes most of its time."""

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        if function.overloadpacket in flop_registry:
            self.total += flop_registry[function.overloadpacket](*arguments, **(keywords or {}), out_val=result)
        return result


def quickly_counted(work):
    with Counter() as counter:
        work()
    return counter.total


def test_the_quick_counter_is_torchs(eager):
    def work():
        score(eager, [[3, 4, 5, 9, 9], [6, 7, 8]], [2, 7], chunk=4).logprobs.sum().backward()

    assert quickly_counted(work) == counted(work) > 0


def responses(lengths):
    ids = pad_right([[5 + i] * n for i, n in enumerate(lengths)], 0, torch.device("cpu"))
    return ids, torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]


def score(policy, prompts, lengths, chunk=1 << 16):
    ids, mask = responses(lengths)
    return score_responses(policy, prompts, ids, mask, temperature=1.0, chunk_tokens=chunk)


def test_a_hand_counted_model():
    config = {
        "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 3,
        "intermediate_size": 5, "vocab_size": 7,
    }  # fmt: skip
    shape = ModelShape.from_config(config)
    # q and o 4x6 each, k and v 4x3 each: 72; gate, up, down 4x5 each: 60; two layers
    assert (shape.body_weights, shape.head_weights, shape.attention_width) == (264, 28, 6)
    assert shape.body([3]) == 2 * 264 * 3 + 4 * 2 * 6 * 9
    assert shape.prefill([3, 1]) == 2 * 264 * 4 + 4 * 2 * 6 * 10 + 2 * 28 * 2
    assert shape.decode(2, 9) == 2 * (264 + 28) * 2 + 4 * 2 * 6 * 9


def test_full_sequences_forward_and_backward(eager):
    ids = torch.randint(2, 97, (3, 11), generator=torch.Generator().manual_seed(0))
    forward = eager.shape.body([11] * 3) + eager.shape.head(33)
    assert counted(lambda: eager.model(input_ids=ids)) == forward
    assert counted(lambda: eager.model(input_ids=ids).logits.sum().backward()) == TRAIN_FACTOR * forward


def test_scoring_responses_of_one_length(eager):
    prompts = [[3, 4, 5], [6, 7, 8]]
    forward = eager.shape.response_forward(PassRows([3, 3], [5, 5], [0, 1], [True, True]))
    assert counted(lambda: score(eager, prompts, [5, 5])) == forward
    assert counted(lambda: score(eager, prompts, [5, 5]).logprobs.sum().backward()) == TRAIN_FACTOR * forward


def test_scoring_padded_responses_in_chunks_is_what_is_called_executed(eager):
    prompts, lengths = [[3, 4, 5, 9, 9], [6, 7, 8]], [2, 7]
    rows = PassRows([5, 3], lengths, [0, 1], [True, True])
    work = forward_work(eager.shape, rows)
    assert work.flops == eager.shape.response_forward(rows)
    with torch.no_grad():
        assert counted(lambda: score(eager, prompts, lengths, chunk=4)) == work.executed_flops > work.flops
    trained = counted(lambda: score(eager, prompts, lengths, chunk=4).logprobs.sum().backward())
    assert trained == TRAIN_FACTOR * work.executed_flops + eager.shape.head(9)  # the head once more, in the backward


def test_the_critic_forward_and_backward(eager):
    critic = Critic(eager)
    ids, mask = responses([2, 7])
    prompts = [[3, 4, 5, 9, 9], [6, 7, 8]]
    rows = PassRows([5, 3], [2, 7], [0, 1], [True, True])
    for bootstrap in (False, True):
        work = value_work(eager.shape, rows, bootstrap=bootstrap)
        with torch.no_grad():
            assert counted(lambda: critic.values(prompts, ids, mask, bootstrap=bootstrap)) == work.executed_flops  # noqa: B023
    trained = counted(lambda: critic.values(prompts, ids, mask, bootstrap=False).sum().backward())
    assert trained == TRAIN_FACTOR * value_work(eager.shape, rows, bootstrap=False).executed_flops


def sampling(policy, prompts, uniforms):
    """Return the counter's FLOPs and the ledger's work of one sampling call."""
    booked = Work()

    def charge(work):
        for part in work.values():
            booked.add(part)

    total = counted(lambda: sample(policy, prompts, uniforms, temperature=1.0, charge=charge))
    return total, booked


def test_sampling_without_padding_to_the_limit(eager, monkeypatch):
    monkeypatch.setattr(cache, "GROWTH", 1)
    monkeypatch.setattr(eager.tokenizer, "eos_id", -1, raising=False)
    uniforms = torch.rand(2, 3, 6, generator=torch.Generator().manual_seed(0)).double().numpy()
    total, booked = sampling(eager, [[3, 4, 5], [6, 7, 8]], uniforms)
    by_hand = eager.shape.prefill([3, 3]) + sum(eager.shape.decode(6, 6 * (3 + t)) for t in range(1, 6))
    assert total == booked.flops == booked.executed_flops == by_hand


@pytest.mark.parametrize(("share", "growth"), [(0.0, 1), (2.0, 1), (0.125, 4)])
def test_sampling_with_padding_and_finished_rows_is_what_is_called_executed(eager, monkeypatch, share, growth):
    monkeypatch.setattr(cache, "GROWTH", growth)
    monkeypatch.setattr(native, "_DROP_SHARE", share)
    uniforms = torch.rand(3, 4, 6, generator=torch.Generator().manual_seed(1)).double().numpy()
    prompts = [[3, 4, 5], [6, 7], [8, 9, 10, 11]]
    free = sample(eager, prompts, uniforms, temperature=1.0)
    commonest = int(free.ids[free.mask].bincount().argmax())
    monkeypatch.setattr(eager.tokenizer, "eos_id", commonest, raising=False)
    total, booked = sampling(eager, prompts, uniforms)
    assert total == booked.executed_flops
    assert booked.flops < booked.executed_flops
    assert booked.generated_tokens < 3 * 4 * 6


GRPO, PPO = ("grpo", "reference_penalty", "behaviour"), ("ppo", "dual", "proximal")
UP_AND_DOWN = {"rank": 2, "targets": ["up_proj", "down_proj"]}
WHOLE = [
    *[(*parts, "tiny", lora, recompute, 0) for parts in (GRPO, PPO) for lora in ({}, {"rank": 3}, UP_AND_DOWN)
      for recompute in (False, True)],
    *[(*parts, "tiny", {}, False, 2) for parts in (GRPO, PPO)],
    (*GRPO, "tiny-moe", {}, False, 0),
    (*PPO, "tiny-moe", {}, True, 0),
    (*GRPO, "tiny-moe", {"rank": 2}, False, 0),
]  # fmt: skip


@pytest.mark.parametrize(("objective", "region", "anchor", "preset", "lora", "recompute", "lag"), WHOLE, ids=str)
def test_a_whole_run_is_counted_exactly(
    request, tmp_path, monkeypatch, objective, region, anchor, preset, lora, recompute, lag
):
    request.getfixturevalue(preset.replace("-", "_"))
    counted_flops = []

    def step(*arguments):
        with Counter() as counter:
            stop = original(*arguments)
        counted_flops.append(counter.total)
        return stop

    original, loaded, runs = update._step, train.build_run, []

    def build(*arguments):
        runs.append(loaded(*arguments))
        return runs[0]

    monkeypatch.setattr(update, "_step", step)
    monkeypatch.setattr(train, "build_run", build)
    config = make_config(
        policy={"name": preset, "lora": lora},
        objective={"name": objective},
        trust_region={"name": region},
        rollout={"num_prompts": 2, "group_size": 3, "max_response_tokens": 5, "lag": lag, "anchor": anchor},
        budget={"amount": 2 + lag},
        eval={"points": 1, "num_prompts": 2, "test_prompts": 2},
        engine={"logits_mib": 5 * 98 * 4 / 2**20, "micro_batch_tokens": 30, "recompute": recompute}
        | ({"routing_replay": True} if preset == "tiny-moe" else {}),
    )
    with sdpa_kernel(SDPBackend.MATH):
        total = quickly_counted(lambda: cell(config, tmp_path / "cell"))
    phases = {name: work.executed_flops for name, work in runs[0].ledger.phases.items()}
    expected = {"prefill", "decode", "old", "update", "evaluation"}
    expected |= {"reference", "diagnostic"} if region == "reference_penalty" else {"critic", "probe"}
    expected |= {"diagnostic"} if preset == "tiny-moe" else set()
    expected |= {"merging"} if lora else set()
    assert phases.keys() == expected
    assert total == sum(phases.values())
    if objective == "grpo":
        assert sum(counted_flops) == phases["update"]
    assert len(counted_flops) == 2 + lag
