"""Micro-batches by memory: what a pass keeps is counted, and what does not fit is explained in one line."""

import pytest
import torch
from tiny_engine import make_config, make_policy, roll

from harness.config.errors import UserError
from harness.engine import logprobs
from harness.engine.fitting import kept_bytes
from harness.engine.memory import enough_memory
from harness.engine.run import build_run

GIB = 2**30


def tokens(limit, **engine):
    config = make_config(
        rollout={"num_prompts": 4, "group_size": 8, "max_response_tokens": 12},
        engine={"activations_gib": limit / GIB, "micro_batch_tokens": 4096, **engine},
    )
    return build_run(config).micro_batch_tokens


def test_as_many_tokens_are_taken_as_the_limit_keeps(tiny):
    policy, prompt = make_policy(), [3, 4, 5, 6, 7]
    whole = kept_bytes(policy, [prompt] * 8, 12)
    for share in (2, 4):
        found = tokens(whole // share)
        assert found == pytest.approx((5 + 8 * 12) / share, rel=0.15)
    assert tokens(whole // 4, recompute=True) > tokens(whole // 4)
    assert tokens(1e12) == 4096
    assert tokens(0) == 4096
    assert tokens(1) == 1


def test_what_is_kept_grows_with_tokens_and_holds_no_weights():
    policy = make_policy()
    one, two = (kept_bytes(policy, [[3, 4, 5]] * rows, 20) for rows in (4, 8))
    assert 1.7 * one < two < 2.1 * one
    layer_inputs = 2 * (3 + 4 * 19) * 32 * 4  # of two layers, the last response tokens being no inputs
    assert one > 5 * layer_inputs
    wider = make_policy(vocab_size=5000)
    assert kept_bytes(wider, [[3, 4, 5]] * 4, 20) == one


def test_micro_batches_are_cut_to_what_fits(tiny):
    config = make_config(engine={"activations_gib": 3e5 / GIB, "micro_batch_tokens": 4096})
    run = build_run(config)
    _, plan, _, _ = roll(run, micro_batch_tokens=run.micro_batch_tokens)
    _, whole, _, _ = roll(build_run(make_config(engine={"micro_batch_tokens": 4096})), micro_batch_tokens=4096)
    assert len(plan.micro_batches) > len(whole.micro_batches) == 2


def test_a_micro_batch_beyond_memory_is_one_line(tiny, monkeypatch):
    run = build_run(make_config())
    monkeypatch.setattr(logprobs, "packed_states", lambda *_: torch.empty(1 << 50))
    with pytest.raises(UserError, match=r"a micro-batch of \d+ response\(s\) does not fit into memory: lower"):
        roll(run)


def test_any_other_error_stays_what_it_is():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), enough_memory(3):
        torch.ones(2, 3) @ torch.ones(2, 3)
