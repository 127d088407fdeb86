"""Relations between objectives, and what is proven of the subsequence objective (spec/objectives.md, 6 and 8)."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import objectives
from objectives.reference_engine import Case, Outcome, one_step, random_case
from objectives.segments import segment_sums
from tests.objectives.made import batch_of
from tests.objectives.rows import token_loss

CASE = random_case(spread=0.3, seed=5)
MODES = ("plain", "one_sided", "stopgrad")


def subsequence(**settings: Any) -> Any:
    return objectives.make("gspo_subsequence", **settings)


def per_token(**settings: Any) -> Any:
    return subsequence(segment_rule="fixed_length", segment_tokens=1, **settings)


def step(objective: Any, case: Case = CASE) -> Outcome:
    return one_step(objective, case)


def assert_same(found: Outcome, expected: Outcome) -> None:
    assert float(expected.gradients["logprobs"].abs().max()) > 0
    assert float(found.loss) == pytest.approx(float(expected.loss), rel=1e-12)
    torch.testing.assert_close(found.gradients["logprobs"], expected.gradients["logprobs"], rtol=1e-11, atol=1e-14)
    live = expected.targets.loss_mask & (expected.targets.advantages != 0)
    assert torch.equal(found.stats["clipped"][live], expected.stats["clipped"][live])


def assert_formula(found: Outcome, loss: Tensor, logprobs: Tensor) -> None:
    (gradient,) = torch.autograd.grad(loss, logprobs)
    assert float(found.loss) == pytest.approx(float(loss.detach()), rel=1e-12)
    torch.testing.assert_close(found.gradients["logprobs"], gradient, rtol=1e-11, atol=1e-14)


def written_out(case: Case = CASE) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Log-ratios (0 where masked), their leaf, row advantages, lengths, and the number of rows with tokens."""
    outcome = step(objectives.make("grpo"), case)
    mask = outcome.targets.loss_mask
    logprobs = case.current["logprobs"].clone().requires_grad_()
    ratios = torch.where(mask, logprobs - case.rollout.old_logprobs, 0)
    lengths = mask.sum(1).double()
    return ratios, logprobs, outcome.targets.advantages.sum(1) / lengths.clamp(min=1), lengths, int((lengths > 0).sum())


# Reductions


@pytest.mark.parametrize("clip", [0.2, 1.5])
def test_one_raw_segment_is_ppo_on_whole_responses(clip: float) -> None:
    """U2: the loss of TRL's RLOOTrainer; the library itself is in ``parity``."""
    found = step(subsequence(num_segments=1, clip_mode="one_sided", clip_low=min(clip, 1), clip_high=clip))
    ratios, logprobs, advantages, lengths, rows = written_out()
    rho = ratios.sum(1).exp()
    clipped = rho.clamp(1 - min(clip, 1), 1 + clip)
    loss = -torch.minimum(rho * advantages, clipped * advantages)[lengths > 0].sum() / (rows * 12)
    assert_formula(found, loss, logprobs)


@pytest.mark.parametrize("settings", [{"outer_root": "segments"}, {"outer_root": "none"}, {"combine": "mean"}], ids=str)
def test_one_segment_of_the_mean_log_ratio_is_gspo(settings: dict[str, Any]) -> None:
    """U3, and U7 for the mean."""
    bounds = {"clip_low": 0.02, "clip_high": 0.05}
    found = step(subsequence(num_segments=1, norm="mean", clip_mode="one_sided", **bounds, **settings))
    assert_same(found, step(objectives.make("gspo", **bounds)))


@pytest.mark.parametrize("norm", ["mean", "none"])
def test_one_token_a_segment_combined_by_the_mean_is_grpo(norm: str) -> None:
    """U6."""
    bounds = {"clip_low": 0.1, "clip_high": 0.3}
    found = step(per_token(norm=norm, combine="mean", clip_mode="one_sided", **bounds))
    expected = step(objectives.make("grpo", **bounds))
    if norm == "mean":
        assert_same(found, expected)
        return
    # raw: the same clip at every token, but weighted by the constant 1 / (rows * limit) and not by 1 / (rows * n)
    lengths = expected.targets.loss_mask.sum(1, keepdim=True)
    torch.testing.assert_close(found.gradients["logprobs"], expected.gradients["logprobs"] * lengths / 12)


def test_segments_longer_than_every_response_are_one_segment() -> None:
    long = step(subsequence(segment_rule="fixed_length", segment_tokens=100, clip_mode="one_sided"))
    assert_same(long, step(subsequence(num_segments=1, clip_mode="one_sided")))


def test_as_many_parts_as_tokens_are_one_token_a_segment() -> None:
    settings = {"norm": "mean", "combine": "mean", "clip_mode": "one_sided"}
    assert_same(step(subsequence(num_segments=100, **settings)), step(per_token(**settings)))


def test_one_token_a_segment_with_the_root_of_the_length_is_gmpo() -> None:
    """U5, against the formula."""
    bound = 0.4
    found = step(
        per_token(
            outer_root="tokens", clip_mode="one_sided", clip_low=1 - math.exp(-bound), clip_high=math.exp(bound) - 1
        )
    )
    ratios, logprobs, advantages, lengths, rows = written_out()
    sign = advantages[:, None]
    inside = torch.where(sign > 0, ratios.clamp(max=bound), ratios.clamp(min=-bound))
    loss = -(advantages * (inside.sum(1) / lengths.clamp(min=1)).exp()).sum() / rows
    assert_formula(found, loss, logprobs)


@pytest.mark.parametrize("mode", ["plain", "one_sided"])
@pytest.mark.parametrize("segments", [1, 3])
def test_without_bounds_it_is_raw_importance_sampling(mode: str, segments: int) -> None:
    """U8."""
    found = step(subsequence(num_segments=segments, clip_mode=mode, clip_low=1, clip_high=math.inf))
    ratios, logprobs, advantages, _, rows = written_out()
    assert_formula(found, -(advantages * ratios.sum(1).exp()).sum() / (rows * 12), logprobs)


def test_one_sided_without_an_upper_bound_is_raw_where_the_advantage_is_positive() -> None:
    """U8."""
    free = step(subsequence(clip_low=1, clip_high=math.inf)).gradients["logprobs"]
    found = step(subsequence(clip_mode="one_sided", clip_low=0.01, clip_high=math.inf))
    good, bad = found.targets.advantages > 0, found.targets.advantages < 0
    torch.testing.assert_close(found.gradients["logprobs"][good], free[good])
    assert not torch.allclose(found.gradients["logprobs"][bad], free[bad])


# Gradient per token (6.1, 6.2)


@pytest.mark.parametrize(
    ("advantage", "mode", "value", "gradient"),
    [
        (1, "plain", 1.2 * 0.8, (0, 0)),
        (1, "one_sided", 1.2 * 0.6, (0, 0.72)),
        (-1, "plain", -1.2 * 0.8, (0, 0)),
        (-1, "one_sided", -1.5 * 0.8, (-1.2, 0)),
        (1, "outer_min", 1.5 * 0.6, (0.9, 0.9)),
        (-1, "outer_min", -1.2 * 0.8, (0, 0)),
        (1, "stopgrad", None, (0.96, 0.96)),
        (-1, "stopgrad", None, (-0.96, -0.96)),
    ],
)
def test_the_worked_example(advantage: float, mode: str, value: float | None, gradient: tuple[float, float]) -> None:
    """U9."""
    loss, found = token_loss([1.5, 0.6], advantage, mode)
    torch.testing.assert_close(-found, torch.tensor(gradient, dtype=torch.float64))
    if value is not None:
        assert -loss == pytest.approx(value)


@pytest.mark.parametrize("mode", MODES)
def test_a_token_has_gradient_a_rho_while_its_segment_is_inside(mode: str) -> None:
    """U9."""
    outcome = step(subsequence(num_segments=3, clip_mode=mode, clip_low=0.15, clip_high=0.25))
    mask, advantages = outcome.targets.loss_mask, outcome.targets.advantages
    segment = outcome.targets.extras["segment"]
    sums, _ = segment_sums(CASE.current["logprobs"] - CASE.rollout.old_logprobs, segment, mask)
    ratio = sums.exp()
    sign = advantages.sum(1, keepdim=True)
    above, below = ratio > 1.25, ratio < 0.85
    if mode == "one_sided":
        above, below = above & (sign >= 0), below & (sign < 0)
    clipped = torch.where(above, 1.25, torch.where(below, 0.85, ratio))
    inside = ~(above | below) if mode != "stopgrad" else torch.ones_like(above)
    expected = -outcome.weights * advantages * clipped.prod(1, keepdim=True) * inside.gather(1, segment)
    torch.testing.assert_close(outcome.gradients["logprobs"], expected)
    live = mask & (advantages != 0)
    assert torch.equal(outcome.stats["clipped"][live], (above | below).gather(1, segment)[live])
    assert 3 < int(outcome.stats["clipped"][live].sum()) < int(live.sum())


def test_the_detached_form_is_never_dead() -> None:
    outcome = step(subsequence(preset="detached", clip_low=0, clip_high=0))
    live = outcome.targets.loss_mask & (outcome.targets.advantages != 0)
    assert bool((outcome.gradients["logprobs"][live] != 0).all())
    assert bool((step(subsequence(clip_low=0, clip_high=0)).gradients["logprobs"] == 0).all())


def test_a_long_response_beyond_the_bound_of_the_product_counts_as_clipped() -> None:
    # 4 segments of log-ratio 6 each: 24 nats > 20; A < 0, so one_sided clips none of them
    loss, gradient = token_loss([math.exp(6)] * 4, -1, "one_sided")
    assert loss == pytest.approx(math.exp(20))
    assert gradient.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("ratios", "advantage", "settings", "expected"),
    [
        ([1.1, 1.15], 1, {}, [False, False]),
        ([1.1, 1.15], 1, {"outer_high": 0.2}, [True, True]),  # 1.265 > 1.2
        ([1.1, 1.15], -1, {"outer_high": 0.2}, [True, True]),
        ([1.1, 1.15], -1, {"outer_high": 0.2, "clip_mode": "one_sided"}, [False, False]),
        ([1.1, 1.15], -1, {"outer_high": 0.2, "clip_mode": "outer_min"}, [False, False]),  # -1.265 < -1.2
        ([1.5, 0.6], 1, {"clip_mode": "outer_min"}, [False, False]),  # .9 < .96
        ([1.5, 0.6], -1, {"clip_mode": "outer_min"}, [True, True]),
    ],
)
def test_clipped_is_what_has_no_gradient(
    ratios: list[float], advantage: float, settings: dict[str, Any], expected: list[bool]
) -> None:
    batch = batch_of(torch.tensor([ratios]).double(), torch.full((1, 2), advantage).double())
    batch = replace(batch, extras={"segment": torch.arange(2)[None]})
    terms = subsequence(**settings).token_loss(batch)
    (gradient,) = torch.autograd.grad(terms.policy.sum(), batch.logprobs)
    assert terms.stats["clipped"].tolist() == [expected]
    assert (gradient == 0).tolist() == [expected]


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_advantages_are_those_of_the_objective_that_they_are_called_after(name: str) -> None:
    found = subsequence(advantages=name).targets(CASE.rollout).advantages
    torch.testing.assert_close(found, objectives.make(name).targets(CASE.rollout).advantages)
    assert float(found.abs().max()) > 0.1
