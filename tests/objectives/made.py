"""Rollouts, steps and batches made by hand, a few tokens each."""

import math
from typing import Any

import torch
from torch import Tensor

import objectives
from objectives import Batch, Rollout, Step, select_rows
from objectives.reference_engine import Case


def doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def without(case: Case, *left_out: int) -> Case:
    """Return ``case`` without some of its rows."""
    kept = torch.tensor([i for i in range(len(case.rollout.rewards)) if i not in left_out])
    return Case(select_rows(case.rollout, kept), {name: value[kept] for name, value in case.current.items()})


def rollout_of(
    rewards: list[float], lengths: list[int], *, group: list[int] | None = None, width: int = 4, **given: Any
) -> Rollout:
    """Responses of the first ``lengths`` tokens of ``width``; one group if not told otherwise."""
    count = len(rewards)
    return Rollout(
        rewards=doubles(*rewards),
        group=torch.tensor([0] * count if group is None else group),
        origin=torch.zeros(count, dtype=torch.int8),
        finish=given.pop("finish", torch.zeros(count, dtype=torch.int8)),
        response_ids=torch.zeros(count, width, dtype=torch.int64),
        response_mask=given.pop("response_mask", torch.arange(width) < torch.tensor(lengths)[:, None]),
        old_logprobs=torch.full((count, width), -1.0, dtype=torch.float64),
        **given,
    )


def first(name: str, data: Rollout, **settings: Any) -> Tensor:
    """The advantage of each row's first token."""
    return objectives.make(name, **settings).targets(data).advantages[:, 0]


def step_of(logprobs: Tensor, advantages: Tensor, mask: Tensor | None = None, **given: Any) -> Step:
    """A step of one group, all tokens in the loss and pi_theta = pi_old if not told otherwise."""
    rows, width = logprobs.shape
    return Step(
        loss_mask=torch.ones(rows, width, dtype=torch.bool) if mask is None else mask,
        group=torch.zeros(rows, dtype=torch.int64),
        origin=torch.zeros(rows, dtype=torch.int8),
        max_response_tokens=width,
        advantages=advantages,
        logprobs=logprobs,
        **{"old_logprobs": logprobs, **given},
    )


def batch_of(ratios: Tensor, advantages: Tensor, probability: float = 0.1) -> Batch:
    """Rows of ``ratios`` [B, T] whose old probability is ``probability`` at every token."""
    old = torch.full_like(ratios, math.log(probability))
    return Batch(
        logprobs=(old + ratios.log()).requires_grad_(),
        old_logprobs=old,
        advantages=advantages,
        loss_mask=torch.ones_like(ratios, dtype=torch.bool),
        response_ids=torch.zeros_like(ratios, dtype=torch.int64),
    )
