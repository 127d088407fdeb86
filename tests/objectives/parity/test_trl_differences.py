"""Where TRL differs from the paper or from us: both behaviours, so that a change on either side is seen."""

from types import ModuleType
from typing import Any

import pytest
import torch

import objectives
from objectives import Objective
from objectives.kl import k3
from tests.objectives.parity.cases import (
    CASES,
    GROUP_SIZE,
    LIMIT,
    PROMPTS,
    Tokens,
    assert_close,
    assert_other_gradient,
    assert_same,
    make_case,
    ours,
    tokens_of,
    with_log_ratio,
    without_row,
)

CASE = CASES["plain"]
ROWS = PROMPTS * GROUP_SIZE
SEQUENCE = {"loss_type": "grpo", "importance_sampling_level": "sequence"}


def make(name: str, **settings: Any) -> Objective:
    return objectives.make(name, **settings)


@pytest.mark.parametrize(
    ("objective", "settings", "factor"),
    [
        (make("grpo"), {"loss_type": "grpo"}, 1),
        (make("gspo"), {**SEQUENCE, "epsilon": 3e-4, "epsilon_high": 4e-4}, 1),
        (make("sapo", tau_negative=2.0), {"loss_type": "sapo", "sapo_temperature_neg": 2.0}, 1),
        (make("dr_grpo"), {"loss_type": "dr_grpo", "max_completion_length": LIMIT}, 1),
        (make("luspo"), {**SEQUENCE, "loss_type": "luspo", "epsilon": 2e-3, "epsilon_high": 2.5e-3}, LIMIT),
        (make("gmpo"), {"trainer": "gmpo"}, 1),
        (make("gspo_subsequence", preset="rloo"), {"trainer": "rloo"}, LIMIT),
    ],
    ids=["grpo", "gspo", "sapo", "dr_grpo", "luspo", "gmpo", "rloo"],
)
def test_a_row_without_tokens_counts_in_trls_means_and_not_in_ours(
    trl: ModuleType, objective: Objective, settings: dict[str, Any], factor: float
) -> None:
    """1 empty row of 24: TRL divides by 24 (a plain mean over rows), we by 23."""
    case = without_row(CASE, 5)
    found = ours(objective, case)
    assert_same(found, trl.loss(tokens_of(case, found), **settings), factor * 23 / 24)


def test_a_row_without_tokens_changes_no_token_mean(trl: ModuleType) -> None:
    case = without_row(CASE, 5)
    found = ours(make("lite_ppo"), case)
    assert_same(found, trl.loss(tokens_of(case, found), loss_type="dapo"))


def test_dapo_of_trl_is_a_mean_over_tokens_and_not_the_papers_over_prompts(trl: ModuleType) -> None:
    """Equal where every prompt's group has as many tokens; otherwise only our ``weights = "token_mean"`` is TRL's."""
    settings = {"loss_type": "dapo", "epsilon_high": 0.28}
    equal = make_case(one_length=9)
    found = ours(make("dapo"), equal)
    assert_same(found, trl.loss(tokens_of(equal, found), **settings))
    uneven = ours(make("dapo"), CASE)
    expected = trl.loss(tokens_of(CASE, uneven), **settings)
    assert_other_gradient(uneven, expected)
    weights = uneven.weights / ours(make("dapo", weights="token_mean"), CASE).weights
    assert_close(uneven.gradients["logprobs"], expected.gradient * weights.nan_to_num(), atol=0)


def in_micro_batches(trl: ModuleType, tokens: Tokens, **settings: Any) -> torch.Tensor:
    """The gradient of a step of 3 micro-batches, a prompt each, of unequal numbers of tokens."""
    parts = [tokens.rows(start, start + GROUP_SIZE) for start in range(0, ROWS, GROUP_SIZE)]
    num_items = int(tokens.mask.sum())
    return torch.cat([trl.loss(part, accumulation=PROMPTS, num_items=num_items, **settings).gradient for part in parts])


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        (make("grpo"), {"loss_type": "grpo"}),
        (make("lite_ppo"), {"loss_type": "dapo"}),
        (make("cispo", clip_high=0.3), {"loss_type": "cispo", "epsilon_high": 1.3}),
        (make("vespo"), {"loss_type": "vespo"}),
        (make("dr_grpo"), {"loss_type": "dr_grpo", "max_completion_length": LIMIT}),
        (make("gmpo"), {"trainer": "gmpo"}),
    ],
    ids=["grpo", "dapo", "cispo", "vespo", "dr_grpo", "gmpo"],
)
def test_micro_batches_add_up_to_the_step(trl: ModuleType, objective: Objective, settings: dict[str, Any]) -> None:
    """As of TRL 1.16; earlier releases divided dapo, cispo and vespo by the wrong number of tokens (trl#5619)."""
    found = ours(objective, CASE)
    assert_close(in_micro_batches(trl, tokens_of(CASE, found), **settings), found.gradients["logprobs"])


def test_bnpo_is_a_token_mean_of_each_micro_batch(trl: ModuleType) -> None:
    """In one piece it is dapo; in three, each counts a third whatever its tokens. Ours is always the step's."""
    found = ours(make("lite_ppo"), CASE)
    tokens = tokens_of(CASE, found)
    assert_same(found, trl.loss(tokens, loss_type="bnpo"))
    counts = tokens.mask.reshape(PROMPTS, -1).sum(1)
    share = (counts.sum() / (PROMPTS * counts)).repeat_interleave(GROUP_SIZE)[:, None]
    assert_close(in_micro_batches(trl, tokens, loss_type="bnpo"), found.gradients["logprobs"] * share)
    assert float((share - 1).abs().max()) > 0.03


def test_gspo_under_a_token_mean_weighs_responses_by_length(trl: ModuleType) -> None:
    """TRL allows sequence ratios with loss_type dapo: then a response counts as often as it has tokens."""
    found = ours(make("gspo"), CASE)
    tokens = tokens_of(CASE, found)
    weighted = trl.loss(tokens, **SEQUENCE | {"loss_type": "dapo", "epsilon": 3e-4, "epsilon_high": 4e-4})
    lengths = tokens.mask.sum(1, keepdim=True)
    assert_close(weighted.gradient, found.gradients["logprobs"] * lengths * ROWS / lengths.sum())
    assert_other_gradient(found, weighted)


def test_luspo_at_trls_default_level_clips_tokens_and_not_responses(trl: ModuleType) -> None:
    """importance_sampling_level "token" is TRL's default: the sum over a response of GRPO's losses."""
    objective = make("luspo", clip_low=0.2, clip_high=0.2)
    found = ours(objective, CASE)
    tokens = tokens_of(CASE, found)
    literal = trl.loss(tokens, loss_type="luspo")
    assert_other_gradient(found, literal)
    assert_same(ours(make("dr_grpo"), CASE, tokens.advantages), literal, LIMIT)


def test_the_reference_penalty_at_the_sequence_level_is_another(trl: ModuleType) -> None:
    """TRL then multiplies k3 by the response's length-normalised ratio; ours is the token's beside every objective."""
    tokens = tokens_of(CASE, ours(make("gspo"), CASE))
    theirs = trl.loss(tokens, beta=1.0, **SEQUENCE).gradient - trl.loss(tokens, **SEQUENCE).gradient

    def penalty(level: str) -> torch.Tensor:
        logprobs = tokens.logprobs.clone().requires_grad_()
        lengths = tokens.mask.sum(1, keepdim=True)
        ratio = torch.where(tokens.mask, logprobs - tokens.old_logprobs, 0)
        if level == "sequence":
            ratio = ratio.sum(1, keepdim=True) / lengths
        estimate = k3(tokens.ref_logprobs, logprobs, tokens.mask)
        return torch.autograd.grad((ratio.exp() * estimate / (lengths * ROWS)).sum(), logprobs)[0]

    assert_close(theirs, penalty("sequence"), atol=1e-12)
    assert not torch.allclose(theirs, penalty("token"), rtol=1e-2)


def test_a_token_further_than_20_nats_keeps_its_gradient_in_trl_and_not_in_ours(trl: ModuleType) -> None:
    """A < 0 and log r = 21: TRL's loss is |A| e^21 and pulls back; ours is bounded at e^20, where the slope is 0."""
    negative = ours(make("grpo"), CASE).targets.advantages < 0
    far = torch.zeros_like(negative)
    far[tuple(negative.nonzero()[0].tolist())] = True
    case = with_log_ratio(CASE, far, 21.0)
    found = ours(make("lite_ppo"), case)
    theirs = trl.loss(tokens_of(case, found), loss_type="dapo")
    assert float(theirs.loss / found.loss) == pytest.approx(torch.tensor(1.0).exp().item(), rel=1e-6)
    assert float(found.gradients["logprobs"][far]) == 0
    assert float(theirs.gradient[far]) > 1e5


def test_a_delta_below_the_clip_bounds_positive_advantages_and_not_negative_ones(trl: ModuleType) -> None:
    """delta 1.1 < 1 + epsilon: TRL clips A > 0 at 1.1 and A < 0 at 1.2; ours A < 0 at 1.1 and A > 0 at 1.2."""
    found = ours(make("gspo_subsequence", preset="grpo", dual_clip=1.1), CASE)
    tokens = tokens_of(CASE, found)
    theirs = trl.loss(tokens, loss_type="grpo", delta=1.1)
    assert_same(ours(make("gspo_subsequence", preset="grpo", clip_high=0.1, dual_clip=1.2), CASE), theirs)
    ratio = (tokens.logprobs - tokens.old_logprobs).exp()
    between = (ratio > 1.1) & (ratio < 1.2) & tokens.mask
    for sign in (1, -1):
        at = between & (tokens.advantages * sign > 0)
        assert int(at.sum()) > 3
        assert bool((theirs.gradient[at] != 0).any()) == (sign < 0)
        assert bool((found.gradients["logprobs"][at] != 0).any()) == (sign > 0)
