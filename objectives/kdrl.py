"""KDRL: policy gradient plus reverse KL to a teacher (Xu et al. 2025, arXiv:2506.02208, eq. 5-8).

    loss = -r_t A_i  +  beta m_t / 2 (log pi_T - log pi_theta)^2,   beta = max(beta_start - beta_decay step, beta_end)
    c_t  = r_t A_i + beta m_t (log pi_T - log pi_theta)

Weights: 1 / tokens of the step, both terms.
Differs from GRPO: no clip (the paper is on-policy), and a k2 term whose on-policy gradient is that of
KL(pi_theta || pi_T); it acts without any advantage (``TokenLoss.penalty``), so groups of equal rewards still teach.
m_t: 1, or with ``distil`` "wrong" only responses that are not right, with "unsolved" only groups without a right one
(section 3.4); the denominator keeps all tokens.
Reduces to: token-mean GRPO without clip at beta 0; on-policy distillation where all advantages are 0.
The teacher is ``[teacher]`` of the run, scored on the student's tokens once a rollout (phase "teacher").
Equations as quoted by two readers of the paper, not read there.
Defaults: beta from 5e-3 to 1e-3 by 5e-5 a step,
section 3.3; it is in units of advantage a nat and depends on the task: tune it. std_eps 1e-6 is ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from objectives.advantages import broadcast_rows, group_advantages, row_targets
from objectives.aggregation import token_mean
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.checks import require_at_least
from objectives.kl import k2
from objectives.ops import choose
from objectives.surrogates import kept_surrogate


@dataclass(frozen=True)
class KDRL(Objective):
    """Unified knowledge distillation and reinforcement learning.

    Attributes:
        beta_start: factor of the teacher's term at the first optimizer step, at least 0.
        beta_end: smallest factor, at least 0.
        beta_decay: what each optimizer step takes off the factor, at least 0.
        distil: responses that the teacher's term is for: "all", "wrong" or "unsolved".
        std_eps: added to the group's standard deviation, reward units.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"teacher_logprobs", "correct"})
    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "any"
    min_group_size: ClassVar[int] = 2

    beta_start: float = 5e-3
    beta_end: float = 1e-3
    beta_decay: float = 5e-5
    distil: Literal["all", "wrong", "unsolved"] = "all"
    std_eps: float = 1e-6

    def __post_init__(self) -> None:
        require_at_least(0, beta_start=self.beta_start, beta_end=self.beta_end, beta_decay=self.beta_decay)
        require_at_least(0, std_eps=self.std_eps)

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def targets(self, rollout: Rollout) -> Targets:
        advantages = group_advantages(rollout.rewards, rollout.group, scale="group", std_eps=self.std_eps)
        return row_targets(rollout, advantages, {"distil": self._distilled(rollout)})

    def _distilled(self, rollout: Rollout) -> Tensor:
        if rollout.correct is None:
            raise ValueError("kdrl reads Rollout.correct, which is None")
        right = (rollout.correct == 1).to(rollout.old_logprobs.dtype)
        if self.distil == "unsolved":
            solved = right.new_zeros(int(rollout.group.max()) + 1).scatter_add(0, rollout.group, right)
            right = solved[rollout.group].clamp(max=1)
        chosen = torch.ones_like(right) if self.distil == "all" else 1 - right
        return broadcast_rows(chosen, rollout.scored)

    def prepare(self, step: Step) -> Mapping[str, Tensor]:
        """Return "beta" [M, T], the factor at this step."""
        beta = max(self.beta_start - self.beta_decay * step.index, self.beta_end)
        like = step.loss_mask.float() if step.old_logprobs is None else step.old_logprobs
        return {"beta": choose(step.loss_mask, beta, 0.0, like)}

    def token_loss(self, batch: Batch) -> TokenLoss:
        if batch.teacher_logprobs is None:
            raise ValueError("kdrl reads Batch.teacher_logprobs, which is None")
        mask = batch.loss_mask
        factor = batch.extras["beta"] * batch.extras["distil"]
        penalty = factor * k2(batch.logprobs, batch.teacher_logprobs, mask)
        return replace(kept_surrogate(batch, torch.ones_like(mask)), penalty=penalty)
