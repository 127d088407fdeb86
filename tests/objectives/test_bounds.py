"""What is proven of the subsequence objective: bounds, orderings, expectations by enumeration (spec, section 6)."""

import itertools

import pytest
import torch
from torch import Tensor

from objectives.segments import fixed_count, fixed_length, segment_sums
from tests.objectives.rows import losses, token_loss
from tests.objectives.toy import enumerate_toy

MODES = ("plain", "one_sided", "outer_min", "stopgrad")


def draws() -> tuple[Tensor, Tensor, Tensor]:
    """Return ratios [300, 4], advantages of either sign, and the exact objective."""
    ratios = (0.5 * torch.randn(300, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).exp()
    advantages = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(150)
    return ratios, advantages, advantages * ratios.prod(1)


def test_one_sided_is_never_above_the_exact_objective() -> None:
    """U10."""
    ratios, advantages, exact = draws()
    surrogate = -losses(ratios, advantages, "one_sided")[0]
    assert bool((surrogate <= exact + 1e-12).all())
    assert int((surrogate < exact - 1e-9).sum()) > 100


def test_the_literal_form_is_sometimes_above_the_exact_objective() -> None:
    """U10."""
    ratios, advantages, exact = draws()
    assert int((-losses(ratios, advantages, "plain")[0] > exact + 1e-9).sum()) > 50


def test_the_outer_minimum_lies_between_one_sided_and_the_exact_objective() -> None:
    """U10: one_sided <= outer_min <= raw, each strictly somewhere."""
    ratios, advantages, exact = draws()
    lower, middle = (-losses(ratios, advantages, mode)[0] for mode in ("one_sided", "outer_min"))
    assert bool((lower <= middle + 1e-12).all())
    assert bool((middle <= exact + 1e-12).all())
    assert int((lower < middle - 1e-9).sum()) > 50
    assert int((middle < exact - 1e-9).sum()) > 50


@pytest.mark.parametrize("mode", ["plain", "one_sided", "outer_min"])
def test_at_pi_old_it_touches_the_exact_objective(mode: str) -> None:
    """U1."""
    loss, gradient = token_loss([1, 1, 1], 2, mode)
    assert loss == -2
    assert gradient.tolist() == [-2, -2, -2]


def test_the_literal_product_stays_between_the_powers_of_its_bounds() -> None:
    """U14."""
    ratios, advantages, _ = draws()
    values = -advantages * losses(ratios, advantages, "plain")[0]
    assert float(values.min()) >= 0.8**4 - 1e-12
    assert float(values.max()) <= 1.2**4 + 1e-12
    assert token_loss([9, 9, 9, 9], 1, "plain")[0] == pytest.approx(-(1.2**4))
    assert token_loss([0.1] * 4, 1, "plain")[0] == pytest.approx(-(0.8**4))


@pytest.mark.parametrize("mode", MODES)
def test_the_order_of_segments_does_not_matter(mode: str) -> None:
    """U12."""
    ratios = [1.5, 0.6, 1.1, 0.95]
    loss, gradient = token_loss(ratios, -1, mode)
    for order in itertools.permutations(range(4)):
        moved, slopes = token_loss([ratios[i] for i in order], -1, mode)
        if mode != "stopgrad":
            assert moved == pytest.approx(loss)
        torch.testing.assert_close(slopes, gradient[list(order)])


@pytest.mark.parametrize("mode", ["plain", "one_sided"])
@pytest.mark.parametrize(("ratios", "same"), [([1.1, 0.95, 1.4], True), ([1.15, 1.15, 1.4], False)])
def test_merging_segments_changes_nothing_while_all_are_inside(mode: str, ratios: list[float], same: bool) -> None:
    """U12."""
    apart, merged = token_loss(ratios, 1, mode), token_loss(ratios, 1, mode, segment=[0, 0, 1])
    assert (merged[0] == pytest.approx(apart[0])) is same  # 1.15 * 1.15 = 1.3225 > 1.2
    assert torch.allclose(merged[1], apart[1]) is same


TOY = enumerate_toy(2, 5)


def toy_sums(segment: Tensor, shift: float = 0.7) -> tuple[Tensor, Tensor, Tensor]:
    """Probability of each response under pi_old, and log-ratios summed by segment."""
    old = TOY.logits(0)
    new = old + shift * TOY.logits(1)
    sums, counts = segment_sums(TOY.logprobs(new) - TOY.logprobs(old), segment, TOY.mask)
    return TOY.probabilities(old), sums, counts


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_ratios_of_causal_segments_average_to_one(length: int) -> None:
    """U11."""
    probability, sums, _ = toy_sums(fixed_length(TOY.mask, length))
    ones = torch.ones(5, dtype=torch.float64)
    torch.testing.assert_close((probability[:, None] * sums.exp()).sum(0), ones)
    assert float((probability * sums.sum(1).exp()).sum()) == pytest.approx(1)
    assert float(sums.abs().max()) > 0.5


def test_expected_one_sided_objective_is_below_the_expected_return() -> None:
    reward = TOY.logits(2)[:, 0].repeat(2)[:32]
    probability, sums, _ = toy_sums(fixed_length(TOY.mask, 2))
    one_sided = -losses(sums.exp(), reward, "one_sided")[0]
    found = float((probability * one_sided).sum())
    exact = float((probability * sums.sum(1).exp() * reward).sum())
    assert found < exact - 1e-3
    assert exact == pytest.approx(float((TOY.probabilities(TOY.logits(0) + 0.7 * TOY.logits(1)) * reward).sum()))


def test_equal_parts_of_the_final_length_are_no_stopping_times() -> None:
    """U11."""
    # A response ends after 1 token with p .5 (new .3), after 2 with .5 * .5, after 3 with the rest; its third token is
    # certain. Two parts: {1}; {1}, {2}; {1, 2}, {3}. E[r_1] = .5*.6 + .25*1.4 + .25*1.4*1.4 = 1.14 and
    # E[r_2] = .5*1 + .25*.6 + .25*1 = .9, but E[r_1 r_2] = .3 + .25*1.4*.6 + .49 = 1.
    mask = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    probability = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    ratio = torch.tensor([[0.6, 1, 1], [1.4, 0.6, 1], [1.4, 1.4, 1]], dtype=torch.float64)
    sums, _ = segment_sums(ratio.log(), fixed_count(mask, 2), mask)
    torch.testing.assert_close(probability @ sums.exp(), torch.tensor([1.14, 0.9, 1], dtype=torch.float64))
    assert float(probability @ sums.sum(1).exp()) == pytest.approx(1)
    causal, _ = segment_sums(ratio.log(), fixed_length(mask, 2), mask)
    torch.testing.assert_close(probability @ causal.exp(), torch.ones(3, dtype=torch.float64))
