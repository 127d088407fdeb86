"""The fused log-probabilities against plain autograd, finite differences, and their own memory."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.engine import token_scores
from harness.engine.token_scores import token_scores as fused

K, D, V = 7, 5, 11


def made(*, bias=False, dtype=torch.float64):
    torch.manual_seed(3)
    head = torch.nn.Linear(D, V, bias=bias, dtype=dtype)
    return head, torch.randn(K, D, dtype=dtype, requires_grad=True), torch.randint(V, (K,))


def plain(head, states, tokens, temperature):
    logprobs = torch.log_softmax(head(states) / temperature, -1)
    return logprobs.gather(1, tokens[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)


@pytest.mark.parametrize("chunk", [2, K, 100])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_values_and_gradients_are_autograds(monkeypatch, chunk, bias, rows):
    monkeypatch.setattr(token_scores, "_SLICE_BYTES", rows * V * 8)
    head, states, tokens = made(bias=bias)
    leaves = [states, *head.parameters()]
    first, second = torch.randn(K, dtype=torch.float64), torch.randn(K, dtype=torch.float64)
    found = fused(head, states, tokens, temperature=0.7, chunk=chunk, entropy_gradient=True)
    expected = plain(head, states, tokens, 0.7)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-14)
    for one, other in zip(
        torch.autograd.grad((found[0] * first + found[1] * second).sum(), leaves),
        torch.autograd.grad((expected[0] * first + expected[1] * second).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-14)


@pytest.mark.parametrize("chunk", [3, K])
def test_gradients_are_finite_differences_however_often_they_are_asked_for(chunk):
    head, states, tokens = made(bias=True)

    def both(states, weight, bias):
        return token_scores._TokenScores.apply(states, weight, bias, tokens, 0.7, chunk)

    assert torch.autograd.gradcheck(both, (states, head.weight, head.bias))


def test_an_entropy_without_gradient_moves_nothing():
    head, states, tokens = made()
    logprobs, entropy = fused(head, states, tokens, temperature=1.0, chunk=K, entropy_gradient=False)
    assert not entropy.requires_grad
    assert logprobs.requires_grad


def test_a_token_that_cannot_occur_has_no_share_of_the_entropy():
    head, states, tokens = made(bias=True)
    with torch.no_grad():
        head.bias[0] = -torch.inf
        tokens[:] = 1
    _, entropy = fused(head, states, tokens, temperature=1.0, chunk=K, entropy_gradient=True)
    shares = torch.softmax(head(states)[:, 1:], -1)
    torch.testing.assert_close(entropy, -(shares * shares.log()).sum(-1))
    assert torch.autograd.grad(entropy.sum(), states)[0].isfinite().all()


def test_frozen_heads_and_no_tokens_are_fine():
    head, states, tokens = made()
    head.requires_grad_(False)
    fused(head, states, tokens, temperature=1.0, chunk=3, entropy_gradient=False)[0].sum().backward()
    assert states.grad is not None
    assert head.weight.grad is None
    none = fused(head, states[:0], tokens[:0], temperature=1.0, chunk=3, entropy_gradient=True)
    assert [part.shape for part in none] == [(0,), (0,)]


def test_half_precision_gets_a_float32_product_and_half_precision_gradients():
    head, states, tokens = made(dtype=torch.bfloat16)
    logprobs, _ = fused(head, states, tokens, temperature=1.0, chunk=K, entropy_gradient=False)
    expected = torch.log_softmax(states.float() @ head.weight.float().T, -1).gather(1, tokens[:, None])[:, 0]
    assert logprobs.dtype == torch.float32
    torch.testing.assert_close(logprobs, expected)
    logprobs.sum().backward()
    assert states.grad.dtype == head.weight.grad.dtype == torch.bfloat16


class LogitsAlive(TorchDispatchMode):
    """Counts the matrices over the vocabulary, of more rows than a slice has, that one call makes."""

    def __init__(self, rows):
        super().__init__()
        self.rows, self.made = rows, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.shape == (self.rows, V) and not out._is_view():
            known = [a.data_ptr() for a in args if isinstance(a, torch.Tensor)]
            self.made += out.data_ptr() not in known
        return out


@pytest.mark.parametrize(("chunk", "passes"), [(K, 1), (4, 2)])
def test_a_chunk_has_one_matrix_of_logits_a_pass(monkeypatch, chunk, passes):
    monkeypatch.setattr(token_scores, "_SLICE_BYTES", V * 8)
    head, states, tokens = made()
    with LogitsAlive(min(chunk, K)) as seen:
        fused(head, states, tokens, temperature=1.0, chunk=chunk, entropy_gradient=True)[0].sum().backward()
    assert seen.made == passes
