"""What every objective and every trust region must hold, as claims that can be run on an instance.

``run(instance)`` is what ``evengrad check FILE:Class`` and the tests call. Each claim is a function that raises an
AssertionError which says what is wrong and where to look; the data come from ``objectives.reference_engine``.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from objectives.base import Objective, Targets, select_rows
from objectives.reference_engine import Case, Outcome, far, one_step, padded, random_case
from objectives.trust_region.base import TrustRegion
from objectives.trust_region.contract import (
    EXTREME,
    POISONS,
    TRUST_REGION_CHECKS,
    expect,
    fields_documented,
    gap,
    requires_known,
)

__all__ = ["OBJECTIVE_CHECKS", "TRUST_REGION_CHECKS", "run"]

_TOLERANCE = 1e-12
_RAISES = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_GROUP = 2


def run(instance: Objective | TrustRegion) -> list[tuple[str, str | None]]:
    """Return (claim, None or what is wrong) for every claim on ``instance``."""
    if isinstance(instance, TrustRegion):
        return [(claim, _error(check, instance)) for claim, check in TRUST_REGION_CHECKS]
    return [(claim, _error(check, instance)) for claim, check in OBJECTIVE_CHECKS]


def _error(check: Callable[[Any], None], instance: object) -> str | None:
    try:
        check(instance)
    except AssertionError as error:
        return str(error)
    except _RAISES as error:
        return f"raises {type(error).__name__}: {error}"
    return None


def _expect_same(found: Outcome, expected: Outcome, when: str, hint: str) -> None:
    pairs = {"loss": (found.loss, expected.loss)}
    pairs |= {f"gradient of {name}": (found.gradients[name], value) for name, value in expected.gradients.items()}
    for name, (one, other) in pairs.items():
        off = gap(one, other)
        expect(off <= _TOLERANCE, f"{name} changes by {off:.2g} (relative) {when}; {hint}")


def _zero_advantages(targets: Targets) -> Targets:
    return replace(targets, advantages=torch.zeros_like(targets.advantages))


def _on_policy(objective: Objective) -> None:
    outcome = one_step(objective, random_case(objective.requires, spread=0), penalty=False)
    expected = -outcome.weights * outcome.targets.advantages
    off = gap(outcome.gradients["logprobs"], expected)
    message = "at pi_theta = pi_old the policy gradient must be -weights * advantages (REINFORCE): token_loss is a loss"
    expect(off <= _TOLERANCE, f"{message} per token, not a mean, and is minimised; it is off by {off:.2g}")


def _micro_batches(objective: Objective) -> None:
    case = random_case(objective.requires)
    whole = one_step(objective, case)
    for rows in (1, 2, 5):
        outcome = one_step(objective, case, micro_batch=rows)
        hint = "whatever looks at several rows belongs in targets, aggregation or prepare"
        _expect_same(outcome, whole, f"with micro-batches of {rows} rows", hint)


def _padding(objective: Objective) -> None:
    case = random_case(objective.requires)
    plain, wide = one_step(objective, case), one_step(objective, padded(case, 50))
    width = plain.weights.shape[1]
    for name, value in wide.gradients.items():
        expect(bool((value[:, width:] == 0).all()), f"gradient of {name} is not 0 in padding columns")
    cut = replace(wide, gradients={name: value[:, :width] for name, value in wide.gradients.items()})
    _expect_same(cut, plain, "with 50 more padding columns", "divide by counts of the mask or max_response_tokens")


def _masked_slots(objective: Objective) -> None:
    case = random_case(objective.requires)
    plain = one_step(objective, case)
    for poison in POISONS:
        outcome = one_step(objective, case, poison=poison)
        hint = "select with torch.where(mask, x, 0) before any arithmetic: NaN * 0 is NaN"
        _expect_same(outcome, plain, f"with {poison} in masked slots", hint)
        for name, value in outcome.gradients.items():
            targets = plain.targets
            valued = targets.loss_mask if targets.value_mask is None or name != "values" else targets.value_mask
            stray = value[~(targets.loss_mask | valued)]
            expect(bool((stray == 0).all()), f"gradient of {name} is not exactly 0 in masked slots holding {poison}")


def _row_order(objective: Objective) -> None:
    case = random_case(objective.requires)
    order = torch.randperm(case.rollout.rewards.shape[0], generator=torch.Generator().manual_seed(3))
    current = {name: value[order] for name, value in case.current.items()}
    plain, moved = one_step(objective, case), one_step(objective, Case(select_rows(case.rollout, order), current))
    expected = replace(plain, gradients={name: value[order] for name, value in plain.gradients.items()})
    _expect_same(moved, expected, "when rows are permuted", "compare rows by Rollout.group, never by position")


def _zero_advantage(objective: Objective) -> None:
    outcome = one_step(objective, random_case(objective.requires), edit=_zero_advantages, penalty=False)
    gradient = outcome.gradients["logprobs"]
    expect(bool((gradient == 0).all()), "zero advantages must give zero policy gradient; see TokenLoss.penalty")


def _extremes(objective: Objective) -> None:
    case = far(random_case(objective.requires, dtype=torch.float32), EXTREME)
    outcome = one_step(objective, case)
    finite = all(bool(value.isfinite().all()) for value in (outcome.loss, *outcome.gradients.values()))
    expect(finite, "not finite in float32 at log-ratios of +-300; take ratios from ops.log_ratio, which bounds them")


def _constants(objective: Objective) -> None:
    outcome = one_step(objective, random_case(objective.requires))
    made = {"advantages": outcome.targets.advantages, "weights": outcome.weights, **outcome.targets.extras}
    for name, value in made.items():
        expect(not value.requires_grad, f"{name} carries a gradient; only logprobs, values, entropy, exact_kl_old may")


def _all_masked(objective: Objective) -> None:
    case = random_case(objective.requires)
    unknown = replace(case.rollout, rewards=torch.full_like(case.rollout.rewards, torch.nan))
    empty = replace(case.rollout, response_mask=torch.zeros_like(case.rollout.response_mask))
    for what, rollout in (("every reward is NaN", unknown), ("every response is empty", empty)):
        outcome = one_step(objective, Case(rollout, case.current))
        for name, value in {"loss": outcome.loss, "weights": outcome.weights, **outcome.gradients}.items():
            expect(bool((value == 0).all()), f"{name} is not 0 when {what}; clamp counts to at least 1")


def _equal_rewards(objective: Objective) -> None:
    if objective.min_group_size < _GROUP:
        return
    case = random_case(objective.requires, dtype=torch.float32)
    rewards = torch.full_like(case.rollout.rewards, 0.7)
    advantages = objective.targets(replace(case.rollout, rewards=rewards)).advantages
    largest = float(advantages.detach().abs().max())
    message = (
        "equal rewards must give advantages of exactly 0; sum in float64 and treat a spread of rounding size as none"
    )
    expect(largest == 0, f"{message}; found {largest:.2g} for rewards of 0.7 in float32")


def _unknown_reward(objective: Objective) -> None:
    rollout = random_case(objective.requires).rollout
    known = torch.nonzero(~rollout.rewards.isnan())[:, 0]
    with_it, without = objective.targets(rollout), objective.targets(select_rows(rollout, known))
    expect(not bool(with_it.loss_mask[rollout.rewards.isnan()].any()), "a row with a NaN reward is in loss_mask")
    off = gap(with_it.advantages[known], without.advantages)
    expect(
        off <= _TOLERANCE, f"a NaN reward shifts the advantages of other rows by {off:.2g}; leave it out of the mean"
    )


def _clipped(objective: Objective) -> None:
    near = random_case(objective.requires, spread=0.5)
    for case in (near, far(near, 15.0, every=3), far(near, 30.0, every=3)):
        outcome = one_step(objective, case, penalty=False)
        shape = outcome.weights.shape
        for name, value in outcome.stats.items():
            expect(value.shape == shape, f"stats[{name!r}] has shape {tuple(value.shape)}, expected [B, T]")
        clipped = outcome.stats.get("clipped", torch.zeros(shape, dtype=torch.bool))
        expect(clipped.dtype == torch.bool, f'stats["clipped"] is {clipped.dtype}, expected bool')
        signal = (outcome.targets.advantages != 0) & (outcome.weights > 0)
        silent = signal & (outcome.gradients["logprobs"] == 0) & ~clipped
        count = int(silent.sum())
        expect(
            count == 0,
            f'{count} tokens have an advantage, no gradient, and are not in stats["clipped"]; see ops.saturated',
        )


def _stateless(objective: Objective) -> None:
    cls = type(objective)
    params = getattr(cls, "__dataclass_params__", None)
    expect(getattr(params, "frozen", False), f"{cls.__name__} is not frozen; write @dataclass(frozen=True) above it")
    before = dict(vars(objective))
    case = random_case(objective.requires)
    first = one_step(objective, case)
    _expect_same(one_step(objective, case), first, "when token_loss is called again", "an objective keeps no state")
    expect(vars(objective) == before, "the instance's attributes changed during a step; an objective keeps no state")
    twin = cls(**before)
    expect(twin == objective and hash(twin) == hash(objective), "equal settings must give equal, hashable instances")


def _documented(objective: Objective) -> None:
    module = sys.modules[type(objective).__module__].__doc__ or ""
    cited = re.search(r"arXiv:\d{4}\.\d{4,5}|no arXiv id", module)
    expect(cited, 'the module\'s docstring names no source; cite "arXiv:NNNN.NNNNN" or write "no arXiv id" and say why')
    fields_documented(objective)


def _masks(objective: Objective) -> None:
    case = random_case(objective.requires)
    outcome = one_step(objective, case)
    mask = outcome.targets.loss_mask
    outside = bool((mask & ~case.rollout.scored).any())
    expect(mask.dtype == torch.bool and not outside, "loss_mask must be bool and lie within Rollout.scored")
    for name, value in {"weights": outcome.weights, "advantages": outcome.targets.advantages}.items():
        expect(bool(value.isfinite().all()), f"{name} are not finite")
        expect(bool((value[~mask] == 0).all()), f"{name} are not 0 outside loss_mask")


OBJECTIVE_CHECKS: tuple[tuple[str, Callable[[Objective], None]], ...] = (
    ("on_policy_gradient_is_reinforce", _on_policy),
    ("micro_batches_do_not_matter", _micro_batches),
    ("padding_does_not_matter", _padding),
    ("masked_slots_do_not_matter", _masked_slots),
    ("row_order_does_not_matter", _row_order),
    ("zero_advantage_gives_no_gradient", _zero_advantage),
    ("finite_at_extreme_ratios", _extremes),
    ("constants_carry_no_gradient", _constants),
    ("all_masked_step_is_zero", _all_masked),
    ("equal_rewards_give_zero_advantage", _equal_rewards),
    ("unknown_reward_is_left_out", _unknown_reward),
    ("token_without_gradient_is_clipped", _clipped),
    ("frozen_and_stateless", _stateless),
    ("documented_with_source", _documented),
    ("requires_known_fields", requires_known),
    ("weights_and_advantages_stay_in_mask", _masks),
)
