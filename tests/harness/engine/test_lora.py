"""LoRA: the start is the base model, adapters alone are trained, nothing frozen is copied, and a run stays a run."""

import importlib.util
import json

import pytest
import torch
from safetensors.torch import load_file
from test_train import Killed, kill_at, lines, small, status
from tiny_engine import TINY, cell, digests, free_run, make_config, make_policy, roll, update
from torch import nn

from harness.config.errors import UserError
from harness.config.loading import apply_overrides, parse_assignments, resolve_run
from harness.config.policies import LoraConfig
from harness.engine.anchors import AnchorStates
from harness.engine.checkpoint import policy_weights, restore_run, save_run
from harness.engine.estimate import estimate_cell
from harness.engine.finished import evaluate_run
from harness.engine.identity import identity
from harness.engine.loading import load_policy
from harness.engine.logprobs import score_responses
from harness.engine.lora import with_adapters
from harness.engine.passes import score_rows
from harness.engine.policy import Policy, load_weights
from harness.engine.recompute import recompute_layers
from harness.engine.run import build_run
from harness.engine.weights import full_weights

MOE = {"moe_intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2, "mlp_only_layers": [1]}
PROMPTS = [[3, 4, 5], [3, 4, 5], [6, 7]]
IDS = torch.arange(15).view(3, 5) + 5
MASK = torch.arange(5) < torch.tensor([5, 2, 4])[:, None]


def adapted(seed=0, rank=4, start=None, **settings):
    return with_adapters(start or make_policy(seed=1), LoraConfig(rank=rank, **settings), seed)


def moved(policy, scale=0.1):
    """Return ``policy`` with adapters as training might leave them."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in trained(policy).values():
            parameter += scale * torch.randn(parameter.shape, generator=generator).to(parameter)
    return policy


def trained(policy):
    return {name: p for name, p in policy.model.named_parameters() if p.requires_grad}


def frozen(policy):
    return {name: p for name, p in policy.model.named_parameters() if not p.requires_grad}


def places(parameters):
    return {p.data_ptr() for p in parameters}


def logprobs(policy):
    return score_responses(policy, PROMPTS, IDS, MASK, temperature=1.0, chunk_tokens=1 << 16).logprobs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("moe", [None, MOE], ids=["dense", "moe"])
def test_it_starts_as_the_base_model_to_the_last_bit(dtype, moe):
    start = make_policy(seed=1, dtype=dtype, moe=moe)
    expected = logprobs(start).detach()
    policy = adapted(start=start)
    assert torch.equal(logprobs(policy), expected)
    assert {p.dtype for p in policy.model.parameters()} == {dtype}
    assert not any(part.training for part in policy.model.modules())
    assert not torch.equal(logprobs(moved(policy)), expected)
    assert torch.equal(logprobs(start), expected)


def test_rank_0_is_the_policy_itself():
    start = make_policy(seed=1)
    assert with_adapters(start, LoraConfig(), 0) is start
    assert all(p.requires_grad for p in start.model.parameters())


def test_a_product_is_scaled_by_alpha_over_rank():
    """Against the gradient of the whole weight W + s B A: that of B is s dW A', of A s B' dW."""
    policy = moved(adapted(rank=3, alpha=6, targets=["v_proj"]))
    policy.model.double()
    logprobs(policy).sum().backward()
    whole = make_policy(seed=1)
    whole.model.double()
    layers = [dict(policy.body.named_modules())[f"layers.{i}.self_attn.v_proj"] for i in range(2)]
    for layer, base in zip(layers, whole.body.layers, strict=True):
        with torch.no_grad():
            base.self_attn.v_proj.weight += 2.0 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    torch.testing.assert_close(logprobs(policy), logprobs(whole), rtol=1e-9, atol=0)
    logprobs(whole).sum().backward()
    for layer, base in zip(layers, whole.body.layers, strict=True):
        first, second = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        gradient = base.self_attn.v_proj.weight.grad
        torch.testing.assert_close(second.grad, 2.0 * gradient @ first.T, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(first.grad, 2.0 * second.T @ gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("targets", "layers"), [(["all-linear"], 7), (["q_proj", "v_proj"], 2), ("down_proj", 1), (["q_proj", "q_proj"], 1)]
)
def test_the_layers_that_are_named_get_adapters(targets, layers):
    policy = adapted(targets=targets)
    assert len(trained(policy)) == 2 * 2 * layers
    assert all(".lora_A." in name or ".lora_B." in name for name in trained(policy))
    assert sum(p.numel() for p in trained(policy).values()) == policy.shape.layers.adapters


def test_experts_routers_and_the_head_get_none():
    names = trained(adapted(start=make_policy(seed=1, moe=MOE)))
    assert {name.split(".")[2] for name in names if ".mlp." in name} == {"1"}  # the dense layer
    assert not any("lm_head" in name or "embed" in name for name in names)


def test_adapters_are_drawn_from_the_seed_and_disturb_no_generator():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, same, other = (trained(adapted(seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    for name in first:
        assert torch.equal(first[name], same[name])
        assert (".lora_B." in name) == (not first[name].any()) == torch.equal(first[name], other[name])
    draws = [value for name, value in first.items() if ".lora_A." in name]
    assert len({float(value[0, 0].detach()) for value in draws}) == len(draws)


def test_nothing_frozen_is_copied(tiny):
    config = make_config(
        policy={"lora": {"rank": 4}}, objective={"name": "ppo"}, trust_region={"name": "reference_penalty"}
    )
    run = build_run(config)
    assert run.reference is not None
    assert run.critic is not None
    base = places(frozen(run.policy).values())
    assert places(run.reference.model.parameters()) == base
    assert run.reference.shape == load_policy(config.policy, "arithmetic").shape
    body = {name: p for name, p in run.critic.body.named_parameters() if p.requires_grad}
    assert places(p for p in run.critic.body.parameters() if not p.requires_grad) <= base
    assert len(body) == len(trained(run.policy))
    assert not places(body.values()) & places(trained(run.policy).values())
    assert run.critic.head.weight.requires_grad
    copy = run.policy.frozen_copy()
    assert places(frozen(run.policy).values()) == places(frozen(copy).values()) & base
    assert not places(trained(run.policy).values()) & places(copy.model.parameters())
    assert not trained(copy)
    assert trained(run.policy)
    assert AnchorStates.of(torch.zeros(1, 1, 32), run.policy.head).head.weight.data_ptr() in base
    whole = make_policy()
    assert not places(AnchorStates.of(torch.zeros(1, 1, 32), whole.head).head.parameters()) & places(
        whole.model.parameters()
    )


def test_an_update_moves_adapters_alone_from_ratio_1(tiny):
    run = free_run(
        make_config(policy={"lora": {"rank": 4}}, objective={"name": "ppo"}, trust_region={"name": "reference_penalty"})
    )
    parts = roll(run)
    experience, plan, rollout, _ = parts
    assert torch.equal(rollout.ref_logprobs, rollout.old_logprobs)
    for rows in plan.micro_batches:
        gap = (score_rows(run, run.policy, experience, rows).logprobs.detach() - rollout.old_logprobs[rows]).abs()
        assert gap.max() < 1e-6
    before = {name: p.clone() for name, p in [*run.policy.model.named_parameters(), *run.critic.named_parameters()]}
    update(run, parts)
    update(run, parts)  # A has a gradient once B has moved, and the critic's body once its head has
    for model in (run.policy.model, run.critic):
        assert any(p.requires_grad for p in model.parameters())
        for name, p in model.named_parameters():
            assert torch.equal(p, before[name]) != p.requires_grad, name
            assert (p.grad is not None) == p.requires_grad, name
    experience, plan, rollout, _ = roll(run)
    assert (rollout.ref_logprobs - rollout.old_logprobs).abs().max() > 1e-5


def test_layers_that_recompute_give_the_same_gradient():
    kept, again = (moved(adapted()) for _ in range(2))
    recompute_layers(again.body)
    for policy in (kept, again):
        logprobs(policy).sum().backward()
    pairs = zip(trained(kept).values(), trained(again).values(), strict=True)
    assert all(torch.equal(one.grad, other.grad) for one, other in pairs)


@pytest.mark.parametrize(
    "changes", [{}, {"tie_word_embeddings": False}, {"moe": MOE}, {"attention_bias": True}], ids=str
)
def test_merged_weights_are_the_models_own_and_say_the_same(changes):
    start = make_policy(seed=1, **changes)
    names = [name for name, _ in start.model.named_parameters()]
    policy = moved(adapted(start=start))
    expected = logprobs(policy).detach()
    merged = dict(full_weights(policy))
    assert list(merged) == names
    base = dict(start.model.named_parameters())
    assert {name for name in names if torch.equal(merged[name], base[name])} == {
        name
        for name in names
        if not isinstance(layer_of(start, name), nn.Linear) or name.endswith((".bias", "lm_head.weight"))
    }
    plain = make_policy(seed=2, **changes)
    plain.model.load_state_dict(merged, strict=False)
    torch.testing.assert_close(logprobs(plain), expected, rtol=0, atol=1e-5)
    assert torch.equal(logprobs(policy), expected)  # which stays as it is


def layer_of(policy, name):
    return policy.model.get_submodule(name.rpartition(".")[0])


def test_half_precision_is_summed_up_wide_and_rounded_once():
    policy = moved(adapted(start=make_policy(seed=1, dtype=torch.bfloat16)))
    name = "model.layers.0.mlp.down_proj"
    layer = policy.model.get_submodule(name)
    product = layer.lora_B["default"].weight.float() @ layer.lora_A["default"].weight.float()
    expected = layer.base_layer.weight.float() + 8 * product.bfloat16().float()
    found = dict(full_weights(policy))[f"{name}.weight"]
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected.bfloat16(), rtol=2**-7, atol=1e-4)


def lora_config(objective="grpo", region="none", **tables):
    policy = {"lora": {"rank": 4}} | tables.pop("policy", {})
    return small(policy=policy, objective={"name": objective}, trust_region={"name": region}, **tables)


@pytest.mark.parametrize(("objective", "region"), [("gspo", "reference_penalty"), ("ppo", "adaptive")])
def test_a_run_killed_at_any_instant_ends_byte_equal(tiny, tmp_path, monkeypatch, objective, region):
    config = lora_config(objective, region, budget={"amount": 4})
    cell(config, tmp_path / "whole")
    for name, number in [("append", 12), ("write_checked", 2)]:
        with monkeypatch.context() as patch:
            kill_at(patch, name, number)
            with pytest.raises(Killed):
                cell(config, tmp_path / name)
        cell(config, tmp_path / name)
        assert digests(tmp_path / name) == digests(tmp_path / "whole")


def test_a_checkpoint_holds_adapters_and_restores_them(tiny):
    run = free_run(lora_config("ppo"))
    update(run, roll(run))
    payload = save_run(run, {})
    other = free_run(run.config)
    restore_run(other, payload)
    assert save_run(other, {}) == payload
    assert policy_weights(other) == policy_weights(run)
    assert not any("base_layer" in name or "embed" in name for name, _ in run.optimizer.tensors())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_finished_run_is_evaluated_and_started_from_like_any_other(tiny, tmp_path, dtype):
    cell(lora_config(policy={"dtype": dtype}, budget={"amount": 4}), tmp_path / "cell")
    weights = tmp_path / "cell" / "weights.safetensors"
    assert load_file(weights).keys() == load_file(tiny).keys()
    last = [row for row in lines(tmp_path / "cell", "evals") if row["split"] == "test"][-1]
    outcome, _ = evaluate_run(tmp_path / "cell", "test")
    if dtype == "float32":
        assert outcome.summary()["score"] == last["score"]
        assert outcome.summary()["response_tokens_mean"] == last["response_tokens_mean"]
    run = build_run(lora_config(policy={"weights": str(weights)}))
    assert all(torch.equal(value, load_file(weights)[name].float()) for name, value in full_weights(run.policy))
    assert status(tmp_path / "cell")["totals"]["phases"]["merging"]["flops"] == run.policy.shape.merge()


def test_the_estimate_bounds_what_a_run_spends(tiny, tmp_path):
    for objective, region in [("gspo", "reference_penalty"), ("ppo", "dual")]:
        config = lora_config(objective, region, eval={"points": 1})
        cell(config, tmp_path / objective)
        estimate, totals = estimate_cell(config), status(tmp_path / objective)["totals"]
        assert estimate.flops / estimate.iterations >= totals["spent_flops"] / totals["iterations"]

    def iteration(region="none", **lora):
        estimate = estimate_cell(lora_config("gspo", region, policy={"lora": lora}))
        return estimate.flops / estimate.iterations

    assert iteration(rank=1, targets=["o_proj"]) < iteration(rank=1) < iteration(rank=2) < iteration(rank=0)
    reference = [iteration("reference_penalty", rank=rank) - iteration(rank=rank) for rank in (0, 1, 8)]
    assert reference == [reference[0]] * 3


def test_the_key_of_a_run_without_lora_says_nothing_of_it(tiny):
    plain, other = identity(make_config()), identity(make_config(policy={"lora": {"alpha": 8, "targets": ["q_proj"]}}))
    assert plain == other
    assert "lora" not in plain["config"]["policy"]
    adapters = [{"rank": 4}, {"rank": 5}, {"rank": 4, "alpha": 8}, {"rank": 4, "targets": ["q_proj"]}]
    found = [identity(make_config(policy={"lora": lora})) for lora in adapters]
    assert len({json.dumps(each) for each in [plain, *found]}) == 5
    assert "peft" in found[0]["versions"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policy.lora.rank=-1"], "policy.lora.rank = -1 should be greater than or equal to 0"),
        (["policy.lora.rank=4", "policy.lora.alpha=0"], "policy.lora.alpha = 0 should be greater than 0"),
        (["policy.lora.rank=4", "policy.lora.targets=[]"], "policy.lora.targets = [] List should have at least 1 item"),
        (["policy.lora.rnk=4"], "unknown key policy.lora.rnk; did you mean rank?"),
        (["teacher.name=tiny", "teacher.lora.rank=4"], "teacher.lora has no use: a teacher is never trained"),
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_be_are_refused_in_one_line(words, message):
    with pytest.raises(UserError) as refusal:
        resolve_run(apply_overrides({"budget": {"amount": 1}}, parse_assignments(words)))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_single_word_is_a_target():
    tables = parse_assignments(["policy.lora.rank=4", "policy.lora.targets=all-linear", "budget.amount=1"])
    assert resolve_run(apply_overrides({}, tables)).policy.lora.targets == ["all-linear"]


@pytest.mark.parametrize("build", [build_run, estimate_cell])
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("q_porj", "'q_porj', which is no linear layer of the policy; did you mean q_proj or "),
        ("lm_head", "'lm_head', which is no linear layer of the policy (take 'all-linear' or of q_proj, k_proj"),
    ],
)
def test_a_target_that_is_no_layer_is_refused_before_anything_is_computed(tiny, build, target, message):
    with pytest.raises(UserError) as refusal:
        build(make_config(policy={"lora": {"rank": 4, "targets": [target]}}))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_target_that_a_pretrained_policy_lacks_is_named_alone(tiny, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**TINY, "vocab_size": 98}))
    config = make_config(policy={"name": str(tmp_path), "lora": {"rank": 4, "targets": ["query"]}})
    with pytest.raises(UserError, match=r"^policy\.lora\.targets names 'query'"):
        estimate_cell(config)


def test_experts_are_no_target():
    start = make_policy(seed=1, moe={**MOE, "mlp_only_layers": []})
    with pytest.raises(UserError, match=r"'up_proj', which is no linear layer .* o_proj, not those of its experts\)"):
        adapted(start=start, targets=["up_proj"])


def test_an_architecture_with_other_layers_is_refused():
    start = make_policy(seed=1)
    for layer in start.body.layers:
        layer.mlp.gate_up_proj = layer.mlp.up_proj
        del layer.mlp.up_proj
    with pytest.raises(UserError, match=r"architecture \(qwen3\) names or shapes linear layers in another way"):
        adapted(start=start)


def test_a_missing_peft_is_one_line(tiny, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "peft" else found(name, *rest))
    build_run(make_config())
    with pytest.raises(UserError, match=r"policy\.lora needs peft: run python -m pip install 'evengrad\[lora\]'"):
        build_run(make_config(policy={"lora": {"rank": 4}}))


def test_weights_of_a_merged_run_load_into_the_base(tiny, tmp_path):
    run = free_run(lora_config())
    update(run, roll(run))
    (tmp_path / "merged.safetensors").write_bytes(policy_weights(run))
    base = load_policy(run.config.policy, "arithmetic")
    load_weights(base, tmp_path / "merged.safetensors")
    assert isinstance(base, Policy)
    torch.testing.assert_close(logprobs(base), logprobs(run.policy), rtol=0, atol=1e-5)
