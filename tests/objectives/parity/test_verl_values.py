"""The critic's loss, the entropy bonus, KL estimates and aggregation against verl."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import objectives
from objectives import Step, aggregation
from objectives.reference_engine import Case, Outcome, one_step
from tests.objectives.parity.cases import (
    CASES,
    LIMIT,
    RTOL,
    assert_close,
    tokens_of,
    without_row,
)

ALL_CASES = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def critic(case: Case, **settings: Any) -> Outcome:
    """Return PPO's step with all advantages 0 and no bonus: the value loss alone."""
    objective = objectives.make("ppo", entropy_coef=0.0, **settings)
    return one_step(objective, case, edit=lambda t: replace(t, advantages=torch.zeros_like(t.advantages)))


@ALL_CASES
@pytest.mark.parametrize("clip", [0.2, 0.5, 1e9])
def test_the_value_loss_is_that_of_verl(verl: ModuleType, case: Case, clip: float) -> None:
    found = critic(case, value_clip=clip)
    mask, old_values = found.targets.loss_mask, case.rollout.old_values
    assert old_values is not None
    expected = verl.value_loss(case.current["values"], found.targets.returns, old_values[:, :-1], mask, clip)
    assert float(found.loss) == pytest.approx(float(expected.loss), rel=RTOL)
    assert_close(found.gradients["values"], expected.gradient)
    moved = (case.current["values"] - old_values[:, :-1]).abs() > clip
    assert int((moved & mask).sum()) > (50 if clip < 1 else -1)


@ALL_CASES
def test_all_of_ppo_is_the_sum_of_verls_terms(verl: ModuleType, case: Case) -> None:
    """vanilla with dual clip, + value loss, - 0.01 mean entropy over tokens."""
    found = one_step(objectives.make("ppo", dual_clip=3.0), case)
    mask, old_values = found.targets.loss_mask, case.rollout.old_values
    assert old_values is not None
    policy = verl.policy_loss("vanilla", tokens_of(case, found), "token-mean")
    value = verl.value_loss(case.current["values"], found.targets.returns, old_values[:, :-1], mask, 0.2)
    entropy = case.current["entropy"].clone().requires_grad_()
    bonus = -0.01 * verl.aggregate(entropy, mask, "token-mean")
    total = float(policy.loss) + float(value.loss) + float(bonus.detach())
    assert float(found.loss) == pytest.approx(total, rel=RTOL)
    assert_close(found.gradients["logprobs"], policy.gradient)
    assert_close(found.gradients["entropy"], torch.autograd.grad(bonus, entropy)[0])


# Aggregation


def step_of(case: Case) -> Step:
    rollout = case.rollout
    return Step(rollout.response_mask, rollout.group, rollout.origin, LIMIT, old_logprobs=rollout.old_logprobs)


@ALL_CASES
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize(
    ("weights", "mode", "batch"),
    [
        (aggregation.token_mean, "token-mean", {}),
        (aggregation.sequence_mean, "seq-mean-token-mean", {}),
        (aggregation.constant, "seq-mean-token-sum-norm", {"loss_scale_factor": LIMIT}),
    ],
)
def test_weights_are_those_of_agg_loss(
    verl: ModuleType,
    case: Case,
    empty: bool,
    weights: Callable[[Step], Tensor],
    mode: str,
    batch: dict[str, Any],
) -> None:
    """A row without tokens counts in neither."""
    case = without_row(case, 7) if empty else case
    losses = torch.zeros_like(case.rollout.old_logprobs).requires_grad_()
    expected = verl.aggregate(losses, case.rollout.response_mask, mode, **batch)
    assert_close(weights(step_of(case)), torch.autograd.grad(expected, losses)[0])


def test_without_a_scale_factor_verl_divides_by_the_padded_width_and_we_never_do(verl: ModuleType) -> None:
    losses, mask = torch.ones(2, 4), torch.tensor([[True, True, False, False], [True, False, False, False]])
    wide = torch.nn.functional.pad(losses, (0, 4)), torch.nn.functional.pad(mask, (0, 4))
    assert float(verl.aggregate(losses, mask, "seq-mean-token-sum-norm")) == pytest.approx(3 / 2 / 4)
    assert float(verl.aggregate(*wide, "seq-mean-token-sum-norm")) == pytest.approx(3 / 2 / 8)
    for given in (mask, wide[1]):
        step = Step(given, torch.zeros(2, dtype=torch.long), torch.zeros(2, dtype=torch.int8), LIMIT)
        assert float(aggregation.constant(step).sum()) == pytest.approx(3 / 2 / LIMIT)


def test_a_step_without_tokens_is_not_a_number_in_verl_and_0_here(verl: ModuleType) -> None:
    losses, mask = torch.ones(2, 4), torch.zeros(2, 4, dtype=torch.bool)
    assert bool(verl.aggregate(losses, mask, "token-mean").isnan())
    step = Step(mask, torch.zeros(2, dtype=torch.long), torch.zeros(2, dtype=torch.int8), LIMIT)
    assert float(aggregation.token_mean(step).sum()) == 0
