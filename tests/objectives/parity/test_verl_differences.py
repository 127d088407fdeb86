"""Where verl differs from the paper or from us: both behaviours, so that a change on either side is seen."""

from types import ModuleType
from typing import Any

import pytest
import torch

import objectives
from objectives import Objective
from tests.objectives.parity.cases import (
    CASES,
    GROUP_SIZE,
    PROMPTS,
    RTOL,
    assert_close,
    assert_other_gradient,
    assert_same,
    assert_same_gradient,
    ours,
    tokens_of,
    with_log_ratio,
    without_row,
)

CASE = CASES["plain"]
ROWS = PROMPTS * GROUP_SIZE


def make(name: str, **settings: Any) -> Objective:
    return objectives.make(name, **settings)


def clip(low: float, high: float, dual: float = 1e9) -> dict[str, Any]:
    return {"clip_ratio_low": low, "clip_ratio_high": high, "clip_ratio_c": dual}


def test_gspo_of_verl_0_9_1_honours_the_aggregation_whose_default_weighs_by_length(verl: ModuleType) -> None:
    """seq-mean-token-mean is the paper's and ours; the config's token-mean counts a response as often as its tokens."""
    found = ours(make("gspo"), CASE)
    tokens = tokens_of(CASE, found)
    assert verl.config().loss_agg_mode == "token-mean"
    weighted = verl.policy_loss("gspo", tokens, "token-mean", **clip(3e-4, 4e-4))
    lengths = tokens.mask.sum(1, keepdim=True)
    expected = found.gradients["logprobs"] * lengths * ROWS / lengths.sum()
    assert_close(weighted.gradient, expected)
    assert_other_gradient(found, weighted)


def test_sapo_and_geo_mean_of_verl_ignore_the_aggregation(verl: ModuleType) -> None:
    for name, loss in (("sapo", "sapo"), ("gmpo", "geo_mean")):
        tokens = tokens_of(CASE, ours(make(name), CASE))
        results = [verl.policy_loss(loss, tokens, mode) for mode in ("token-mean", "seq-mean-token-mean")]
        assert torch.equal(results[0].gradient, results[1].gradient)


def test_geo_mean_of_verl_counts_a_row_without_tokens(verl: ModuleType) -> None:
    """A plain mean over rows: 24 of them; ours over the 23 with tokens."""
    case = without_row(CASE, 5)
    found = ours(make("gmpo"), case)
    assert_same(found, verl.policy_loss("geo_mean", tokens_of(case, found), "token-mean", **clip(0.4, 0.4)), 23 / 24)


def test_a_micro_batch_that_knows_nothing_of_the_step_takes_its_own_token_mean(verl: ModuleType) -> None:
    """verl without batch_num_tokens: each micro-batch's own mean. Told of it, the parts add up to our step."""
    found = ours(make("lite_ppo"), CASE)
    tokens = tokens_of(CASE, found)
    parts = [tokens.rows(at, at + GROUP_SIZE) for at in range(0, ROWS, GROUP_SIZE)]
    counts = tokens.mask.reshape(PROMPTS, -1).sum(1)
    local = (counts.sum() / counts).repeat_interleave(GROUP_SIZE)[:, None]
    for batch, share in ({}, local), ({"batch_num_tokens": int(counts.sum())}, 1):
        results = [verl.policy_loss("vanilla", part, "token-mean", batch=batch, **clip(0.2, 0.2)) for part in parts]
        together = torch.cat([result.gradient for result in results])
        assert_close(together, found.gradients["logprobs"] * share)


def test_gspo_of_verl_stops_at_a_mean_log_ratio_of_10_and_ours_at_20(verl: ModuleType) -> None:
    """Mean log-ratio 12, A < 0: verl's loss is |A| e^10 and gives no gradient, ours |A| e^12 and pulls back."""
    far = torch.zeros_like(CASE.rollout.response_mask)
    row = int((ours(make("gspo"), CASE).targets.advantages < 0).any(1).nonzero()[0])
    far[row] = True
    case = with_log_ratio(CASE, far, 12.0)
    found = ours(make("gspo"), case)
    theirs = verl.policy_loss("gspo", tokens_of(case, found), "seq-mean-token-mean", **clip(3e-4, 4e-4))
    assert float(found.loss / theirs.loss) == pytest.approx(torch.tensor(2.0).exp().item(), rel=1e-3)
    assert not bool(theirs.gradient[row].any())
    assert float(found.gradients["logprobs"][row].sum()) > 1e3


@pytest.mark.parametrize("name", ["dppo_tv", "dppo_kl"])
def test_clip_ratio_c_caps_the_weight_in_dppo_and_is_the_dual_clip_in_vanilla(verl: ModuleType, name: str) -> None:
    """One setting, default 3, two meanings: min(r, c) A for either sign, with its gradient kept, or no gradient
    where A < 0. Our DPPO has no cap; the paper asks for a large one."""
    case = CASES["wide"]
    found = ours(make(name), case)
    tokens = tokens_of(case, found)
    bound = 0.15 if name == "dppo_tv" else 0.05
    assert_same_gradient(found, verl.policy_loss(name, tokens, "token-mean", **clip(bound, bound)))
    capped = verl.policy_loss(name, tokens, "token-mean", **clip(bound, bound, 1.2)).gradient
    ratio = (tokens.logprobs - tokens.old_logprobs).exp()
    over = (ratio > 1.2) & (found.gradients["logprobs"] != 0)
    assert int((over & (tokens.advantages < 0)).sum()) > 5
    assert int((over & (tokens.advantages > 0)).sum()) > 2
    expected = torch.where(over, found.gradients["logprobs"] * 1.2 / ratio, found.gradients["logprobs"])
    assert_close(capped, expected)
    dual = verl.policy_loss("vanilla", tokens, "token-mean", **clip(0.2, 0.2, 1.2)).gradient
    assert not bool(dual[over & (tokens.advantages < 0)].any())


def test_far_ratios_stop_at_20_nats_in_both(verl: ModuleType) -> None:
    """A < 0 and log r = 21: value e^20 and no gradient, in verl as here (TRL goes on)."""
    case = CASES["plain"]
    far = torch.zeros_like(case.rollout.response_mask)
    far[tuple((ours(objectives.make("grpo"), case).targets.advantages < 0).nonzero()[0].tolist())] = True
    found = ours(objectives.make("lite_ppo"), with_log_ratio(case, far, 21.0))
    tokens = tokens_of(with_log_ratio(case, far, 21.0), found)
    theirs = verl.policy_loss("vanilla", tokens, "token-mean", clip_ratio_c=1e10)
    assert float(found.loss) == pytest.approx(float(theirs.loss), rel=RTOL)
    assert float(found.loss) > 1e5
    assert_close(found.gradients["logprobs"], theirs.gradient)
    assert float(theirs.gradient[far]) == 0
