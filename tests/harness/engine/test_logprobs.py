"""Log-probabilities and entropies against slow references; memory stays bounded."""

import math

import pytest
import torch
from tiny_engine import make_policy
from torch.utils._python_dispatch import TorchDispatchMode

from harness.engine.anchors import Anchored
from harness.engine.logprobs import score_responses
from harness.engine.policy import pad_right
from objectives import trust_region

PROMPTS = [[5, 6, 7], [8, 9], [10, 11, 12, 13]]
RESPONSES = [[20, 21, 22], [23, 24, 25, 26, 1], [27]]


@pytest.fixture(scope="module")
def policy():
    policy = make_policy(seed=2)
    with torch.no_grad():  # an untrained model is almost uniform: sharpen it
        policy.model.model.norm.weight *= 6
    return policy


def score(policy, prompts=PROMPTS, responses=RESPONSES, *, temperature=1.0, chunk=1 << 16, extra=0, **more):
    ids = pad_right([[*r] for r in responses], 0, torch.device("cpu"))
    ids = torch.nn.functional.pad(ids, (0, extra), value=77)
    mask = torch.arange(ids.shape[1]) < torch.tensor([len(r) for r in responses])[:, None]
    return score_responses(policy, prompts, ids, mask, temperature=temperature, chunk_tokens=chunk, **more), mask


def reference(policy, prompt, response, temperature):
    """Return log-probabilities and entropies, token by token, one forward pass each."""
    logprobs, entropies = [], []
    for position, token in enumerate(response):
        logits = policy.model(input_ids=torch.tensor([[*prompt, *response[:position]]])).logits[0, -1].double()
        shares = (logits / temperature).exp()
        shares = (shares / shares.sum()).tolist()
        logprobs.append(math.log(shares[token]))
        entropies.append(-sum(p * math.log(p) for p in shares))
    return logprobs, entropies


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_string_of_six_tokens_equals_the_slow_reference(policy, temperature):
    scored, _ = score(policy, [[5, 6, 7]], [[20, 21, 1]], temperature=temperature)
    logprobs, entropies = reference(policy, [5, 6, 7], [20, 21, 1], temperature)
    assert scored.logprobs[0].tolist() == pytest.approx(logprobs, abs=1e-5)
    assert scored.entropy[0].tolist() == pytest.approx(entropies, abs=1e-5)
    assert max(entropies) < 4.2  # of 97 tokens, log 97 is 4.57: the test can tell a temperature


def test_temperature_changes_log_probabilities(policy):
    assert (score(policy, temperature=0.6)[0].logprobs - score(policy)[0].logprobs).abs().max() > 0.1


def test_chunks_and_batch_mates_do_not_matter(policy):
    whole, mask = score(policy)
    for chunk in (1, 2, 4, 9):
        scored, _ = score(policy, chunk=chunk)
        torch.testing.assert_close(scored.logprobs, whole.logprobs, rtol=0, atol=1e-6)
        torch.testing.assert_close(scored.entropy, whole.entropy, rtol=0, atol=1e-6)
    for row in range(3):
        alone, _ = score(policy, PROMPTS[row : row + 1], RESPONSES[row : row + 1])
        n = len(RESPONSES[row])
        torch.testing.assert_close(alone.logprobs[0, :n], whole.logprobs[row, :n], rtol=0, atol=1e-6)
    assert mask.sum() == 9


def test_padding_is_zero_and_never_matters(policy):
    whole, mask = score(policy)
    wide, wide_mask = score(policy, extra=5)
    assert torch.equal(whole.logprobs[mask], wide.logprobs[wide_mask])
    assert (wide.logprobs[~wide_mask] == 0).all()
    assert (wide.entropy[~wide_mask] == 0).all()


def gradient(policy, outputs):
    weights = torch.linspace(1, 2, outputs.numel()).reshape(outputs.shape).to(outputs.dtype)
    return torch.autograd.grad((outputs * weights).sum(), policy.model.model.layers[0].mlp.up_proj.weight)[0]


@pytest.mark.parametrize("entropy", [False, True])
def test_the_gradient_through_chunks_equals_the_direct_one(policy, entropy):
    def total(chunk):
        scored, _ = score(policy, chunk=chunk, entropy_gradient=entropy)
        return gradient(policy, scored.logprobs + scored.entropy)

    direct = total(1 << 16)
    assert (total(2) - direct).norm() / direct.norm() < 1e-6
    assert direct.norm() > 0


def test_the_gradient_of_the_entropy_is_that_of_its_definition(policy):
    scored, mask = score(policy, entropy_gradient=True)
    rows = [
        policy.model(input_ids=torch.tensor([[*p, *r[:-1]]])).logits[0, len(p) - 1 :]
        for p, r in zip(PROMPTS, RESPONSES, strict=True)
    ]
    expected = torch.cat([torch.distributions.Categorical(logits=row).entropy() for row in rows])
    assert torch.allclose(scored.entropy[mask], expected, atol=1e-5)
    first, second = gradient(policy, scored.entropy[mask]), gradient(policy, expected)
    assert (first - second).norm() / second.norm() < 1e-5


def test_entropy_carries_no_gradient_unless_asked(policy):
    assert not score(policy)[0].entropy.requires_grad
    assert score(policy, entropy_gradient=True)[0].entropy.requires_grad


def test_log_probabilities_are_float32_for_half_precision_and_float64_for_float64():
    for dtype, expected in [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64,) * 2]:
        scored, _ = score(make_policy(dtype=dtype))
        assert scored.logprobs.dtype == scored.entropy.dtype == expected


def test_float64_is_not_rounded_to_float32():
    scored, mask = score(make_policy(dtype=torch.float64))
    assert (scored.logprobs.float().double() != scored.logprobs)[mask].any()


class Largest(TorchDispatchMode):
    """Record the numbers of elements of the largest tensor that any operation returns."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize(("chunk", "bounded"), [(8, True), (1 << 16, False)])
def test_logits_of_a_whole_minibatch_never_exist(chunk, bounded):
    policy = make_policy(vocab_size=3000, hidden_size=16, num_hidden_layers=1)
    responses = [[5] * 20] * 6
    with Largest() as largest:
        scored, _ = score(policy, [[3, 4]] * 6, responses, chunk=chunk, entropy_gradient=True)
        (scored.logprobs + scored.entropy).sum().backward()
    whole = 6 * 20 * 3000
    assert (largest.elements < whole / 6) == bounded
    assert largest.elements >= 8 * 3000


@pytest.mark.parametrize("project", [False, True])
def test_exact_divergences_and_projections_hold_no_vocabulary_of_a_minibatch_either(project):
    policy, other = (make_policy(seed, vocab_size=3000, hidden_size=16, num_hidden_layers=1) for seed in (0, 1))
    responses = [[5] * 20] * 6
    with torch.no_grad():
        states = score(other, [[3, 4]] * 6, responses, chunk=8, keep_states=True)[0].states
    region = trust_region.make("projection", delta=1e-4)
    anchor = Anchored(states, other.head, reverse=True, project=region.project if project else None, replaces=project)
    with Largest() as largest:
        scored, mask = score(policy, [[3, 4]] * 6, responses, chunk=8, exact={"gap": anchor})
        (scored.logprobs + scored.exact["gap"]).sum().backward()
    assert (scored.exact["gap"][mask] > 0).all()
    assert 8 * 3000 <= largest.elements < 6 * 20 * 3000 / 6


def test_rows_without_tokens_score_nothing(policy):
    scored, _ = score(policy, [[5, 6]], [[]], extra=3)
    assert scored.logprobs.tolist() == [[0.0, 0.0, 0.0]]
