"""Half precision: float32 heads and log-probabilities, float32 copies in the optimizer; activations made again."""

import copy

import pytest
import torch
from test_train import lines
from tiny_engine import cell, free_run, make_config, make_policy, roll, update
from torch import nn

from harness.engine.heads import wide_head
from harness.engine.logprobs import score_responses
from harness.engine.optimizer import Optimizer
from harness.engine.packing import pack, packed_states
from harness.engine.passes import score_rows
from harness.engine.recompute import recompute_layers


def test_a_half_precision_head_multiplies_in_float32():
    torch.manual_seed(0)
    head = nn.Linear(64, 500, bias=True).bfloat16()
    states = torch.randn(7, 64).bfloat16()
    expected = states.double() @ head.weight.double().T + head.bias.double()
    found = wide_head(head)(states)
    assert found.dtype == torch.float32
    assert (found.double() - expected).abs().max() < 1e-5
    assert (head(states).double() - expected).abs().max() > 1e-3  # what half precision would have said


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_full_precision_head_is_called_as_it_is(dtype):
    head, states = nn.Linear(8, 5).to(dtype), torch.randn(3, 8, dtype=dtype)
    assert torch.equal(wide_head(head)(states), head(states))


def half_model():
    torch.manual_seed(0)
    return nn.Linear(4, 3, bias=False).bfloat16()


def stepped(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (model(torch.ones(1, 4, dtype=torch.bfloat16)).sum()).backward()
        optimizer.clip()
        optimizer.step()


def make_optimizer(model, learning_rate=1e-5):
    return Optimizer(model, "policy", learning_rate=learning_rate, warmup_updates=0, max_grad_norm=1.0)


def test_steps_too_small_for_half_precision_add_up():
    model = half_model()
    before = model.weight.detach().clone().float()
    optimizer = make_optimizer(model)
    stepped(model, optimizer, 400)
    (values,) = [value for name, value in optimizer.tensors() if name.startswith("weights.")]
    torch.testing.assert_close(values, before - 400 * 1e-5, rtol=0, atol=1e-4)
    assert torch.equal(model.weight, values.bfloat16())
    assert not torch.equal(model.weight.float(), before)


def test_a_half_precision_model_goes_on_from_what_was_recorded():
    model = half_model()
    optimizer = make_optimizer(model)
    stepped(model, optimizer, 3)
    recorded = {name: value.clone() for name, value in optimizer.tensors()}
    stepped(model, optimizer, 2)
    other = half_model()
    resumed = make_optimizer(other)
    resumed.restore(recorded, 3, 3)
    stepped(other, resumed, 2)
    assert torch.equal(other.weight, model.weight)
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(optimizer.tensors(), resumed.tensors(), strict=True))


def test_a_step_that_is_put_back_is_put_back_in_the_model():
    model = half_model()
    optimizer = make_optimizer(model, learning_rate=0.1)
    before = model.weight.detach().clone()
    snapshot = optimizer.snapshot()
    stepped(model, optimizer, 1)
    assert not torch.equal(model.weight, before)
    optimizer.put_back(snapshot)
    assert torch.equal(model.weight, before)


def test_a_bfloat16_policy_has_ratio_one_and_float32_log_probabilities(tiny):
    run = free_run(make_config(policy={"dtype": "bfloat16"}))
    assert run.policy.model.dtype == torch.bfloat16
    parts = roll(run)
    experience, plan, rollout, _ = parts
    assert rollout.old_logprobs.dtype == torch.float32
    for rows in plan.micro_batches:
        scored = score_rows(run, run.policy, experience, rows)
        gap = (scored.logprobs.detach() - rollout.old_logprobs[rows])[experience.mask[rows]]
        assert gap.abs().max() < 1e-6
    before = {name: value.clone() for name, value in run.optimizer.tensors()}
    update(run, parts)
    assert any(not torch.equal(value, before[name]) for name, value in run.optimizer.tensors() if name in before)


@pytest.mark.parametrize("region", ["none", "backtrack"])
def test_a_bfloat16_run_with_a_critic_ends_and_resumes(tiny, tmp_path, region):
    config = make_config(
        policy={"dtype": "bfloat16"}, objective={"name": "ppo"}, trust_region={"name": region}, budget={"amount": 4}
    )
    cell(config, tmp_path / "cell")
    rows = lines(tmp_path / "cell", "metrics")
    assert rows[-1]["updates"] == 4
    assert all(row["grad_norm"] >= 0 for row in rows)


def gradient(policy, prompts, ids, mask):
    policy.model.zero_grad()
    score_responses(policy, prompts, ids, mask, temperature=1.0, chunk_tokens=4).logprobs.sum().backward()
    return torch.cat([p.grad.flatten() for p in policy.model.parameters()])


@pytest.mark.parametrize("moe", [None, {"moe_intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2}])
def test_activations_made_again_give_the_same_gradient(moe):
    prompts, ids = [[3, 4, 5], [3, 4, 5], [6, 7]], torch.randint(2, 98, (3, 5))
    mask = torch.arange(5) < torch.tensor([5, 2, 4])[:, None]
    kept, again = make_policy(seed=1, moe=moe), make_policy(seed=1, moe=moe)
    recompute_layers(again.body)
    torch.testing.assert_close(gradient(again, prompts, ids, mask), gradient(kept, prompts, ids, mask), rtol=0, atol=0)


def test_less_is_kept_for_the_backward_pass():
    saved = {}
    for recompute in (False, True):
        policy = make_policy(seed=1)
        if recompute:
            recompute_layers(policy.body)
        sizes = []

        def note(tensor, sizes=sizes):
            sizes.append(tensor.numel())
            return tensor

        ids, mask = torch.randint(2, 98, (8, 30)), torch.ones(8, 30, dtype=torch.bool)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            packed_states(policy.body, pack([[3, 4]] * 8, ids, mask))
        saved[recompute] = sum(sizes)
    assert saved[True] < 0.3 * saved[False]


def test_a_copy_of_a_body_that_recomputes_calls_its_own_layers():
    policy = make_policy(seed=1)
    recompute_layers(policy.body)
    body = copy.deepcopy(policy.body)
    with torch.no_grad():
        for parameter in body.parameters():
            parameter.mul_(1.5)
    ids, mask = torch.randint(2, 98, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
    packed = pack([[3, 4]] * 2, ids, mask)
    packed_states(body, packed).sum().backward()
    assert all(p.grad is None for p in policy.body.parameters())
    assert all(p.grad is not None for name, p in body.named_parameters() if "embed" not in name)


def test_without_gradients_nothing_is_kept_or_made_again():
    policy = make_policy(seed=1)
    ids, mask = torch.randint(2, 98, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
    packed = pack([[3, 4]] * 2, ids, mask)
    with torch.no_grad():
        expected = packed_states(policy.body, packed)
        recompute_layers(policy.body)
        assert torch.equal(packed_states(policy.body, packed), expected)
