"""The shape of an objective's surrogate: loss and gradient weight of one response against the ratio of its tokens."""

import itertools
import math
from typing import Any

import torch

from harness.engine.run import Run
from objectives import Batch, Finish, Origin, Rollout, Step
from objectives.trust_region.measured import EXACT_FIELDS

__all__ = ["surrogate_shape"]

# Every token of the response has the same ratio; eight tokens cut into several segments and stay readable.
RESPONSE_TOKENS = 8
RATIOS = tuple(round(0.5 + 0.01 * i, 2) for i in range(101))


def surrogate_shape(run: Run) -> dict[str, list[float]]:
    """Return {"ratio", "advantage", "loss", "weight"}, one entry a ratio and advantage.

    "weight" is c_t of a response of ``RESPONSE_TOKENS`` tokens, all of one ratio: minus the derivative of its loss
    (the policy term and the objective's own penalty) with respect to one token's log-probability, scaled so that
    REINFORCE's would be the advantage. "loss" is minus the function that has this derivative and is the advantage
    at ratio 1 (trapezoids over the log-ratio): what an optimizer descends that sees these weights. Where the loss's
    own value has that derivative the two agree but for scale; the value of a loss with a detached weight means
    nothing.
    """
    columns: dict[str, list[float]] = {"ratio": [], "advantage": [], "loss": [], "weight": []}
    for advantage in (1.0, -1.0):
        weights = [_weight(run, ratio, advantage) for ratio in RATIOS]
        columns["ratio"] += RATIOS
        columns["advantage"] += [advantage] * len(RATIOS)
        columns["loss"] += [-value for value in _integral(weights, advantage)]
        columns["weight"] += weights
    return columns


def _integral(weights: list[float], at_one: float) -> list[float]:
    """Return the integral of ``weights`` over the logarithm of ``RATIOS``, ``at_one`` at ratio 1."""
    logs = [math.log(ratio) for ratio in RATIOS]
    steps = [(b - a) * (v + w) / 2 for a, b, v, w in zip(logs, logs[1:], weights, weights[1:], strict=False)]
    running = [0.0, *itertools.accumulate(steps)]
    return [value - running[RATIOS.index(1.0)] + at_one for value in running]


def _weight(run: Run, ratio: float, advantage: float) -> float:
    """Return c_t of a response whose tokens all have one ratio."""
    shape = (1, RESPONSE_TOKENS)
    old = torch.full(shape, -1.0, dtype=torch.float64)
    logprobs = (old + math.log(ratio)).requires_grad_()
    mask = torch.ones(shape, dtype=torch.bool)
    zeros = torch.zeros(shape, dtype=torch.float64)
    rollout = Rollout(
        rewards=torch.tensor([advantage], dtype=torch.float64),
        group=torch.zeros(1, dtype=torch.int64),
        origin=torch.full((1,), int(Origin.FRESH), dtype=torch.int8),
        finish=torch.full((1,), int(Finish.EOS), dtype=torch.int8),
        response_ids=torch.zeros(shape, dtype=torch.int64),
        response_mask=mask,
        old_logprobs=old,
        rollout_logprobs=old,
        prompt=torch.zeros(1, dtype=torch.int64),
        ref_logprobs=old,
        teacher_logprobs=old,
        old_entropy=zeros,
        old_values=torch.zeros(1, RESPONSE_TOKENS + 1, dtype=torch.float64),
        greedy_rewards=torch.zeros(1, dtype=torch.float64),
        correct=torch.zeros(1, dtype=torch.float64),
        uniforms=zeros,
        step_ends=~mask,
        window_mask=mask,
        task_steps=torch.zeros(shape, dtype=torch.int64),
    )
    targets = run.objective.targets(rollout)
    advantages = torch.full(shape, advantage, dtype=torch.float64)
    step = Step(mask, rollout.group, rollout.origin, RESPONSE_TOKENS, 0, advantages, old, logprobs.detach(), zeros)
    extras: dict[str, Any] = {**targets.extras, **run.objective.prepare(step)}
    zero_fields = dict.fromkeys((*EXACT_FIELDS.values(), "projection_gap", "entropy", "old_entropy"), zeros)
    batch = Batch(
        logprobs, old, advantages, mask, rollout.response_ids, rollout_logprobs=old, ref_logprobs=old,
        teacher_logprobs=old, values=zeros, old_values=zeros, returns=zeros, extras=extras, **zero_fields,
    )  # fmt: skip
    terms = run.objective.token_loss(batch)
    per_token = terms.policy if terms.penalty is None else terms.policy + terms.penalty
    loss = (per_token * run.objective.aggregation(step)).sum()
    gradient = torch.autograd.grad(loss, logprobs)[0]
    return -RESPONSE_TOKENS * gradient[0, -1].item() + 0.0
