"""What every trust region must hold: the claims of ``objectives.contract`` on regions, and what both share."""

import math
import re
from collections.abc import Callable
from dataclasses import fields, replace

import torch
from torch import Tensor

from objectives.base import Batch, Objective, Rollout
from objectives.reference_engine import Case, divergence, far, random_case, with_logprobs
from objectives.trust_region.base import TrustRegion, Verdict
from objectives.trust_region.measured import EXACT_FIELDS

__all__ = [
    "EXTREME",
    "KNOWN_FIELDS",
    "POISONS",
    "TRUST_REGION_CHECKS",
    "expect",
    "fields_documented",
    "gap",
    "requires_known",
]

KNOWN_FIELDS = {
    item.name for record in (Rollout, Batch) for item in fields(record) if item.default is None
} - {"returns", "max_response_tokens"} | {"step_logprobs", "step_uniforms"}  # fmt: skip
"""What ``requires`` may name."""

EXTREME = 300.0
"""Nats: far beyond what float32 can exponentiate."""

_FROM_THE_ENGINE = frozenset({*EXACT_FIELDS.values(), "projection_gap"})

POISONS = (torch.nan, torch.inf, -1e4)
"""What may stand in masked slots."""


def expect(condition: object, message: str) -> None:
    """Raise an AssertionError unless ``condition`` holds; unlike ``assert`` also under ``python -O``."""
    if not condition:
        raise AssertionError(message)


def gap(found: Tensor, expected: Tensor) -> float:
    """Return the norm-wise relative difference of two tensors; infinite if it is not finite."""
    size = float(expected.detach().square().sum()) ** 0.5
    difference = float((found - expected).detach().square().sum()) ** 0.5 / max(size, 1e-300)
    return difference if math.isfinite(difference) else math.inf


def fields_documented(instance: object) -> None:
    """Expect a line "name: ..." for every field in the docstring of the class or of one that it extends."""
    text = "\n".join(cls.__doc__ or "" for cls in type(instance).__mro__[:-1])
    names = [item.name for item in fields(instance)]  # pyright: ignore
    missing = [name for name in names if not re.search(rf"^\s*{name}: \S", text, re.MULTILINE)]
    expect(not missing, f"the docstring of {type(instance).__name__} says nothing of {', '.join(missing)}")


def requires_known(instance: Objective | TrustRegion) -> None:
    """Expect ``requires`` to name only fields that an engine can provide."""
    unknown = sorted(instance.requires - KNOWN_FIELDS)
    expect(not unknown, f"requires names {', '.join(unknown)}; known: {', '.join(sorted(KNOWN_FIELDS))}")


def _nonnegative(region: TrustRegion) -> None:
    case = random_case(region.requires)
    value, _, _ = divergence(region, case)
    mask = case.rollout.response_mask
    expect(bool((value[mask] > 0).all()), "the divergence is not positive where policies differ; estimate it by k3")
    expect(bool((value[~mask] == 0).all()), "the divergence is not 0 outside loss_mask")


def _zero(region: TrustRegion) -> None:
    case = random_case(region.requires, spread=0)
    if case.rollout.ref_logprobs is not None:
        case = Case(replace(case.rollout, ref_logprobs=case.rollout.old_logprobs), case.current)
    zeros = torch.zeros_like(case.rollout.old_logprobs)
    current = {name: zeros if name in _FROM_THE_ENGINE else value for name, value in case.current.items()}
    case = Case(case.rollout, current)
    value, gradient, _ = divergence(region, case)
    zero = bool((value == 0).all()) and bool((gradient == 0).all())
    expect(zero, "divergence and gradient are not exactly 0 between equal policies; use expm1")


def _masked(region: TrustRegion) -> None:
    case = random_case(region.requires)
    mask = case.rollout.response_mask
    plain = divergence(region, case)
    for poison in POISONS:
        value, gradient, keep = divergence(region, case, poison=poison)
        same = torch.equal(value[mask], plain[0][mask]) and torch.equal(keep[mask], plain[2][mask])
        expect(
            same and torch.equal(gradient, plain[1]), f"{poison} in masked slots changes divergence, gradient or keep"
        )
        expect(bool((value[~mask] == 0).all()), f"the divergence is not 0 in masked slots that hold {poison}")


def _extremes(region: TrustRegion) -> None:
    value, gradient, _ = divergence(region, far(random_case(region.requires, dtype=torch.float32), EXTREME))
    finite = bool(value.isfinite().all() and gradient.isfinite().all())
    expect(finite, "not finite in float32 at log-ratios of +-300; take differences from ops.log_ratio")


def _descends(region: TrustRegion) -> None:
    if region.init() == 0 or region.requires & _FROM_THE_ENGINE:
        return  # an exact divergence comes with its gradient from the engine
    case = random_case(region.requires)
    value, gradient, _ = divergence(region, case)
    nearer, _, _ = divergence(region, with_logprobs(case, case.current["logprobs"] - 1e-4 * gradient))
    lower = float(nearer.sum()) < float(value.sum()) - 1e-6
    expect(lower, "a step down the divergence's gradient does not lower it; it is added to a loss, so mind the sign")


def _control(region: TrustRegion) -> None:
    expect(region.unit in ("per_token", "per_sequence"), f"unit = {region.unit!r}: say per_token or per_sequence")
    _, _, keep = divergence(region, random_case(region.requires))
    expect(keep.dtype == torch.bool, f"keep is {keep.dtype}, expected [B, T] bool")
    for kl in (0.0, 1e-6, 0.01, 1.0, 100.0):
        verdict = region.update(region.init(), kl)
        expect(type(verdict) is Verdict, f"update returns a {type(verdict).__name__}, expected a Verdict")
        good = 0 <= verdict.coef < float("inf") and 0 <= verdict.scale <= 1
        expect(good, f"update({region.init()}, {kl}) gives {verdict}: coef must be finite, >= 0, scale in [0, 1]")


TRUST_REGION_CHECKS: tuple[tuple[str, Callable[[TrustRegion], None]], ...] = (
    ("divergence_is_positive", _nonnegative),
    ("divergence_is_zero_between_equals", _zero),
    ("masked_slots_do_not_matter", _masked),
    ("finite_at_extreme_ratios", _extremes),
    ("gradient_lowers_divergence", _descends),
    ("unit_keep_and_verdict", _control),
    ("requires_known_fields", requires_known),
    ("documented", fields_documented),
)
