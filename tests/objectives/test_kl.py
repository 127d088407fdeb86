"""KL estimators by exact enumeration: the table of spec/objectives.md, section 1.3 (U21)."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from objectives.kl import Estimator, k1, k2, k3, kl_from_old
from tests.objectives.toy import Toy, enumerate_toy

TOYS = {"one step of 3": enumerate_toy(3, 1), "3 steps of 2": enumerate_toy(2, 3)}


def state_kl(toy: Toy, p: Tensor, q: Tensor, visits: Tensor) -> Tensor:
    """Sum over tokens of KL(p || q) of the state, states visited with the probabilities ``visits`` of responses."""
    log_p, log_q = torch.log_softmax(p, -1), torch.log_softmax(q, -1)
    return visits @ (log_p.exp() * (log_p - log_q)).sum(-1)[toy.states].sum(1)


def expectation(toy: Toy, sampled: Tensor, terms: Tensor) -> Tensor:
    """E over responses of policy ``sampled`` (held constant) of the sum of ``terms`` over tokens."""
    return toy.probabilities(sampled).detach() @ terms.sum(1)


def slope(value: Tensor, theta: Tensor) -> Tensor:
    return torch.autograd.grad(value, theta, retain_graph=True)[0]


@pytest.fixture(params=list(TOYS), name="world")
def _world(request: pytest.FixtureRequest) -> tuple[Toy, Tensor, Tensor, Tensor]:
    """A toy, theta, pi_old and pi_ref."""
    toy = TOYS[request.param]
    old = toy.logits(1)
    return toy, (old + 0.4 * toy.logits(0)).requires_grad_(), old, toy.logits(2)


World = tuple[Toy, Tensor, Tensor, Tensor]


@pytest.mark.parametrize(("estimator", "unbiased"), [(k1, True), (k2, False), (k3, True)])
def test_value_of_kl_from_old_to_new(world: World, estimator: Callable[..., Tensor], unbiased: bool) -> None:
    toy, theta, old, _ = world
    found = expectation(toy, old, estimator(toy.logprobs(theta), toy.logprobs(old), toy.mask))
    exact = state_kl(toy, old, theta, toy.probabilities(old))
    assert torch.allclose(found, exact, rtol=1e-12) is unbiased


@pytest.mark.parametrize(("estimator", "exact"), [(k1, True), (k2, False), (k3, True)])
def test_gradient_of_kl_from_old_to_new(world: World, estimator: Callable[..., Tensor], exact: bool) -> None:
    toy, theta, old, _ = world
    found = slope(expectation(toy, old, estimator(toy.logprobs(theta), toy.logprobs(old), toy.mask)), theta)
    expected = slope(state_kl(toy, old, theta, toy.probabilities(old)), theta)
    assert float(expected.abs().max()) > 0.01
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-13) is exact


def test_sequence_kl_is_the_expected_log_ratio_of_responses(world: World) -> None:
    toy, theta, old, _ = world
    whole = toy.probabilities(old) @ (toy.probabilities(old).log() - toy.probabilities(theta).log())
    torch.testing.assert_close(expectation(toy, old, k3(toy.logprobs(theta), toy.logprobs(old), toy.mask)), whole)


def test_k1_as_a_reference_loss_has_no_gradient(world: World) -> None:
    toy, theta, _, ref = world
    found = slope(expectation(toy, theta, k1(toy.logprobs(ref), toy.logprobs(theta), toy.mask)), theta)
    torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-14)


def test_k2_as_a_reference_loss_is_exact_on_policy(world: World) -> None:
    toy, theta, _, ref = world
    found = slope(expectation(toy, theta, k2(toy.logprobs(ref), toy.logprobs(theta), toy.mask)), theta)
    expected = slope(state_kl(toy, theta, ref, toy.probabilities(theta).detach()), theta)
    torch.testing.assert_close(found, expected)


def test_k3_as_a_reference_loss_has_the_gradient_of_the_reverse(world: World) -> None:
    toy, theta, _, ref = world
    visits = toy.probabilities(theta).detach()
    found = slope(expectation(toy, theta, k3(toy.logprobs(ref), toy.logprobs(theta), toy.mask)), theta)
    torch.testing.assert_close(found, slope(state_kl(toy, ref, theta, visits), theta))
    assert not torch.allclose(found, slope(state_kl(toy, theta, ref, visits), theta), rtol=0.01)


def off_policy(
    toy: Toy, theta: Tensor, old: Tensor, ref: Tensor, estimator: Callable[..., Tensor]
) -> dict[str, Tensor]:
    """Gradients of a reference loss from samples of pi_old: with the ratio, with a detached one, and bare."""
    ratio = (toy.logprobs(theta) - toy.logprobs(old)).exp()
    terms = estimator(toy.logprobs(ref), toy.logprobs(theta), toy.mask)
    weighted = {"ratio": ratio * terms, "detached": ratio.detach() * terms, "bare": terms}
    return {name: slope(expectation(toy, old, value), theta) for name, value in weighted.items()}


def test_off_policy_the_ratio_times_k3_is_exact(world: World) -> None:
    toy, theta, old, ref = world
    expected = slope(state_kl(toy, theta, ref, toy.probabilities(old)), theta)
    found = off_policy(toy, theta, old, ref, k3)
    torch.testing.assert_close(found["ratio"], expected)
    assert not torch.allclose(found["bare"], expected, rtol=0.01)
    assert not torch.allclose(found["detached"], expected, rtol=0.01)


def test_off_policy_a_detached_ratio_times_k2_is_exact_and_bare_k2_is_not(world: World) -> None:
    toy, theta, old, ref = world
    expected = slope(state_kl(toy, theta, ref, toy.probabilities(old)), theta)
    found = off_policy(toy, theta, old, ref, k2)
    torch.testing.assert_close(found["detached"], expected)
    assert not torch.allclose(found["bare"], expected, rtol=0.01)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_off_policy_every_estimator_is_exact_with_its_weight(world: World, estimator: Estimator) -> None:
    """U21: KL(pi_theta || pi_ref) from samples of pi_old."""
    toy, theta, old, ref = world
    terms = kl_from_old(estimator, toy.logprobs(ref), toy.logprobs(theta), toy.logprobs(old), toy.mask)
    expected = slope(state_kl(toy, theta, ref, toy.probabilities(old)), theta)
    torch.testing.assert_close(slope(expectation(toy, old, terms), theta), expected)


@pytest.mark.parametrize(("estimator", "exact"), [("k1", True), ("k2", False), ("k3", True)])
def test_around_pi_old_no_weight_is_needed(world: World, estimator: Estimator, exact: bool) -> None:
    """U21: KL(pi_old || pi_theta)."""
    toy, theta, old, _ = world
    pair = toy.logprobs(theta), toy.logprobs(old)
    found = kl_from_old(estimator, *pair, pair[1], toy.mask)
    expected = slope(state_kl(toy, old, theta, toy.probabilities(old)), theta)
    assert torch.allclose(slope(expectation(toy, old, found), theta), expected, rtol=1e-10, atol=1e-13) is exact


def test_k3_sampled_averages_to_the_exact_divergence() -> None:
    """U22."""
    toy = TOYS["3 steps of 2"]
    old, theta = toy.logits(1), toy.logits(1) + 0.4 * toy.logits(0)
    generator = torch.Generator().manual_seed(0)
    rows = torch.multinomial(toy.probabilities(old), 20_000, replacement=True, generator=generator)
    terms = k3(toy.logprobs(theta), toy.logprobs(old), toy.mask).sum(1)[rows]
    exact = float(state_kl(toy, old, theta, toy.probabilities(old)))
    error = float(terms.std()) / 20_000**0.5
    assert abs(float(terms.mean()) - exact) < 4 * error
    assert error < 0.02 * exact


def test_estimators_by_hand() -> None:
    # p = .5, q = .25: d = log 2
    p, q = torch.tensor([[0.5, 0.5]]).double().log(), torch.tensor([[0.25, float("nan")]]).double().log()
    mask = torch.tensor([[True, False]])
    log2 = torch.tensor(2.0).double().log()
    for estimator, expected in ((k1, -log2), (k2, log2**2 / 2), (k3, 1 - log2)):
        torch.testing.assert_close(estimator(p, q, mask), torch.stack([expected, torch.tensor(0.0).double()])[None])


@pytest.mark.parametrize("distance", [200.0, -200.0])
def test_estimators_are_finite_far_apart_in_float32(distance: float) -> None:
    """Known fault 40: bounded to 20 nats, with no gradient beyond."""
    old, new = torch.zeros(1, 1), torch.full((1, 1), distance, requires_grad=True)
    bound = math.copysign(20, distance)
    expected = {k1: -bound, k2: bound**2 / 2, k3: math.expm1(bound) - bound}
    for estimator, value in expected.items():
        found = estimator(new, old, torch.ones(1, 1, dtype=torch.bool))
        assert found.item() == pytest.approx(value, rel=1e-6)
        (gradient,) = torch.autograd.grad(found.sum(), new)
        assert gradient.item() == 0


def test_k3_keeps_its_digits_between_near_policies() -> None:
    # d = 1e-7: k3 = d^2 / 2 + d^3 / 6 = 5.0000002e-15; exp(d) - 1 is rounded at 1e-16 and would leave 2 digits
    one = torch.ones(1, 1, dtype=torch.bool)
    found = k3(torch.full((1, 1), 1e-7, dtype=torch.float64), torch.zeros(1, 1).double(), one)
    assert float(found) == pytest.approx(5e-15, rel=1e-6, abs=0)
