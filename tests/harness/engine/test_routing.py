"""Replayed routes against a plain pass over each sequence, whose experts are chosen by hand."""

import copy

import pytest
import torch
from test_policy import saved
from test_train import Killed, kill_at
from test_update import distance, gradient, moved
from tiny_engine import EXPERTS, cell, digests, double, exact_norms, free_run, make_config, make_policy, roll, update

from harness.config.errors import UserError
from harness.engine.critic import Critic
from harness.engine.passes import score_rows
from harness.engine.recompute import recompute_layers
from harness.engine.routing import Replayed, follow_routes, routers, taken
from harness.engine.run import build_run


def config_for(**tables):
    engine = {"routing_replay": True, "micro_batch_tokens": 64, **tables.pop("engine", {})}
    return make_config(**{"policy": {"name": "tiny-moe"}, **tables}, engine=engine)


def rows_of(routes):
    return routes.sort(-1).values.tolist()


def test_routers_are_found_in_the_layers_that_have_experts():
    assert routers(make_policy().body) == []
    mixed = make_policy(num_hidden_layers=4, moe={**EXPERTS, "decoder_sparse_step": 2})
    assert routers(mixed.body) == [mixed.body.layers[1].mlp.gate, mixed.body.layers[3].mlp.gate]
    follow_routes(mixed.body)
    mixed.model(input_ids=torch.tensor([[5, 6, 7]]))
    assert taken(mixed.body).shape == (2, 3, 2)


def by_hand(block, x, chosen):
    """Return the output of a layer's experts with a plain loop over tokens and their chosen experts."""
    scores = torch.softmax((x @ block.gate.weight.T).float(), -1)
    rows = []
    for token, experts, score in zip(x, chosen.tolist(), scores, strict=True):
        weights = score[experts]
        if block.gate.norm_topk_prob:
            weights = weights / weights.sum()
        row = torch.zeros_like(token)
        for weight, expert in zip(weights.to(x.dtype), experts, strict=True):
            gate, up = (block.experts.gate_up_proj[expert] @ token).chunk(2)
            row = row + weight * (block.experts.down_proj[expert] @ (torch.nn.functional.silu(gate) * up))
        rows.append(row)
    return torch.stack(rows)


@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("implementation", ["eager", "batched_mm"])
def test_given_experts_get_the_current_routers_weights_and_its_gradient(normed, implementation):
    policy = make_policy(seed=1, moe={**EXPERTS, "norm_topk_prob": normed}, dtype=torch.float64)
    policy.model.set_experts_implementation(implementation)
    follow_routes(policy.body)
    block = policy.body.layers[1].mlp
    x = torch.randn(9, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(i))[:2] for i in range(9)])
    free = block(x[None])[0]
    torch.testing.assert_close(free, by_hand(block, x, block.gate.choice.made), rtol=0, atol=1e-12)
    with Replayed(block, [given.to(torch.uint8)]):
        found = block(x[None])[0]
    expected = by_hand(block, x, given)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert (found - free).abs().max() > 1e-6
    weights = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).view_as(found)
    ours, theirs = (torch.autograd.grad((out * weights).sum(), block.gate.weight)[0] for out in (found, expected))
    assert theirs.norm() > 0
    assert distance(ours, theirs) < 1e-6  # the router's softmax is in float32


def test_routes_of_another_row_are_refused():
    policy = make_policy(moe=EXPERTS)
    follow_routes(policy.body)
    with Replayed(policy.body, torch.zeros(2, 3, 2, dtype=torch.uint8)), pytest.raises(RuntimeError, match="are given"):
        policy.model(input_ids=torch.tensor([[5, 6, 7, 8]]))


def alone(policy, prompt, response, given=None):
    """Return log-probabilities of a response and routes [L, n, k], by transformers' own pass over it alone."""
    made, hooks = [], []

    def choose(router, arguments, outputs):
        logits, weights, chosen = outputs
        if given is not None:
            chosen = given[len(made)]
            weights = torch.softmax(logits, -1).gather(1, chosen)
            weights = weights / weights.sum(1, keepdim=True)
        made.append(chosen)
        return logits, weights, chosen

    hooks = [layer.mlp.gate.register_forward_hook(choose) for layer in policy.body.layers]
    tokens = torch.tensor([[*prompt, *response[:-1]]])
    logits = policy.model(input_ids=tokens).logits[0, len(prompt) - 1 :]
    for hook in hooks:
        hook.remove()
    return torch.log_softmax(logits, -1)[range(len(response)), response], torch.stack(made)


def responses(experience):
    lengths = experience.lengths
    return [(p, row[:n]) for p, row, n in zip(experience.prompts, experience.ids.tolist(), lengths, strict=True)]


def moved_run(routers_by=0.1, **engine):
    """Return a run in float64 that has moved since its rollout, the rollout, and its old policy."""
    run = double(free_run(config_for(engine=engine)))
    old = copy.deepcopy(run.policy)
    parts = moved(run, roll(run))
    with torch.no_grad():
        for router in routers(run.policy.body):
            router.weight += torch.randn(router.weight.shape, generator=torch.Generator().manual_seed(7)) * routers_by
    return run, parts, old


@pytest.fixture
def rolled(tiny_moe, monkeypatch):
    exact_norms(monkeypatch)
    return moved_run(routers_by=0.3)


def test_routes_are_those_of_each_sequence_alone(rolled):
    _, (experience, plan, *_), old = rolled
    assert list(experience.routes) == [tuple(rows.tolist()) for rows in plan.micro_batches]
    whole = responses(experience)
    for rows, routes in experience.routes.items():
        assert routes.dtype == torch.uint8
        expected, seen = [], set()
        for row in rows:
            prompt, response = whole[row]
            made = alone(old, prompt, response)[1]
            expected += made.transpose(0, 1)[0 if tuple(prompt) not in seen else len(prompt) :].sort(-1).values.tolist()
            seen.add(tuple(prompt))
        assert sorted(rows_of(routes.transpose(0, 1))) == sorted(expected)


def replayed_by_hand(run, experience, old):
    """Return log-probabilities of each response, with the old policy's experts at every token and layer."""
    found = []
    for prompt, response in responses(experience):
        given = alone(old, prompt, response)[1]
        free = alone(run.policy, prompt, response)[1]
        changed = (given.sort(-1).values != free.sort(-1).values).any(-1)  # [L, n]
        found.append(
            (alone(run.policy, prompt, response, given)[0], changed[:, : len(prompt)], changed[:, len(prompt) :])
        )
    return found


@pytest.mark.parametrize("recompute", [False, True])
def test_every_token_takes_its_old_experts_in_every_layer_of_the_policy_now(rolled, recompute):
    run, (experience, plan, rollout, _), old = rolled
    expected = replayed_by_hand(run, experience, old)
    for layer in range(2):  # prompts and responses have new routes in each layer, or nothing is shown
        assert any(prompt[layer].any() for _, prompt, _ in expected)
        assert any(response[layer].any() for _, _, response in expected)
    weight = torch.linspace(-1, 1, rollout.response_mask.numel(), dtype=torch.float64).view_as(rollout.old_logprobs)
    run.policy.model.zero_grad()
    sum((logprobs * weight[i, : len(logprobs)]).sum() for i, (logprobs, *_) in enumerate(expected)).backward()
    wanted = [p.grad.clone() for p in run.policy.model.parameters()]
    if recompute:
        recompute_layers(run.policy.body)
    run.policy.model.zero_grad()
    for rows in plan.micro_batches:
        scored = score_rows(run, run.policy, experience, rows)
        for i, logprobs in zip(rows.tolist(), scored.logprobs, strict=True):
            assert (logprobs[: len(expected[i][0])] - expected[i][0]).abs().max() < 1e-12
        with torch.no_grad():
            free = score_rows(run, run.policy, experience, rows, replay=False)
        assert (free.logprobs - scored.logprobs).abs().max() > 1e-4
        (scored.logprobs * weight[rows]).sum().backward()
    for (name, parameter), gradient_ in zip(run.policy.model.named_parameters(), wanted, strict=True):
        assert distance(parameter.grad, gradient_) < 1e-12, name


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("replay", [False, True])
def test_ratios_before_the_first_update_are_one(tiny_moe, recompute, replay):
    run = free_run(config_for(engine={"routing_replay": replay, "recompute": recompute}))
    experience, plan, rollout, _ = roll(run)
    for rows in plan.micro_batches:
        scored = score_rows(run, run.policy, experience, rows)
        gap = (scored.logprobs.detach() - rollout.old_logprobs[rows])[experience.mask[rows]]
        assert gap.abs().max() < 1e-6
    assert (rollout.old_logprobs[experience.mask] < 0).all()


@pytest.mark.parametrize("replay", [False, True])
def test_the_gradient_of_a_step_does_not_depend_on_micro_batches_or_recomputation(tiny_moe, monkeypatch, replay):
    exact_norms(monkeypatch)
    found = []
    for tokens, recompute in ((1000, False), (20, False), (50, True)):
        config = config_for(engine={"routing_replay": replay, "micro_batch_tokens": tokens, "recompute": recompute})
        run = double(free_run(config))
        found.append(gradient(run, moved(run, roll(run)), monkeypatch))
    assert distance(found[1], found[0]) < 1e-12
    assert distance(found[2], found[0]) < 1e-12


def test_an_update_moves_every_router(tiny_moe):
    run = free_run(config_for())
    before = [router.weight.detach().clone() for router in routers(run.policy.body)]
    update(run, roll(run))
    assert all(
        (router.weight != old).any(1).sum() > 1 for router, old in zip(routers(run.policy.body), before, strict=True)
    )


def test_copies_of_a_policy_share_no_routes(tiny_moe):
    config = config_for(objective={"name": "ppo"}, trust_region={"name": "reference_penalty"})
    run = build_run(config)
    prompts, ids, mask = [[5, 6, 7], [5, 6, 7]], torch.tensor([[8, 9], [9, 4]]), torch.ones(2, 2, dtype=torch.bool)
    others = [run.reference.body, run.critic.body, copy.deepcopy(run.policy.body)]
    tokens = torch.tensor([[*prompts[0], 8, 9]])

    def states():
        with torch.no_grad():
            return [body(input_ids=tokens).last_hidden_state for body in (run.policy.body, *others)]

    free = states()
    made = [taken(body) for body in others]
    with Replayed(run.policy.body, (made[0] + 1) % 6):
        replayed = states()
    assert not torch.equal(replayed[0], free[0])
    assert all(torch.equal(a, b) for a, b in zip(replayed[1:], free[1:], strict=True))
    critic = Critic(run.policy)
    with Replayed(run.policy.body, torch.zeros(2, 1, 2)):  # of another row: it would be refused
        critic.values(prompts, ids, mask, bootstrap=False)


def test_the_reference_routes_freely_while_the_policy_replays(rolled):
    run, (experience, plan, *_), _ = rolled
    run.reference = run.policy.frozen_copy()
    rows = plan.micro_batches[0]
    with torch.no_grad():
        ours, theirs = (score_rows(run, p, experience, rows).logprobs for p in (run.policy, run.reference))
        free = score_rows(run, run.policy, experience, rows, replay=False).logprobs
    assert torch.equal(theirs, free)
    assert not torch.equal(ours, free)


@pytest.mark.parametrize("region", ["early_stop", "backtrack"])
def test_a_run_with_replay_that_is_killed_ends_byte_equal_with_any_region(tiny_moe, tmp_path, monkeypatch, region):
    config = config_for(trust_region={"name": region}, objective={"name": "gspo"}, budget={"amount": 4})
    cell(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_at(patch, "write_checked", 2)
        with pytest.raises(Killed):
            cell(config, tmp_path / "cut")
    cell(config, tmp_path / "cut")
    assert digests(tmp_path / "cut") == digests(tmp_path / "whole")


def test_a_dense_policy_is_refused_when_it_is_loaded(tmp_path):
    saved(tmp_path)
    with pytest.raises(UserError, match=r"is for mixtures of experts; policy .* is dense"):
        build_run(config_for(policy={"name": str(tmp_path)}))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_pretrained_mixture_replays_with_its_own_kernels(tmp_path, dtype):
    saved(tmp_path, moe=EXPERTS)
    run = free_run(config_for(policy={"name": str(tmp_path), "dtype": dtype}))
    assert run.policy.model.config._experts_implementation == "grouped_mm"
    experience, plan, rollout, _ = moved(run, roll(run))
    for rows in plan.micro_batches:
        free, replayed = (score_rows(run, run.policy, experience, rows, replay=r).logprobs for r in (False, True))
        assert not torch.equal(free, replayed)
    assert rollout.old_logprobs.dtype == torch.float32
