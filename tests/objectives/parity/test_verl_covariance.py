"""Clip-Cov and KL-Cov against verl: the same tokens chosen, then loss and gradient to 1e-7."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import objectives
from objectives import Batch, Step
from objectives.reference_engine import Case
from tests.objectives.parity.cases import (
    CASES,
    GROUP_SIZE,
    LIMIT,
    RTOL,
    Result,
    Tokens,
    assert_close,
    assert_other_gradient,
    assert_same,
    ours,
    tokens_of,
)

TOKEN_MEAN = "token-mean"
CLIP = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2}
BOUNDS = {"cov_low": 0.05, "cov_high": 2.0}


def clip_cov(fraction: float) -> Any:
    return objectives.make("clip_cov", fraction=fraction, **BOUNDS)


def verl_clip_cov(verl: ModuleType, tokens: Tokens, fraction: float) -> Result:
    settings = {"clip_cov_ratio": fraction, "clip_cov_lb": 0.05, "clip_cov_ub": 2.0}
    return verl.policy_loss("clip_cov", tokens, TOKEN_MEAN, **CLIP, loss_settings=settings)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_clip_cov_has_the_candidates_of_verl(verl: ModuleType, case: Case) -> None:
    """fraction 1 silences every candidate, so that no draw matters."""
    found = ours(clip_cov(1.0), case)
    assert_same(found, verl_clip_cov(verl, tokens_of(case, found), 1.0))
    untouched = ours(clip_cov(0.0), case)
    assert int((found.stats["clipped"] & ~untouched.stats["clipped"]).sum()) > 10


def step_of(case: Case, tokens: Tokens, uniforms: Tensor) -> Step:
    return Step(
        loss_mask=tokens.mask,
        group=case.rollout.group,
        origin=case.rollout.origin,
        max_response_tokens=LIMIT,
        advantages=tokens.advantages,
        old_logprobs=tokens.old_logprobs,
        logprobs=tokens.logprobs,
        uniforms=uniforms,
    )


@pytest.mark.parametrize("wanted", [1, 4, 9])
def test_clip_cov_silences_the_tokens_of_verls_draw(verl: ModuleType, wanted: int) -> None:
    """verl draws by torch.randperm over its candidates; our uniforms are set to that order."""
    case = CASES["plain"]
    tokens = tokens_of(case, ours(clip_cov(1.0), case))
    step = step_of(case, tokens, torch.zeros_like(tokens.logprobs))
    candidates = clip_cov(1.0).prepare(step)["silent"].nonzero()
    assert len(candidates) > 2 * wanted
    torch.manual_seed(wanted)
    order = candidates[torch.randperm(len(candidates))]
    uniforms = torch.full_like(tokens.logprobs, 0.999)
    uniforms[tuple(order.T)] = torch.arange(len(order)).double() / len(order)
    objective = clip_cov((wanted + 0.5) / int(tokens.mask.sum()))
    silent = objective.prepare(replace(step, uniforms=uniforms))["silent"]
    assert sorted(silent.nonzero().tolist()) == sorted(order[:wanted].tolist())
    logprobs = tokens.logprobs.clone().requires_grad_()
    batch = Batch(
        logprobs=logprobs,
        old_logprobs=tokens.old_logprobs,
        advantages=tokens.advantages,
        loss_mask=tokens.mask,
        response_ids=case.rollout.response_ids,
        extras={"silent": silent},
    )
    loss = (objective.token_loss(batch).policy * objective.aggregation(step)).sum()
    (gradient,) = torch.autograd.grad(loss, logprobs)
    torch.manual_seed(wanted)
    expected = verl_clip_cov(verl, tokens, objective.fraction)
    assert float(loss.detach()) == pytest.approx(float(expected.loss), rel=RTOL, abs=0)
    assert_close(gradient, expected.gradient)


def verl_kl_cov(verl: ModuleType, tokens: Tokens, batch: dict[str, Any] | None = None) -> Result:
    settings = {"kl_cov_ratio": 0.1, "ppo_kl_coef": 0.5}
    return verl.policy_loss("kl_cov", tokens, TOKEN_MEAN, batch=batch, loss_settings=settings)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_kl_cov_holds_the_tokens_that_verl_holds(verl: ModuleType, case: Case) -> None:
    found = ours(objectives.make("kl_cov", fraction=0.1, kl_coef=0.5), case)
    assert_same(found, verl_kl_cov(verl, tokens_of(case, found)))
    assert_other_gradient(ours(objectives.make("kl_cov", kl_coef=0.0), case), verl_kl_cov(verl, tokens_of(case, found)))


def test_kl_cov_takes_the_step_where_verl_takes_the_micro_batch(verl: ModuleType) -> None:
    """Told of the whole step, verl still centres and chooses within each micro-batch: other tokens are held."""
    case = CASES["plain"]
    found = ours(objectives.make("kl_cov", fraction=0.1, kl_coef=0.5), case)
    tokens = tokens_of(case, found)
    whole = {"batch_num_tokens": int(tokens.mask.sum())}
    parts = [verl_kl_cov(verl, tokens.rows(at, at + GROUP_SIZE), whole) for at in range(0, 24, GROUP_SIZE)]
    total = Result(torch.stack([part.loss for part in parts]).sum(), torch.cat([part.gradient for part in parts]))
    assert_other_gradient(found, total)
    share = 1 / int(tokens.mask.sum())
    apart = (found.gradients["logprobs"] - total.gradient).abs()
    assert apart[apart > 1e-9].tolist() == pytest.approx([0.5 * share] * int((apart > 1e-9).sum()), rel=1e-6)
