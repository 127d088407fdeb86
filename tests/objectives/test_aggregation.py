"""Weights of tokens, by hand: rows of 2, 0 and 1 tokens."""

import dataclasses
from collections.abc import Callable

import pytest
import torch

from objectives.aggregation import constant, prompt_mean, sequence_mean, token_mean
from objectives.base import Step

Rule = Callable[[Step], torch.Tensor]
MASK = torch.tensor([[True, False, True], [False, False, False], [True, False, False]])


def step_of(mask: torch.Tensor) -> Step:
    rows = len(mask)
    return Step(
        loss_mask=mask,
        group=torch.zeros(rows, dtype=torch.int64),
        origin=torch.zeros(rows, dtype=torch.int8),
        max_response_tokens=10,
        old_logprobs=torch.zeros(mask.shape, dtype=torch.float64),
    )


@pytest.mark.parametrize(
    ("rule", "first", "third"),
    [
        (sequence_mean, 1 / 2 / 2, 1 / 2),  # two rows with tokens; 2 and 1 tokens
        (token_mean, 1 / 3, 1 / 3),  # three tokens
        (constant, 1 / (2 * 10), 1 / (2 * 10)),  # two rows, limit 10
        (prompt_mean, 1 / 3, 1 / 3),  # one prompt with three tokens
    ],
    ids=["sequence_mean", "token_mean", "constant", "prompt_mean"],
)
def test_weights_by_hand(rule: Rule, first: float, third: float) -> None:
    expected = torch.tensor([[first, 0, first], [0, 0, 0], [third, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(rule(step_of(MASK)), expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("rule", [sequence_mean, token_mean, constant, prompt_mean])
def test_weights_do_not_know_the_padded_width(rule: Rule) -> None:
    wide = torch.nn.functional.pad(MASK, (0, 50))
    torch.testing.assert_close(rule(step_of(wide))[:, :3], rule(step_of(MASK)), rtol=0, atol=0)


@pytest.mark.parametrize("rule", [sequence_mean, token_mean, constant, prompt_mean])
def test_an_empty_row_leaves_the_count(rule: Rule) -> None:
    torch.testing.assert_close(rule(step_of(MASK))[[0, 2]], rule(step_of(MASK[[0, 2]])), rtol=0, atol=0)


@pytest.mark.parametrize("rule", [sequence_mean, token_mean, prompt_mean])
def test_weights_of_a_mean_sum_to_one(rule: Rule) -> None:
    assert float(rule(step_of(MASK)).sum()) == pytest.approx(1, rel=1e-15)


def test_the_mean_over_prompts_by_hand() -> None:
    """Known fault 8: rows of 2 and 1 tokens to prompt 2, none to prompt 0, 2 tokens to prompt 3; 1 is not there."""
    mask = torch.tensor([[True, True], [True, False], [False, False], [True, True]])
    step = dataclasses.replace(step_of(mask), group=torch.tensor([2, 2, 0, 3]))
    third, half = 1 / (2 * 3), 1 / (2 * 2)
    expected = torch.tensor([[third, third], [third, 0], [0, 0], [half, half]], dtype=torch.float64)
    torch.testing.assert_close(prompt_mean(step), expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("rule", [sequence_mean, token_mean, constant, prompt_mean])
def test_an_empty_step_has_zero_weights(rule: Rule) -> None:
    assert rule(step_of(torch.zeros_like(MASK))).tolist() == torch.zeros(3, 3).tolist()


def test_weights_take_the_precision_of_the_logprobs() -> None:
    assert sequence_mean(step_of(MASK)).dtype == torch.float64
    assert sequence_mean(dataclasses.replace(step_of(MASK), old_logprobs=None)).dtype == torch.float32
