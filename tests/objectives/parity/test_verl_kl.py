"""KL estimates, and the penalties and distillation made of them, against verl."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

import objectives
from objectives.kl import k1, k2, k3
from objectives.reference_engine import Case, divergence
from tests.objectives.parity.cases import CASES, RTOL, assert_close, ours, tokens_of

ALL_CASES = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def with_gradient(estimate: Callable[[Tensor], Tensor], logprobs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    leaf = logprobs.clone().requires_grad_()
    value = torch.where(mask, estimate(leaf), 0.0)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


@ALL_CASES
@pytest.mark.parametrize(
    ("kinds", "estimator"), [(("kl", "k1"), k1), (("mse", "k2"), k2), (("low_var_kl", "k3"), k3)], ids=["1", "2", "3"]
)
def test_kl_estimates_have_the_values_and_gradients_of_verl(
    verl: ModuleType, case: Case, kinds: tuple[str, str], estimator: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> None:
    """KL(pi_theta || pi_ref): verl's (log pi_theta, log pi_ref) are our (p = pi_ref, q = pi_theta)."""
    tokens = tokens_of(case, ours(objectives.make("grpo"), case))
    found = with_gradient(lambda x: estimator(tokens.ref_logprobs, x, tokens.mask), tokens.logprobs, tokens.mask)
    for kind in kinds:
        expected = with_gradient(
            lambda x, kind=kind: verl.kl_penalty(x, tokens.ref_logprobs, kind), tokens.logprobs, tokens.mask
        )
        assert_close(found[0], expected[0], atol=1e-15)
        assert_close(found[1], expected[1], atol=1e-15)


@ALL_CASES
def test_the_fixed_penalty_is_verls_k3_from_the_old_policy(verl: ModuleType, case: Case) -> None:
    """KL(pi_old || pi_theta) by r - 1 - log r: verl's k3 with the old policy in the first place."""
    value, gradient, _ = divergence(objectives.trust_region.make("fixed_penalty"), case)
    mask, old = case.rollout.response_mask, case.rollout.old_logprobs
    expected = with_gradient(lambda x: verl.kl_penalty(old, x, "k3"), case.current["logprobs"], mask)
    assert_close(value, expected[0], atol=1e-15)
    assert_close(gradient, expected[1], atol=1e-15)


@pytest.mark.parametrize("kind", ["k1+", "k3+", "low_var_kl+"])
def test_a_plus_gives_verls_estimate_the_gradient_of_k2(verl: ModuleType, kind: str) -> None:
    """Straight through: the value is k1's or k3's."""
    case = CASES["plain"]
    tokens = tokens_of(case, ours(objectives.make("grpo"), case))
    mask, ref = tokens.mask, tokens.ref_logprobs
    value, gradient = with_gradient(lambda x: verl.kl_penalty(x, ref, kind), tokens.logprobs, mask)
    estimator = k1 if kind == "k1+" else k3
    assert_close(value, estimator(ref, tokens.logprobs, mask), atol=1e-15)
    expected = with_gradient(lambda x: k2(ref, x, mask), tokens.logprobs, mask)[1]
    assert_close(gradient, expected, atol=1e-15)


def test_k3_is_cut_off_at_10_in_verl_and_not_here(verl: ModuleType) -> None:
    """log(pi_ref / pi_theta) = 3: e^3 - 4 = 16.1 with gradient 1 - e^3 in ours, 10 without gradient in verl."""
    logprobs, mask = torch.tensor([[-4.0, -2.0]], dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool)
    ref = torch.tensor([[-1.0, -1.0]], dtype=torch.float64)
    value, gradient = with_gradient(lambda x: k3(ref, x, mask), logprobs, mask)
    theirs, slope = with_gradient(lambda x: verl.kl_penalty(x, ref, "k3"), logprobs, mask)
    e = torch.tensor(1.0, dtype=torch.float64).exp()
    assert value[0].tolist() == pytest.approx([float(e**3 - 4), float(e - 2)])
    assert gradient[0].tolist() == pytest.approx([float(1 - e**3), float(1 - e)])
    assert theirs[0].tolist() == pytest.approx([10, float(e - 2)])
    assert slope[0].tolist() == pytest.approx([0, float(1 - e)])


def test_the_reference_penalty_is_not_verls_kl_loss(verl: ModuleType) -> None:
    """verl's low_var_kl is bare k3, with the gradient of the reversed divergence; ours is ratio * k3."""
    case = CASES["plain"]
    _, gradient, _ = divergence(objectives.trust_region.make("reference_penalty"), case)
    ref, mask = case.rollout.ref_logprobs, case.rollout.response_mask
    bare = with_gradient(lambda x: verl.kl_penalty(x, ref, "low_var_kl"), case.current["logprobs"], mask)[1]
    assert float(torch.cosine_similarity(gradient.flatten(), bare.flatten(), 0)) < 0.99


@ALL_CASES
def test_kdrl_is_verls_unclipped_loss_with_k2_to_the_teacher(verl: ModuleType, case: Case) -> None:
    found = ours(objectives.make("kdrl", beta_start=0.5, beta_end=0.25), case)
    teacher = case.rollout.teacher_logprobs
    free = {"clip_ratio_low": 1.0, "clip_ratio_high": 1e9, "clip_ratio_c": 1e9}
    policy = verl.policy_loss("vanilla", tokens_of(case, found), "token-mean", **free)
    logprobs, mask = case.current["logprobs"], found.targets.loss_mask
    value, gradient = with_gradient(lambda x: verl.kl_penalty(x, teacher, "k2"), logprobs, mask)
    share = 0.5 / int(mask.sum())
    assert float(found.loss) == pytest.approx(float(policy.loss + share * value.sum()), rel=RTOL)
    assert_close(found.gradients["logprobs"], policy.gradient + share * gradient)
