"""The vLLM sampler around an engine that stands for vLLM: weights of its own, asked by token ids and seeds.

The same with vLLM itself: tests/vllm.
"""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from tiny_engine import Given, free_run, make_config, make_policy, roll, update

from harness.config.errors import UserError
from harness.config.sampler import SamplerConfig
from harness.engine import train
from harness.engine.ledger import BudgetExhausted, Ledger
from harness.engine.policy import load_weights
from harness.engine.samplers import NativeSampler, vllm
from harness.engine.samplers.vllm import VllmSampler
from harness.engine.samplers.vllm_engine import Generated
from harness.engine.streams import Noise, noises
from harness.engine.weights import weights_digest

PROMPTS = [[19, 13, 20, 29], [21, 22, 13, 23, 24, 29], [20, 29]]


class Engine:
    """Draws with its own copy of the model; of vLLM's manners it has those that the sampler relies on."""

    max_tokens = 64

    def __init__(self, policy, config):
        self.calls = ["start"]
        self.asked = []
        self.policy = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
        with torch.no_grad():
            for parameter in self.policy.model.parameters():
                parameter.zero_()

    def load(self, weights):
        self.calls.append("load")
        named = dict(weights)
        with torch.no_grad():
            for name, parameter in self.policy.model.named_parameters(remove_duplicate=False):
                parameter.copy_(named[name])

    def generate(self, prompts, seeds, *, limit, temperature, stops):
        self.calls.append("generate")
        self.asked.append((prompts, seeds))
        tokenizer = copy.copy(self.policy.tokenizer)
        tokenizer.stop_ids = frozenset(stops)
        policy = dataclasses.replace(self.policy, tokenizer=tokenizer, context=None)
        rows = [Given(np.random.default_rng(seed).random(limit)) for seed in seeds]
        options = {"limit": limit, "temperature": temperature, "charge": lambda _: None}
        drawn = NativeSampler().sample(policy, prompts, rows, **options)
        lengths = drawn.mask.sum(1).tolist()
        return [
            Generated(ids[:n], logprobs[:n])
            for ids, logprobs, n in zip(drawn.ids.tolist(), drawn.logprobs.tolist(), lengths, strict=True)
        ]

    def sleep(self):
        self.calls.append("sleep")
        with torch.no_grad():
            for parameter in self.policy.model.parameters():
                parameter.fill_(float("nan"))

    def close(self):
        self.calls.append("close")


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(vllm, "VllmEngine", Engine)


@pytest.fixture
def policy(taught):
    policy = make_policy()
    load_weights(policy, taught)
    return policy


def make(**settings):
    return VllmSampler(SamplerConfig.model_validate({"name": "vllm", **settings}))


def draw(sampler, policy, *, samples=3, limit=8, temperature=1.0, charge=lambda _: None, step=0, prompts=PROMPTS):
    noise = noises(0, "rollout", step, map(str, range(len(prompts))), samples)
    return sampler.sample(policy, prompts, noise, limit=limit, temperature=temperature, charge=charge)


def greedy_is_native(sampler, policy):
    found, expected = (draw(one, policy, samples=1, temperature=0) for one in (sampler, NativeSampler()))
    return torch.equal(found.ids, expected.ids) and torch.allclose(found.logprobs, expected.logprobs, atol=1e-5)


def test_responses_are_laid_out_as_the_native_samplers(engine, policy):
    assert greedy_is_native(make(), policy)
    drawn = draw(make(), policy, samples=8)
    assert drawn.ids.shape == drawn.mask.shape == drawn.logprobs.shape == (24, int(drawn.mask.sum(1).max()))
    assert (drawn.ids.dtype, drawn.mask.dtype, drawn.finish.dtype) == (torch.int64, torch.bool, torch.int8)
    assert (drawn.ids[~drawn.mask] == 0).all()
    assert (drawn.logprobs[~drawn.mask] == 0).all()
    assert (drawn.logprobs[drawn.mask] < 0).all()
    ended = ((drawn.ids == 1) & drawn.mask).any(1)
    assert drawn.finish.tolist() == [0 if end else 1 for end in ended.tolist()]
    assert set(drawn.finish.tolist()) == {0, 1}


def test_every_response_has_the_seed_of_its_noise(engine, policy):
    sampler = make()
    draw(sampler, policy, samples=2, step=5)
    prompts, seeds = sampler._engine.asked[-1]
    assert prompts == [prompt for prompt in PROMPTS for _ in range(2)]
    expected = [Noise(0, "rollout", 5, str(p), s).request_seed() for p in range(3) for s in range(2)]
    assert seeds == expected


def test_it_starts_with_the_first_response_and_loads_weights_that_changed_only(engine, policy):
    sampler = make()
    assert sampler._engine is None
    draw(sampler, policy)
    draw(sampler, policy)
    assert sampler._engine.calls == ["start", "load", "generate", "generate", "generate"]  # the first one compares
    with torch.no_grad():
        policy.model.model.norm.weight[0] += 1e-6
    draw(sampler, policy)
    assert sampler._engine.calls[5:] == ["load", "generate"]


def test_a_copy_of_the_policy_is_drawn_from_with_its_own_weights(engine, policy):
    sampler, reference = make(), policy.frozen_copy()
    with torch.no_grad():
        policy.model.model.embed_tokens.weight.mul_(1.5)
    assert greedy_is_native(sampler, policy)
    assert greedy_is_native(sampler, reference)
    assert greedy_is_native(sampler, policy)


def test_it_sleeps_between_calls_and_loads_when_it_wakes(engine, policy):
    sampler = make(sleep=True)
    draw(sampler, policy)
    assert greedy_is_native(sampler, policy)
    assert sampler._engine.calls == ["start", "load", "generate", "generate", "sleep", "load", "generate", "sleep"]


def test_after_its_end_it_starts_anew(engine, policy):
    sampler = make()
    draw(sampler, policy)
    first = sampler._engine
    sampler.close()
    sampler.close()
    assert first.calls[-1] == "close"
    assert first.calls.count("close") == 1
    assert greedy_is_native(sampler, policy)
    assert sampler._engine is not first


def pieces(sampler, policy, **options):
    """Return the pieces of work that are charged, and what was drawn."""
    found = []
    return found, draw(sampler, policy, charge=lambda work: found.extend(work.items()), **options)


def test_the_same_responses_cost_the_same_in_the_same_pieces(engine, policy):
    ours, drawn = pieces(make(), policy, samples=1, temperature=0)
    theirs, expected = pieces(NativeSampler(), policy, samples=1, temperature=0)
    assert torch.equal(drawn.ids, expected.ids)
    assert len(set(drawn.mask.sum(1).tolist())) > 1  # rows end at different times
    assert [(phase, work.flops, work.generated_tokens) for phase, work in ours] == [
        (phase, work.flops, work.generated_tokens) for phase, work in theirs
    ]
    assert all(work.executed_flops == work.flops for _, work in ours)
    assert sum(work.generated_tokens for _, work in ours) == drawn.mask.sum()


def test_a_budget_ends_it_at_the_same_piece(engine, policy):
    sizes = [work.flops for _, work in pieces(NativeSampler(), policy, samples=1, temperature=0)[0]]
    for whole in range(len(sizes)):
        spent = []
        for sampler in (NativeSampler(), make()):
            ledger = Ledger("flops", sum(sizes[: whole + 1]) - 1)
            with pytest.raises(BudgetExhausted):
                draw(sampler, policy, samples=1, temperature=0, charge=ledger.charge)
            spent.append((ledger.spent.flops, ledger.spent.generated_tokens))
        assert spent[0] == spent[1]
        assert spent[0][0] == sum(sizes[:whole])


def test_a_prompt_that_is_too_long_is_refused_before_anything_is_charged(engine, policy):
    policy.context = 20
    with pytest.raises(UserError, match="13 of its response do not fit into the policy's context of 20 tokens"):
        draw(make(), policy, limit=13, prompts=[[2] * 8], charge=pytest.fail)
    policy.context = None
    with pytest.raises(UserError, match=r"room for 64 tokens of a sequence: raise sampler\.kv_cache_gib"):
        draw(make(), policy, limit=13, prompts=[[2] * 52])


def test_an_engine_that_runs_another_model_is_refused_and_ended(engine, policy, monkeypatch):
    ended = []
    monkeypatch.setattr(Engine, "close", lambda self: ended.append(self))
    monkeypatch.setattr(Engine, "load", lambda self, weights: None)
    sampler = make()
    for attempt in (1, 2):  # once more: it is not taken for tried
        with pytest.raises(UserError, match=r"Qwen3ForCausalLM other log-probabilities .* set sampler.name = 'native'"):
            draw(sampler, policy)
        assert len(ended) == attempt


@pytest.mark.parametrize(
    "tables",
    [
        {"objective": {"name": "grpo"}, "correction": {"level": "token"}},
        {"objective": {"name": "remax"}},
        {"objective": {"name": "tppo"}, "rollout": {"window_tokens": 4}},
        {"shaping": {"name": "bingo"}},
    ],
    ids=["corrected", "greedy", "windows", "reference"],
)
def test_a_run_never_draws_from_weights_of_before(tiny, engine, tables, monkeypatch):
    monkeypatch.setattr("harness.config.sampler.version", lambda _: "0")
    run = free_run(make_config(sampler={"name": "vllm"}, **tables))
    states = {weights_digest(run.policy)}
    for _ in range(3):
        parts = roll(run)
        assert greedy_is_native(run.sampler, run.policy)
        gap = (parts[2].old_logprobs - parts[2].rollout_logprobs)[parts[0].mask & parts[0].window_mask].abs().max()
        assert 0 < gap < 1e-3  # of another engine than the trainer's pass, and of the same weights
        update(run, parts)
        train.carry_over(run, parts[0], parts[2])
        run.iteration += 1
        states.add(weights_digest(run.policy))
    assert greedy_is_native(run.sampler, run.policy)
    assert len(states) > 2
