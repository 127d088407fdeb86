"""Control rules by hand, on a scalar problem with a known answer, and the reference penalty by enumeration."""

import math
from typing import Any

import pytest
import torch

from objectives import Batch, trust_region
from objectives.kl import k3
from objectives.trust_region import Verdict
from tests.objectives.toy import enumerate_toy


def test_dual_ascent_raises_the_multiplier_while_the_bound_is_violated() -> None:
    """U30."""
    region = trust_region.make("dual", delta=0.1, rate=0.5, coef=2)
    assert region.init() == 2
    assert region.update(2.0, 0.15).coef == pytest.approx(2 * math.exp(0.5 * 0.5))
    assert region.update(2.0, 0.3).coef == pytest.approx(2 * math.exp(0.5))  # a violation counts as twice delta at most
    assert region.update(2.0, 0.05).coef == pytest.approx(2 * math.exp(-0.5 * 0.5))
    assert region.update(2.0, 0.1) == Verdict(2.0)
    assert region.update(2.0, 0.0).coef == pytest.approx(2 * math.exp(-0.5))


def test_dual_ascent_does_not_let_go_when_the_divergence_is_not_a_number() -> None:
    assert math.isnan(trust_region.make("dual").update(1.0, math.nan).coef)


def test_dual_ascent_finds_the_multiplier_of_a_quadratic() -> None:
    # min_x -x + coef (2 x^2 - .05): x = 1 / (4 coef), KL = 1 / (8 coef^2) = .05 at coef = sqrt(2.5)
    region = trust_region.make("dual", delta=0.05, coef=1, rate=0.5)
    coef, seen = region.init(), []
    for _ in range(60):
        seen.append(2 * (1 / (4 * coef)) ** 2)
        coef = region.update(coef, seen[-1]).coef
    assert seen[0] == pytest.approx(0.125)
    assert seen[-1] == pytest.approx(0.05, rel=1e-4)
    assert coef == pytest.approx(math.sqrt(2.5), rel=1e-4)


def test_dual_ascent_lets_go_where_the_bound_does_not_bind() -> None:
    region = trust_region.make("dual", delta=10)
    coef = region.init()
    for _ in range(20):
        coef = region.update(coef, 0.01).coef
    assert coef == region.init() / 1000


@pytest.mark.parametrize(
    ("kl", "factor"), [(0.0, 0.5), (0.0066, 0.5), (0.0067, 1), (0.01, 1), (0.015, 1), (0.0151, 2), (5.0, 2)]
)
def test_adaptive_penalty_halves_and_doubles_outside_its_band(kl: float, factor: float) -> None:
    region = trust_region.make("adaptive", target=0.01, tolerance=1.5)
    assert region.init() == 1
    assert region.update(3.0, kl) == Verdict(3.0 * factor)


def test_adaptive_penalty_changes_by_its_rate() -> None:
    region = trust_region.make("adaptive", rate=4, coef=0.5)
    assert region.init() == 0.5
    assert (region.update(1, 1).coef, region.update(1, 0).coef) == (4, 0.25)


@pytest.mark.parametrize(("kl", "stop"), [(0.0, False), (0.0299, False), (0.0301, True), (1.0, True)])
def test_early_stop_stops_at_the_first_violation_and_adds_no_penalty(kl: float, stop: bool) -> None:
    """U30."""
    region = trust_region.make("early_stop", target=0.02, tolerance=1.5)
    assert region.init() == 0
    assert region.update(0.0, kl) == Verdict(0.0, stop=stop)


@pytest.mark.parametrize(("name", "coef"), [("none", 0.0), ("fixed_penalty", 1.0), ("reference_penalty", 0.04)])
def test_fixed_coefficients_stay(name: str, coef: float) -> None:
    region = trust_region.make(name)
    assert region.init() == coef
    assert [region.update(coef, kl) for kl in (0.0, 5.0)] == [Verdict(coef)] * 2


def test_fixed_coefficients_are_the_ones_given() -> None:
    assert trust_region.make("fixed_penalty", coef=3).init() == 3
    assert trust_region.make("reference_penalty", coef=0.1).init() == 0.1


@pytest.mark.parametrize("name", ["none", "fixed_penalty", "adaptive", "dual", "early_stop"])
def test_regions_around_pi_old_measure_k3(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    new, old = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    mask = new > -0.5
    batch = Batch(new, old, new, mask, mask.long())
    torch.testing.assert_close(trust_region.make(name).divergence(batch), k3(new, old, mask), rtol=0, atol=0)


def test_when_a_region_is_measured() -> None:
    found = {name: cls.measured for name, cls in trust_region.classes().items()}
    late = {name for name, when in found.items() if when == "after_rollout"}
    assert late & {"adaptive", "dual", "early_stop", "none", "fixed_penalty", "reference_penalty"} == {
        "adaptive",
        "dual",
    }


@pytest.mark.parametrize(("vocabulary", "length"), [(3, 1), (2, 3)])
def test_reference_penalty_has_the_exact_gradient_from_samples_of_pi_old(vocabulary: int, length: int) -> None:
    toy = enumerate_toy(vocabulary, length)
    old, ref = toy.logits(1), toy.logits(2)
    theta = (old + 0.5 * toy.logits(0)).requires_grad_()
    batch = Batch(
        logprobs=toy.logprobs(theta),
        old_logprobs=toy.logprobs(old),
        advantages=torch.zeros_like(toy.logprobs(old)),
        loss_mask=toy.mask,
        response_ids=toy.tokens,
        ref_logprobs=toy.logprobs(ref),
    )
    found = toy.probabilities(old) @ trust_region.make("reference_penalty").divergence(batch).sum(1)
    log_p, log_ref = torch.log_softmax(theta, -1), torch.log_softmax(ref, -1)
    exact = toy.probabilities(old) @ (log_p.exp() * (log_p - log_ref)).sum(-1)[toy.states].sum(1)
    torch.testing.assert_close(found, exact)
    torch.testing.assert_close(*(torch.autograd.grad(value, theta)[0] for value in (found, exact)))


def test_reference_penalty_says_what_it_misses() -> None:
    x = torch.zeros(1, 1)
    with pytest.raises(ValueError, match=r"reads Batch\.ref_logprobs"):
        trust_region.make("reference_penalty").divergence(Batch(x, x, x, x == 0, x.long()))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("dual", {"delta": 0}, "delta = 0.0 must be above 0"),
        ("dual", {"rate": -1}, "rate = -1.0 must be above 0"),
        ("dual", {"coef": -0.1}, "coef = -0.1 must be above 0"),
        ("adaptive", {"target": math.nan}, "target = nan must be above 0"),
        ("adaptive", {"coef": 0}, "coef = 0.0 must be above 0"),
        ("adaptive", {"tolerance": 0.9}, "tolerance = 0.9 must be at least 1"),
        ("adaptive", {"rate": 0.5}, "rate = 0.5 must be at least 1"),
        ("early_stop", {"target": -1}, "target = -1.0 must be above 0"),
        ("early_stop", {"tolerance": 0.5}, "tolerance = 0.5 must be at least 1"),
        ("fixed_penalty", {"coef": 0}, "coef = 0.0 must be above 0"),
        ("reference_penalty", {"coef": math.inf}, "coef = inf must be above 0"),
        ("none", {"unit": "nats"}, "expected one of 'per_token', 'per_sequence'"),
        ("dual", {"detla": 1}, "did you mean 'delta'"),
    ],
)
def test_settings_out_of_range_are_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"trust region '{name}'.*{message}"):
        trust_region.make(name, **settings)


def test_an_unknown_region_is_refused_with_near_matches() -> None:
    with pytest.raises(ValueError, match="unknown trust region 'adaptiv'; did you mean 'adaptive'"):
        trust_region.make("adaptiv")
