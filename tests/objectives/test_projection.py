"""The projection onto a KL ball: optimal, differentiable, and nothing inside the ball."""

import pytest
import torch
from torch import Tensor

from objectives import trust_region
from objectives.trust_region.projection import Projection

DELTA = 0.05


@pytest.fixture
def region() -> Projection:
    made = trust_region.make("projection", delta=DELTA)
    assert isinstance(made, Projection)
    return made


def states(scale: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Logits of pi_theta [K, 5] that stand further and further from log pi_old [K, 5]."""
    generator = torch.Generator().manual_seed(0)
    old = torch.log_softmax(torch.randn(len(scale), 5, generator=generator, dtype=torch.float64), -1)
    noise = torch.randn(len(scale), 5, generator=generator, dtype=torch.float64)
    return old + torch.tensor(scale, dtype=torch.float64)[:, None] * noise, old


def kl(first: Tensor, second: Tensor) -> Tensor:
    return (first.exp() * (first - second)).sum(-1)


def test_states_inside_are_left_alone_and_others_end_on_the_boundary(region: Projection) -> None:
    logits, old = states((0.0, 0.1, 1.0, 2.0, 8.0))
    new = torch.log_softmax(logits, -1)
    projected = region.project(new, old)
    inside = kl(new, old) <= DELTA
    assert inside.tolist() == [True, True, False, False, False]
    assert torch.equal(projected[inside], new[inside])
    torch.testing.assert_close(kl(projected[~inside], old[~inside]), torch.full((3,), DELTA, dtype=torch.float64))
    torch.testing.assert_close(projected.exp().sum(-1), torch.ones(5, dtype=torch.float64))


def test_no_other_distribution_of_the_ball_is_nearer(region: Projection) -> None:
    logits, old = states((2.0,))
    new = torch.log_softmax(logits, -1)
    best = kl(region.project(new, old), new)
    generator = torch.Generator().manual_seed(1)
    tried = 0
    for _ in range(4000):
        other = torch.log_softmax(old + 0.4 * torch.randn(1, 5, generator=generator, dtype=torch.float64), -1)
        if kl(other, old) <= DELTA:
            tried += 1
            assert kl(other, new) >= best - 1e-9
    assert tried > 200


def test_the_gradient_goes_through_the_projection(region: Projection) -> None:
    logits, old = states((0.1, 1.0, 2.0, 3.0))

    def projected(x: Tensor) -> Tensor:
        return region.project(torch.log_softmax(x, -1), old)

    assert torch.autograd.gradcheck(projected, (logits.requires_grad_(),), eps=1e-6, atol=1e-5)


def test_a_chunk_wholly_inside_costs_no_bisection(region: Projection) -> None:
    logits, old = states((0.0, 0.01))
    new = torch.log_softmax(logits, -1)
    assert region.project(new, old) is new
