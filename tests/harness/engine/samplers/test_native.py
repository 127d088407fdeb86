"""The sampler against a slow reference that reads the whole text anew for every token."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_engine import EXPERTS, make_policy, sample, upcycled

from harness.engine import cache
from harness.engine.ledger import Work
from harness.engine.logprobs import score_responses
from harness.engine.samplers import native

PROMPTS = [[19, 13, 20, 29], [21, 22, 13, 23, 24, 29], [20, 29]]


@pytest.fixture(scope="module", params=["dense", "experts"])
def policy(request, taught):
    policy = make_policy(moe=EXPERTS if request.param == "experts" else None)
    weights = load_file(taught)
    policy.model.load_state_dict(upcycled(weights) if request.param == "experts" else weights, strict=False)
    policy.model.tie_weights()
    return policy


def noise(prompts=3, samples=4, length=8, seed=0):
    return np.random.default_rng(seed).random((prompts, samples, length))


def draw(policy, prompts, uniforms, temperature=1.0, charge=lambda _: None):
    return sample(policy, prompts, uniforms, temperature=temperature, charge=charge)


def texts(drawn):
    return [row[:n] for row, n in zip(drawn.ids.tolist(), drawn.mask.sum(1).tolist(), strict=True)]


def slow(policy, prompt, uniforms, temperature):
    """Return the tokens of one response: a full forward pass a token, one row, no cache, inverse CDF in float64."""
    tokens = []
    for uniform in uniforms:
        logits = policy.model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, -1]
        if temperature == 0:
            token = int(logits.argmax())
        else:
            cumulative = np.cumsum(torch.softmax(logits / temperature, -1).double().detach().numpy())
            token = int(np.argmax(cumulative > uniform * cumulative[-1]))
        tokens.append(token)
        if token == 1:
            break
    return tokens


@pytest.mark.parametrize(("temperature", "growth"), [(1.0, 16), (0.6, 3), (0.0, 1)])
def test_tokens_equal_the_slow_reference(policy, monkeypatch, temperature, growth):
    monkeypatch.setattr(cache, "GROWTH", growth)
    uniforms = noise()
    drawn = texts(draw(policy, PROMPTS, uniforms, temperature))
    expected = [slow(policy, prompt, uniforms[p, s], temperature) for p, prompt in enumerate(PROMPTS) for s in range(4)]
    assert drawn == expected
    assert len({tuple(row) for row in drawn}) > 1
    assert len({len(row) for row in drawn}) > 1


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_of_the_trainer_are_the_samplers(policy, temperature):
    drawn = draw(policy, PROMPTS, noise(samples=8), temperature)
    prompts = [prompt for prompt in PROMPTS for _ in range(8)]
    scored = score_responses(policy, prompts, drawn.ids, drawn.mask, temperature=temperature, chunk_tokens=64)
    assert (scored.logprobs.detach() - drawn.logprobs)[drawn.mask].abs().max() < 1e-4


def test_batch_mates_and_padding_do_not_matter(policy):
    uniforms = noise()
    together = texts(draw(policy, PROMPTS, uniforms))
    alone = [
        texts(draw(policy, [prompt], uniforms[p : p + 1, s : s + 1]))[0]
        for p, prompt in enumerate(PROMPTS)
        for s in range(4)
    ]
    assert together == alone


@pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
def test_dropping_finished_rows_changes_nothing(policy, monkeypatch, share):
    before = draw(policy, PROMPTS, noise())
    monkeypatch.setattr(native, "_DROP_SHARE", share)
    after = draw(policy, PROMPTS, noise())
    assert torch.equal(before.ids, after.ids)
    assert torch.equal(before.mask, after.mask)
    assert torch.equal(before.finish, after.finish)


def test_temperature_zero_ignores_the_noise_and_a_high_one_spreads(policy):
    greedy = texts(draw(policy, PROMPTS, noise(), 0.0))
    assert greedy == texts(draw(policy, PROMPTS, noise(seed=9), 0.0))
    assert len({tuple(row) for row in greedy[:4]}) == 1
    assert len({row[0] for row in texts(draw(policy, PROMPTS, noise(), 50.0))}) > 6


def test_responses_end_with_their_end_token_or_at_the_limit(policy):
    drawn = draw(policy, PROMPTS, noise(samples=16, length=4))
    kinds = set()
    for row, finish in zip(texts(drawn), drawn.finish.tolist(), strict=True):
        ended = 1 in row
        kinds.add(ended)
        assert finish == (0 if ended else 1)
        assert row.index(1) == len(row) - 1 if ended else len(row) == 4
    assert kinds == {True, False}
    assert (drawn.ids[~drawn.mask] == 0).all()
    assert (drawn.mask.long().diff(dim=1) <= 0).all()


def test_a_limit_of_one_token_needs_no_decoding(policy):
    phases = []
    drawn = draw(policy, PROMPTS, noise(length=1), charge=lambda work: phases.extend(work))
    assert drawn.ids.shape == (12, 1)
    assert phases == ["prefill"]


def test_a_longer_limit_goes_on_where_a_shorter_one_stopped(policy):
    uniforms = noise(length=8)
    short, long = texts(draw(policy, PROMPTS, uniforms[:, :, :3])), texts(draw(policy, PROMPTS, uniforms))
    assert [row[:3] for row in long] == short
    assert short != long


def test_work_is_charged_before_it_is_done_and_a_refusal_stops_it(policy, monkeypatch):
    calls = []
    original = native._decode
    monkeypatch.setattr(native, "_decode", lambda *a: (calls.append("decode"), original(*a))[1])

    def charge(work):
        calls.append(next(iter(work)))
        if len(calls) == 4:
            raise ArithmeticError("enough")

    with pytest.raises(ArithmeticError, match="enough"):
        draw(policy, PROMPTS, noise(), charge=charge)
    assert [*calls[:4]] == ["prefill", "decode", "decode", "decode"]
    assert calls.count("decode") == 3  # charge, work, and the charge that was refused


def test_useful_work_is_at_most_executed_and_tokens_are_counted_once(policy):
    booked = Work()
    drawn = draw(policy, PROMPTS, noise(samples=8), charge=lambda work: [booked.add(w) for w in work.values()])
    assert booked.generated_tokens == int(drawn.mask.sum())
    assert 0 < booked.flops < booked.executed_flops
    prompts = [len(prompt) for prompt in PROMPTS for _ in range(8)]
    lengths = list(zip(prompts, drawn.mask.sum(1).tolist(), strict=True))
    alone = policy.shape.prefill([len(p) for p in PROMPTS])
    alone += sum(policy.shape.decode(1, p + t) for p, n in lengths for t in range(1, n))
    assert booked.flops == alone


def test_a_token_without_probability_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]] * 4)
    drawn = native._draw(logits, torch.tensor([0.0, 0.49999, 0.5, 1 - 1e-12], dtype=torch.float64), 1.0)[0]
    assert drawn.tolist() == [1, 1, 3, 3]


def test_draws_follow_the_distribution():
    logits = torch.log(torch.tensor([[0.1, 0.2, 0.7]])).expand(1000, 3)
    drawn = native._draw(logits, (torch.arange(1000).double() + 0.5) / 1000, 1.0)[0]
    assert drawn.bincount().tolist() == [100, 200, 700]
    squared = native._draw(logits, (torch.arange(1000).double() + 0.5) / 1000, 0.5)[0]  # p^2: 1, 4 and 49 of 54
    assert squared.bincount().tolist() == [19, 74, 907]


def test_a_sampled_padding_token_is_a_token(monkeypatch):
    policy = make_policy(seed=1)
    zeros = torch.zeros
    monkeypatch.setattr(native, "_draw", lambda logits, *_: (zeros(len(logits), dtype=torch.int64), zeros(len(logits))))
    drawn = draw(policy, PROMPTS, noise(length=3))
    assert drawn.mask.all()
    assert drawn.finish.tolist() == [1] * 12


def test_log_probabilities_of_draws_are_those_of_the_distribution():
    logits = torch.log(torch.tensor([[0.1, 0.2, 0.7]])).expand(3, 3)
    tokens, logprobs = native._draw(logits, torch.tensor([0.05, 0.2, 0.9], dtype=torch.float64), 1.0)
    assert tokens.tolist() == [0, 1, 2]
    torch.testing.assert_close(logprobs.exp(), torch.tensor([0.1, 0.2, 0.7]))
    tokens, logprobs = native._draw(logits, torch.tensor([0.01, 0.05, 0.9], dtype=torch.float64), 0.5)
    torch.testing.assert_close(logprobs.exp(), torch.tensor([1.0, 4.0, 49.0]) / 54)
