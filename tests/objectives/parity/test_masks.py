"""Trust regions that drop tokens: what is dropped, against TRL's off-policy mask and verl's rejection masks."""

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import objectives
from objectives import Batch
from objectives.reference_engine import Case
from tests.objectives.parity.cases import CASES, WIDTH, Tokens, assert_close, ours, tokens_of

ALL_CASES = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def keep(region: str, tokens: Tokens, **settings: Any) -> Tensor:
    batch = Batch(
        logprobs=tokens.logprobs,
        old_logprobs=tokens.old_logprobs,
        advantages=tokens.advantages,
        loss_mask=tokens.mask,
        response_ids=torch.zeros_like(tokens.mask, dtype=torch.long),
    )
    return objectives.trust_region.make(region, **settings).keep(batch) & tokens.mask


@ALL_CASES
@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_mask_sequence_is_the_off_policy_mask_of_trl(trl: ModuleType, case: Case, delta: float) -> None:
    """A < 0 and mean log(pi_old / pi_theta) > delta: no policy loss, and the denominators stay."""
    found = ours(objectives.make("grpo", clip_low=1.0, clip_high=1e9), case)
    tokens = tokens_of(case, found)
    kept = keep("mask_sequence", tokens, delta=delta)
    dropped = (~kept & tokens.mask).any(1)
    assert 0 < int(dropped.sum()) < int((tokens.row_advantages < 0).sum())
    expected = trl.loss(tokens, loss_type="grpo", epsilon=1.0, epsilon_high=1e9, off_policy_mask_threshold=delta)
    assert_close(found.gradients["logprobs"] * kept, expected.gradient)


@ALL_CASES
@pytest.mark.parametrize(
    ("region", "settings", "option"),
    [
        ("mask_sequence", {"statistic": "mean_k3", "only_negative": False}, "seq_mean_k3"),
        ("mask_sequence", {"statistic": "max_k3", "only_negative": False}, "seq_max_k3"),
        ("mask_segment", {"segment_tokens": 1}, "token_k3"),
        ("mask_segment", {"segment_tokens": WIDTH}, "seq_sum_k3"),
    ],
    ids=["seq_mean_k3", "seq_max_k3", "token_k3", "seq_sum_k3"],
)
def test_masks_by_k3_drop_what_verl_rejects(
    verl: ModuleType, case: Case, region: str, settings: dict[str, Any], option: str
) -> None:
    """The same tokens; verl takes them out of the loss mask, and so out of the denominators, we leave those alone."""
    tokens = tokens_of(case, ours(objectives.make("grpo"), case))
    seen = set[int]()
    for delta in (0.03, 0.1, 0.3, 1.0):
        kept = keep(region, tokens, delta=delta, **settings)
        assert torch.equal(kept, verl.rejection_mask(tokens, option, delta))
        seen.add(int(kept.sum()))
    assert len(seen) == 4
