"""What vLLM draws, against the native sampler and the trainer's own log-probabilities."""

from contextlib import closing

import numpy as np
import pytest
import torch
from tiny_engine import make_policy

from harness.config.errors import UserError
from harness.config.sampler import SamplerConfig
from harness.engine.logprobs import score_responses
from harness.engine.samplers import NativeSampler
from harness.engine.samplers.vllm import VllmSampler
from harness.engine.streams import noises
from objectives import Finish

pytestmark = pytest.mark.vllm

TEXTS = ["12+34=", "7*8=", "3-2+1=", "5+5+5+5="]


def draw(sampler, policy, *, samples=8, limit=30, temperature=1.0, step=0, texts=TEXTS, charge=lambda _: None):
    prompts = [policy.tokenizer.encode(text) for text in texts]
    noise = noises(0, "rollout", step, texts, samples)
    return sampler.sample(policy, prompts, noise, limit=limit, temperature=temperature, charge=charge)


def trainers(policy, drawn, temperature, samples=8):
    """Return the trainer's log-probabilities of what was drawn."""
    prompts = [policy.tokenizer.encode(text) for text in TEXTS for _ in range(samples)]
    with torch.no_grad():
        return score_responses(
            policy, prompts, drawn.ids, drawn.mask, temperature=temperature or 1.0, chunk_tokens=512
        ).logprobs


def test_greedy_responses_are_the_native_samplers(sampler, policy):
    found, expected = (draw(one, policy, samples=2, temperature=0) for one in (sampler, NativeSampler()))
    assert torch.equal(found.ids, expected.ids)
    assert torch.equal(found.mask, expected.mask)
    assert torch.equal(found.finish, expected.finish)
    torch.testing.assert_close(found.logprobs, expected.logprobs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
def test_log_probabilities_are_the_trainers_at_the_sampling_temperature(sampler, policy, temperature):
    drawn = draw(sampler, policy, temperature=temperature)
    gap = (drawn.logprobs - trainers(policy, drawn, temperature)).abs()[drawn.mask].max()
    assert gap < 1e-4
    assert (drawn.logprobs[~drawn.mask] == 0).all()


def test_equal_calls_give_equal_bytes_and_other_noise_other_responses(sampler, policy):
    first, again, other = draw(sampler, policy), draw(sampler, policy), draw(sampler, policy, step=1)
    assert torch.equal(first.ids, again.ids)
    assert torch.equal(first.logprobs, again.logprobs)
    assert first.ids.shape != other.ids.shape or not torch.equal(first.ids, other.ids)
    assert len({tuple(row) for row in first.ids.tolist()}) > 12


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_draws_follow_the_policys_distribution(sampler, policy, temperature):
    drawn = draw(sampler, policy, samples=1500, limit=1, temperature=temperature, texts=["17+4="])
    with torch.no_grad():
        logits = policy.model(torch.tensor([policy.tokenizer.encode("17+4=")])).logits[0, -1]
    expected = torch.softmax(logits.double() / temperature, -1).numpy()
    shares = np.bincount(drawn.ids[:, 0].numpy(), minlength=len(expected)) / 1500
    spread = np.sqrt(expected * (1 - expected) / 1500) + 1e-3
    assert np.abs((shares - expected) / spread).max() < 5
    assert (shares > 0.02).sum() > 1


def test_a_response_ends_with_a_stop_token_or_at_the_limit(sampler, policy):
    whole = draw(sampler, policy, samples=1, temperature=0)
    first = int(whole.ids[0, 2])
    policy.tokenizer.stop_ids = frozenset({first})  # the model's own end token is none
    found, expected = (draw(one, policy, samples=1, temperature=0) for one in (sampler, NativeSampler()))
    assert torch.equal(found.ids, expected.ids)
    assert found.finish.tolist() == expected.finish.tolist()
    assert found.finish[0] == Finish.EOS
    assert int(found.ids[0][found.mask[0]][-1]) == first
    policy.tokenizer.stop_ids = frozenset({1})
    cut = draw(sampler, policy, samples=1, temperature=0, limit=3)
    assert cut.mask.all()
    assert cut.ids.shape == (4, 3)
    assert cut.finish.tolist() == [Finish.LENGTH] * 4
    ends = int(whole.mask[0].sum())
    assert draw(sampler, policy, samples=1, temperature=0, limit=ends).finish[0] == Finish.EOS  # with its last token


def test_equal_responses_cost_the_same_as_natively(sampler, policy):
    costs = []
    for one in (sampler, NativeSampler()):
        pieces = []
        draw(one, policy, samples=2, temperature=0, charge=lambda work, pieces=pieces: pieces.extend(work.items()))
        costs.append([(phase, work.flops, work.generated_tokens) for phase, work in pieces])
    assert costs[0] == costs[1]


def test_a_prompt_longer_than_the_context_is_refused_in_one_line(sampler, policy):
    with pytest.raises(UserError, match="do not fit into the policy's context of 256 tokens"):
        draw(sampler, policy, texts=["1" * 250])


def test_half_precision_is_near_the_trainers(policy):
    policy.model.to(torch.bfloat16)
    config = SamplerConfig.model_validate({"name": "vllm", "kv_cache_gib": 0.25})
    with closing(VllmSampler(config)) as half:
        drawn = draw(half, policy)
        gap = (drawn.logprobs - trainers(policy, drawn, 1.0)).abs()[drawn.mask]
    assert 1e-4 < gap.max() < 0.5
    assert gap.mean() < 0.02


def large(policy):
    """Give an untrained model weights with which every part of it matters."""
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1 if parameter.ndim == 1 else 10)
    return policy


MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"head_dim": 16}, "cannot run this policy here with .*: .*head_dim=16"),
        ({"head_dim": 32, "moe": MOE}, r"Qwen3MoeForCausalLM other log-probabilities .* sampler\.name = 'native'"),
    ],
    ids=["attention", "experts"],
)
def test_models_that_vllm_cannot_run_here_are_refused_in_one_line(settings, reason):
    config = SamplerConfig.model_validate({"name": "vllm", "kv_cache_gib": 0.25})
    with closing(VllmSampler(config)) as made, pytest.raises(UserError, match=reason) as refusal:
        draw(made, large(make_policy(**settings)))
    assert "\n" not in str(refusal.value)
