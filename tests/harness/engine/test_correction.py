"""Behaviour correction: weights by hand, and what they do to the gradient of the policy term alone."""

import math

import pytest
import torch
from test_update import gradient
from tiny_engine import double, free_run, make_config, roll, update

from harness.config.errors import UserError
from harness.config.parts import CorrectionConfig
from harness.engine.correction import correction_weights
from harness.engine.metrics import StepMetrics

OLD = torch.log(torch.tensor([[0.3, 0.2, 0.9], [0.5, 0.5, 0.5]]))
MU = torch.log(torch.tensor([[0.1, 0.2, 0.9], [0.5, 1.0, 0.1]]))
MASK = torch.tensor([[True, True, False], [True, True, True]])


def weights(**settings):
    return correction_weights(CorrectionConfig(**settings), OLD, MU, MASK)


def test_token_ratios_are_bounded_or_dropped():
    truncated = weights(level="token", mode="truncate", high=2.0)
    torch.testing.assert_close(truncated, torch.tensor([[2.0, 1.0, 1.0], [1.0, 0.5, 2.0]]))
    masked = weights(level="token", mode="mask", low=0.6, high=3.5)
    torch.testing.assert_close(masked, torch.tensor([[3.0, 1.0, 1.0], [1.0, 0.0, 0.0]]))


def test_a_response_has_one_ratio():
    found = weights(level="sequence", mode="truncate", high=2.6)
    torch.testing.assert_close(found, torch.tensor([[2.6, 2.6, 1.0], [2.5, 2.5, 2.5]]))
    found = weights(level="sequence", mode="mask", high=2.6)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0, 1.0], [2.5, 2.5, 2.5]]))


def test_bounds_that_are_not_reciprocal_keep_what_lies_between_them():
    """verl PR 6377: bounds applied to -log r were inverted; 0.6 to 1.4 must keep 0.65 and drop 1.5."""
    old = torch.log(torch.tensor([[0.65, 1.5, 0.59, 1.39]]))
    mask = torch.ones(1, 4, dtype=torch.bool)
    config = CorrectionConfig(level="token", mode="mask", low=0.6, high=1.4)
    found = correction_weights(config, old, torch.zeros_like(old), mask)
    torch.testing.assert_close(found, torch.tensor([[0.65, 0.0, 0.0, 1.39]]))


def test_masked_slots_reach_nothing():
    old = torch.where(MASK, OLD, torch.nan)
    config = CorrectionConfig(level="sequence", high=1e9)
    found = correction_weights(config, old, torch.where(MASK, MU, -math.inf), MASK)
    assert found.isfinite().all()
    assert found[0, 0] == pytest.approx(3.0)


def test_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(UserError, match=r"is above correction\.high"):
        make_config(correction={"level": "token", "low": 3.0, "high": 2.0})


def test_the_samplers_log_probabilities_are_the_trainers_here(tiny):
    experience, _, rollout, _ = roll(free_run(make_config()))
    gap = (rollout.rollout_logprobs - rollout.old_logprobs)[experience.mask].abs()
    assert gap.max() < 1e-4
    assert (rollout.rollout_logprobs[experience.mask] < 0).all()
    assert (rollout.rollout_logprobs[~experience.mask] == 0).all()


@pytest.mark.parametrize("temperature", [0.6, 1.5])
def test_and_at_another_temperature_too(tiny, temperature):
    experience, _, rollout, _ = roll(free_run(make_config(rollout={"temperature": temperature})))
    assert (rollout.rollout_logprobs - rollout.old_logprobs)[experience.mask].abs().max() < 1e-4


def shifted(parts, run):
    """Let the sampler have seen every token twice as probable as the trainer does."""
    experience, plan, rollout, targets = parts
    object.__setattr__(rollout, "rollout_logprobs", rollout.old_logprobs + math.log(2))
    return experience, plan, rollout, targets


def test_the_policy_term_alone_is_weighed(tiny, monkeypatch):
    plain = double(free_run(make_config(objective={"name": "kimi"})))
    weighed = double(free_run(make_config(objective={"name": "kimi"}, correction={"level": "token"})))
    first = gradient(plain, roll(plain), monkeypatch)
    second = gradient(weighed, shifted(roll(weighed), weighed), monkeypatch)
    torch.testing.assert_close(second, first / 2)  # the penalty is 0 at pi_old


def test_a_rejected_rollout_moves_nothing_and_is_counted(tiny):
    run = free_run(make_config(correction={"level": "token", "mode": "mask", "low": 0.9}))
    before = [p.detach().clone() for p in run.policy.model.parameters()]
    metrics = StepMetrics()
    update(run, shifted(roll(run), run), metrics)
    assert all(torch.equal(a, b) for a, b in zip(before, run.policy.model.parameters(), strict=True))
    assert metrics.summary()["correction_zero_frac"] == 1.0


def test_level_none_is_no_correction(tiny, monkeypatch):
    plain, other = (double(free_run(make_config())) for _ in range(2))
    first = gradient(plain, roll(plain), monkeypatch)
    torch.testing.assert_close(gradient(other, shifted(roll(other), other), monkeypatch), first)
