"""What passes between an objective and the engine: rollouts, targets, steps, batches and losses.

Shape letters, used in every file of this package:
    P prompts, G responses a prompt, N = rows of a rollout, M = rows of an optimizer step, B = rows of a micro-batch,
    T = padded response tokens. One response a row. Log quantities are in nats, float32 or wider.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import TypeVar

import torch
from torch import Tensor

from objectives.data_checks import check_batch, check_rollout

__all__ = ["Batch", "Finish", "Origin", "Rollout", "Step", "Targets", "TokenLoss", "select_rows"]


class Origin(IntEnum):
    """Where a row of a rollout comes from. KL(old || new) is measured on fresh rows only."""

    FRESH = 0
    REPLAY = 1
    CONTINUED = 2


class Finish(IntEnum):
    """How a response ended: its own end token, the length limit, or the window of this iteration."""

    EOS = 0
    LENGTH = 1
    WINDOW = 2


@dataclass(frozen=True)
class Rollout:
    """Responses of the behaviour policy with their rewards; no gradients.

    Values outside ``response_mask`` mean nothing and may be NaN. Optional fields are there if the objective or
    the trust region names them in ``requires``.

    Attributes:
        rewards: [N] float, task reward; NaN where it could not be computed (infrastructure), never 0 for that.
        group: [N] int64, index of the row's prompt in [0, P).
        origin: [N] int8, an ``Origin``.
        finish: [N] int8, a ``Finish``.
        response_ids: [N, T] int64 token ids, the end token included.
        response_mask: [N, T] bool, sampled tokens.
        old_logprobs: [N, T] float, log pi_old of each row's own behaviour policy; where rollouts lag behind a proximal
            anchor, of the policy that the updates on the row begin with.
        rollout_logprobs: [N, T] float, log-probabilities as another engine's sampler reported them.
        ref_logprobs: [N, T] float, frozen reference policy.
        teacher_logprobs: [N, T] float, teacher policy.
        old_entropy: [N, T] float, entropy of pi_old at each position, nats.
        old_values: [N, T+1] float, critic before the first update; entry n_i is the bootstrap value after the last
            token of row i.
        greedy_rewards: [N] float, reward of the greedy response to the row's prompt.
        prompt: [N] int64, group of the fresh responses to the row's prompt: not ``group`` in replayed rows.
        correct: [N] float, 1 right, 0 wrong, NaN unknown; apart from a shaped reward.
        uniforms: [N, T] float in [0, 1), keyed by seed and rollout: the same whatever the policy.
        step_ends: [N, T] bool, tokens whose text ends a step of the response (``rollout.delimiters``).
        window_mask: [N, T] bool, tokens sampled in this iteration: all of a fresh response, a continued one's newest.
        task_steps: [N, T] int64, number of the task's own step that a token belongs to, non-decreasing along a row.
        max_response_tokens: the length limit of this rollout, tokens; T if not given.
    """

    rewards: Tensor
    group: Tensor
    origin: Tensor
    finish: Tensor
    response_ids: Tensor
    response_mask: Tensor
    old_logprobs: Tensor
    rollout_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    teacher_logprobs: Tensor | None = None
    old_entropy: Tensor | None = None
    old_values: Tensor | None = None
    greedy_rewards: Tensor | None = None
    prompt: Tensor | None = None
    correct: Tensor | None = None
    uniforms: Tensor | None = None
    step_ends: Tensor | None = None
    window_mask: Tensor | None = None
    task_steps: Tensor | None = None
    max_response_tokens: int | None = None

    def __post_init__(self) -> None:
        check_rollout(self)

    @property
    def scored(self) -> Tensor:
        """[N, T] bool: response tokens of rows whose reward is known."""
        return self.response_mask & ~torch.isnan(self.rewards)[:, None]


@dataclass(frozen=True)
class Targets:
    """What an objective derives from a rollout; constant during its updates.

    Attributes:
        advantages: [N, T] float, 0 outside ``loss_mask``.
        loss_mask: [N, T] bool, tokens that enter the loss and its denominator.
        returns: [N, T] float, regression target of the critic, or None.
        value_mask: [N, T] bool, tokens that enter the value loss; ``loss_mask`` if None.
        extras: named [N, T] tensors that ``token_loss`` needs besides (segment ids, ...).
    """

    advantages: Tensor
    loss_mask: Tensor
    returns: Tensor | None = None
    value_mask: Tensor | None = None
    extras: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])


@dataclass(frozen=True)
class Step:
    """One optimizer step seen whole, before any micro-batch: what ``aggregation`` and ``prepare`` may look at.

    Values outside ``loss_mask`` mean nothing and may be NaN.

    Attributes:
        loss_mask: [M, T] bool.
        group: [M] int64.
        origin: [M] int8.
        max_response_tokens: the length limit, tokens; never the padded width.
        index: number of the optimizer step in the run, from 0.
        advantages: [M, T] float.
        old_logprobs: [M, T] float.
        logprobs: [M, T] float, detached current log-probabilities; only if ``requires`` names "step_logprobs".
        uniforms: [M, T] float in [0, 1), keyed by seed and step; only if ``requires`` names "step_uniforms".
    """

    loss_mask: Tensor
    group: Tensor
    origin: Tensor
    max_response_tokens: int
    index: int = 0
    advantages: Tensor | None = None
    old_logprobs: Tensor | None = None
    logprobs: Tensor | None = None
    uniforms: Tensor | None = None


@dataclass(frozen=True)
class Batch:
    """A micro-batch: the current policy on some rows of an optimizer step, beside what the rollout knew of them.

    ``logprobs``, ``values``, ``entropy`` and the exact divergences carry gradients; anything else that does is refused,
    and so is half precision. Values outside ``loss_mask`` mean nothing and may be NaN; those of the critic, outside
    ``Targets.value_mask`` too.

    Attributes:
        logprobs: [B, T] float, log pi_theta.
        old_logprobs: [B, T] float.
        advantages: [B, T] float.
        loss_mask: [B, T] bool.
        response_ids: [B, T] int64.
        rollout_logprobs: [B, T] float.
        ref_logprobs: [B, T] float.
        teacher_logprobs: [B, T] float.
        values: [B, T] float, critic.
        old_values: [B, T] float, critic before the first update.
        returns: [B, T] float.
        entropy: [B, T] float, nats.
        old_entropy: [B, T] float, nats.
        exact_kl_old: [B, T] float, KL(pi_old || pi_theta) over the whole vocabulary, nats.
        exact_kl_new_old: [B, T] float, KL(pi_theta || pi_old) over the whole vocabulary, nats.
        exact_kl_ref: [B, T] float, KL(pi_ref || pi_theta) over the whole vocabulary, nats.
        exact_kl_new_ref: [B, T] float, KL(pi_theta || pi_ref) over the whole vocabulary, nats.
        projection_gap: [B, T] float, KL(pi_theta || its projection by the trust region), nats.
        extras: [B, T] tensors of ``Targets.extras`` and ``Objective.prepare``.
    """

    logprobs: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    loss_mask: Tensor
    response_ids: Tensor
    rollout_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    teacher_logprobs: Tensor | None = None
    values: Tensor | None = None
    old_values: Tensor | None = None
    returns: Tensor | None = None
    entropy: Tensor | None = None
    old_entropy: Tensor | None = None
    exact_kl_old: Tensor | None = None
    exact_kl_new_old: Tensor | None = None
    exact_kl_ref: Tensor | None = None
    exact_kl_new_ref: Tensor | None = None
    projection_gap: Tensor | None = None
    extras: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    def __post_init__(self) -> None:
        check_batch(self)


@dataclass(frozen=True)
class TokenLoss:
    """Losses per token, to be minimised, not aggregated; entries outside the masks are ignored.

    Attributes:
        policy: [B, T] float; weighted by ``Objective.aggregation``.
        value: [B, T] float or None; averaged over the tokens of ``Targets.value_mask``; trains the critic only.
        entropy: [B, T] float or None, coefficient and sign included; weighted by ``Objective.aggregation``.
        penalty: [B, T] float or None, what an objective adds whatever the advantages (a pull to pi_old, a teacher),
            coefficient included; weighted by ``Objective.aggregation``; no trust region masks it.
        stats: named [B, T] tensors for the log, averaged over ``loss_mask``; "clipped" (bool, the clip is active
            at this token) feeds the clip fraction; an objective that never clips leaves it out.
    """

    policy: Tensor
    value: Tensor | None = None
    entropy: Tensor | None = None
    penalty: Tensor | None = None
    stats: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])


Record = TypeVar("Record", "Rollout", "Targets", "Batch")


def select_rows(record: Record, rows: Tensor) -> Record:
    """Return ``record`` with only ``rows`` ([K] int64) of every tensor in it, in that order."""
    changed: dict[str, object] = {}
    for item in fields(record):
        value = getattr(record, item.name)
        if isinstance(value, Tensor):
            changed[item.name] = value[rows]
        elif isinstance(value, Mapping):
            extras: Mapping[str, Tensor] = value  # pyright: ignore[reportUnknownVariableType]
            changed[item.name] = {key: tensor[rows] for key, tensor in extras.items()}
    return replace(record, **changed)  # pyright: ignore[reportArgumentType]
