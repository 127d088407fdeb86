"""c_t = -d loss / d log pi_t of every objective against its closed form (spec/objectives.md, 2; spec/methods.md).

A new objective fails here until it has an entry.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import objectives
from tests.objectives.grid import Grid, grid

Form = Callable[[Grid], Tensor]


def open_at(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """1 unless (A > 0 and ratio > 1 + high) or (A < 0 and ratio < 1 - low)."""
    return 1.0 - ((advantages > 0) & (ratio > 1 + high) | (advantages < 0) & (ratio < 1 - low)).double()


def token(low: float = 0.2, high: float = 0.2) -> Form:
    return lambda g: g.r * g.advantages * open_at(g.r, g.advantages, low, high)


def sequence(low: float, high: float) -> Form:
    return lambda g: g.s * g.advantages * open_at(g.s, g.advantages, low, high)


def reinforce(g: Grid) -> Tensor:
    return g.advantages


def aspo(g: Grid) -> Tensor:
    mirrored = g.advantages * (1 / g.r).clamp(max=3.0) * (g.r <= 1.2)
    return torch.where(g.advantages > 0, mirrored, g.r * g.advantages * (g.r >= 0.8))


def covariance(g: Grid) -> Tensor:
    logprobs, advantages = g.pi.log()[g.mask], g.advantages[g.mask]
    return (g.pi.log() - logprobs.mean()) * (g.advantages - advantages.mean())


def clip_cov(g: Grid) -> Tensor:
    inside = open_at(g.r, g.advantages, 0.2, 0.2) * (covariance(g) > 1) * (covariance(g) < 5) * g.mask > 0
    uniforms = (g.case.rollout.old_logprobs * 1e4).remainder(1)
    silent = inside & (uniforms == uniforms[inside].min())  # int(2e-4 * 420) = 0, but at least one
    return token()(g) * ~silent


def kl_cov(g: Grid) -> Tensor:
    held = (covariance(g) == covariance(g)[g.mask].max()) & g.mask  # int(2e-3 * 420) = 0, but at least one
    return g.r * g.advantages - held * g.l.sign()


def cpgd(g: Grid) -> Tensor:
    return g.advantages * open_at(g.r, g.advantages, 0.2, 0.2) - 0.1 * (g.r - 1).clamp(max=5)


def dppo_tv(g: Grid) -> Tensor:
    out = (g.advantages > 0) & (g.pi - g.mu > 0.15) | (g.advantages < 0) & (g.pi - g.mu < -0.15)
    return g.r * g.advantages * ~out


def dppo_kl(g: Grid) -> Tensor:
    kl = g.mu * (g.mu / g.pi).log() + (1 - g.mu) * ((1 - g.mu) / (1 - g.pi)).log()
    outward = (g.advantages > 0) & (g.pi > g.mu) | (g.advantages < 0) & (g.pi < g.mu)
    return g.r * g.advantages * ~(outward & (kl > 0.05))


def fspo(g: Grid) -> Tensor:
    whole, bound = g.whole.log(), 0.03 * g.n.sqrt()
    out = (g.advantages > 0) & (whole > bound) | (g.advantages < 0) & (whole < -bound)
    return g.whole * g.advantages * ~out


def gmpo(g: Grid) -> Tensor:
    bounded = torch.where(g.advantages > 0, g.l.clamp(max=0.4), g.l.clamp(min=-0.4))
    rho = (bounded.sum(1, keepdim=True) / g.n).exp()
    return rho * g.advantages * (bounded == g.l)


def subsequence(mode: str) -> Form:
    """Three tokens in four parts: one a segment."""

    def form(g: Grid) -> Tensor:
        factors = g.r.clamp(0.8, 1.2)
        if mode == "one_sided":
            factors = torch.where(g.advantages > 0, g.r.clamp(max=1.2), g.r.clamp(min=0.8))
        inside = (factors == g.r) | (mode == "stopgrad")
        return factors.prod(1, keepdim=True) * g.advantages * inside

    return form


def kdrl(g: Grid) -> Tensor:
    assert g.case.rollout.teacher_logprobs is not None
    return g.r * g.advantages + 5e-3 * (g.case.rollout.teacher_logprobs - g.pi.log())


def kimi(g: Grid) -> Tensor:
    return g.advantages - 0.1 * g.whole.log()


def reg_grpo(g: Grid, *, detach: bool = False, mean: bool = False) -> Tensor:
    """(eps / s) (A - P - P (kappa - q)) for each group, with s = sqrt(var + eps^2)."""
    found = torch.zeros_like(g.r)
    ratios, targets = (g.whole.log() / (g.n if mean else 1))[:, 0], g.advantages[:, 0]
    for number in g.case.rollout.group.unique():
        rows = g.case.rollout.group == number
        s = (ratios[rows].var() + 0.01**2).sqrt()
        p, a = (ratios[rows] - ratios[rows].mean()) / s, targets[rows]
        degrees = len(a) - 1
        kappa, q = (a * p).sum() / degrees, (p * p).sum() / degrees
        error = a - p if detach else a - p - p * (kappa - q)
        found[rows] = (0.01 / s * error)[:, None] / (g.n[rows] if mean else 1)
    return found


def sapo(g: Grid) -> Tensor:
    tau = torch.tensor([1.0, 1.05], dtype=torch.float64)[(g.advantages <= 0).long()]
    return g.r * g.advantages / (tau * (g.r - 1) / 2).cosh() ** 2


def topr(g: Grid) -> Tensor:
    return g.advantages * torch.where(g.advantages < 0, g.whole.clamp(max=1), 1.0)


def vespo(g: Grid) -> Tensor:
    positive = g.whole**2 * (3 * (1 - g.whole)).exp()
    negative = g.whole**3 * (2 * (1 - g.whole)).exp()
    return g.advantages * torch.where(g.advantages >= 0, positive, negative)


FORMS: dict[str, Form] = {
    "aspo": aspo,
    "cispo": lambda g: g.r.clamp(0, 5) * g.advantages,
    "clip_cov": clip_cov,
    "cpgd": cpgd,
    "dapo": token(0.2, 0.28),
    "dppo_kl": dppo_kl,
    "dppo_tv": dppo_tv,
    "dr_grpo": token(),
    "fspo": fspo,
    "gmpo": gmpo,
    "grpo": token(),
    "gspo": sequence(3e-4, 4e-4),
    "gspo_subsequence": subsequence("plain"),
    "gspo_token": sequence(3e-4, 4e-4),
    "kdrl": kdrl,
    "kimi": kimi,
    "kl_cov": kl_cov,
    "lite_ppo": token(),
    "luspo": sequence(2e-3, 2.5e-3),
    "opo": reinforce,
    "ppo": token(),
    "reg_grpo": reg_grpo,
    "reinforce": reinforce,
    "reinforce_pp": token(),
    "reinforce_pp_baseline": token(),
    "remax": reinforce,
    "repo": token(),
    "rloo": reinforce,
    "sapo": sapo,
    "topr": topr,
    "tppo": token(),
    "vespo": vespo,
}
VARIANTS: list[tuple[str, dict[str, Any], Form]] = [
    ("gspo", {"clip_low": 0.1, "clip_high": 0.3}, sequence(0.1, 0.3)),
    ("gspo_subsequence", {"clip_mode": "one_sided"}, subsequence("one_sided")),
    ("gspo_subsequence", {"clip_mode": "stopgrad"}, subsequence("stopgrad")),
    ("gspo_token", {"clip_low": 0.1, "clip_high": 0.3}, sequence(0.1, 0.3)),
    ("ppo", {"dual_clip": 3.0}, lambda g: token()(g) * ~((g.advantages < 0) & (g.r > 3))),
    ("reg_grpo", {"detach_stats": True}, lambda g: reg_grpo(g, detach=True)),
    ("reg_grpo", {"reduce": "mean"}, lambda g: reg_grpo(g, mean=True)),
]
# What has a token's own advantage in its formula.
BY_TOKEN = sorted(
    {"aspo", "cispo", "cpgd", "dapo", "dppo_kl", "dppo_tv", "dr_grpo", "grpo", "gspo_token", "kdrl", "lite_ppo", "ppo"}
    | {"kl_cov", "reinforce", "reinforce_pp", "reinforce_pp_baseline", "remax", "repo", "rloo", "sapo", "tppo"}
)
GRID = grid()


def assert_slopes(name: str, settings: dict[str, Any], form: Form, data: Grid) -> None:
    found, expected = data.slopes(objectives.make(name, **settings)), torch.where(data.mask, form(data), 0.0)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_every_objective_has_a_closed_form() -> None:
    assert sorted(FORMS) == objectives.names()


@pytest.mark.parametrize("name", sorted(FORMS))
def test_the_gradient_of_a_token_is_the_closed_form(name: str) -> None:
    """U9, U24, U25, U26 at the defaults; penalties are part of it."""
    assert_slopes(name, {}, FORMS[name], GRID)


@pytest.mark.parametrize(("name", "settings", "form"), VARIANTS, ids=[f"{n}-{s}" for n, s, _ in VARIANTS])
def test_the_gradient_of_a_variant_is_its_closed_form(name: str, settings: dict[str, Any], form: Form) -> None:
    assert_slopes(name, settings, form, GRID)


@pytest.mark.parametrize("name", BY_TOKEN)
def test_a_token_may_have_an_advantage_of_its_own(name: str) -> None:
    """U4: so GSPO-token is decided by the response's ratio and the token's sign."""
    assert_slopes(name, {}, FORMS[name], grid((1.0, -0.5, 2.0)))
