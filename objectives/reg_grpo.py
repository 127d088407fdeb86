"""Reg-GRPO: regress z-scored log-ratios on z-scored rewards (DeepVideo-R1, 2025, arXiv:2506.07464, eq. 5-8).

    A_i  = (R_i - mean_g R) / std_g R
    P_i  = (L_i - mean_g L) / s,   L_i = sum_t log(pi_theta / pi_old),   s = sqrt(var_g L + std_eps^2)
    loss = std_eps / 2 * mean_i (A_i - P_i)^2
    c_t  = std_eps / s * (A_i - P_i - P_i (kappa - q)),   kappa = sum_g A P / (G - 1),   q = sum_g P^2 / (G - 1)

Weights: 1 / (rows * max_response_tokens): a sum over tokens up to a constant.
Differs from GRPO: no ratio and no clip; blind to the scale of the log-ratios within a group, whose correlation with the
rewards it maximises. A group is looked at whole, so c_t comes from a forward pass of its own before each step (phase
"prepass") and the loss is -sg(c_t) log pi_theta, which has the exact gradient.
The factor std_eps / 2 is ours, a constant, so that on-policy, where all log-ratios are 0, the gradient is REINFORCE's
with weight A as everywhere in this package; without it it would be 2 / std_eps times that.
Not built: difficulty-aware augmentation of prompts (section 3.3). The KL to the reference of eq. 8 (0.1 in the paper)
is the trust region ``reference_penalty``.
With two responses a group the gradient is 0 by construction: at least three are asked for.
Defaults: std_eps 0.01 nats is ours (the paper gives none); statistics are differentiated through, as nothing in the
paper says otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from objectives.advantages import broadcast_rows, group_advantages, row_targets
from objectives.aggregation import constant
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.checks import require_positive
from objectives.ops import log_ratio, masked, row_mean, row_sum


@dataclass(frozen=True)
class RegGRPO(Objective):
    """Group-relative advantages as a regression target of the policy's log-ratios.

    Attributes:
        std_eps: joins the deviation of a group's log-ratios inside the root; nats, above 0.
        detach_stats: treat mean and deviation of the log-ratios as constants.
        reduce: a response's log-ratio is the "sum" over its tokens, or their "mean".
    """

    requires: ClassVar[frozenset[str]] = frozenset({"step_logprobs"})
    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "several"
    min_group_size: ClassVar[int] = 3

    std_eps: float = 0.01
    detach_stats: bool = False
    reduce: Literal["sum", "mean"] = "sum"

    def __post_init__(self) -> None:
        require_positive(std_eps=self.std_eps)

    def aggregation(self, step: Step) -> Tensor:
        return constant(step)

    def targets(self, rollout: Rollout) -> Targets:
        # A response without tokens has no log-ratio, so its reward is no target either.
        rewards = torch.where(rollout.scored.any(1), rollout.rewards, torch.nan)
        return row_targets(rollout, group_advantages(rewards, rollout.group, scale="group", std_eps=0.0))

    def prepare(self, step: Step) -> Mapping[str, Tensor]:
        """Return "weight" [M, T], c_t before any division by length."""
        if step.logprobs is None or step.old_logprobs is None or step.advantages is None:
            raise ValueError('reg_grpo reads Step.logprobs: name "step_logprobs" in requires')
        mask = step.loss_mask
        ratios = log_ratio(step.logprobs, step.old_logprobs, mask)
        reduce = row_sum if self.reduce == "sum" else row_mean
        ratio = reduce(ratios, mask)[:, 0].double()
        target = row_mean(step.advantages, mask)[:, 0].double()
        group, live = step.group, mask.any(1)

        def total(x: Tensor) -> Tensor:
            """Return the sum of ``x`` [M] over each row's group, [M]."""
            zeros = x.new_zeros(int(group.max()) + 1 if len(group) else 0)
            return zeros.scatter_add(0, group, torch.where(live, x, 0.0))[group]

        degrees = (total(torch.ones_like(ratio)) - 1).clamp(min=1)
        centred = ratio - total(ratio) / (degrees + 1)
        deviation = (total(centred.square()) / degrees + self.std_eps**2).sqrt()
        predicted = centred / deviation
        error = target - predicted
        if not self.detach_stats:
            error = error - predicted * (total(target * predicted) - total(predicted.square())) / degrees
        weight = torch.where(total(target.abs()) > 0, self.std_eps / deviation * error, 0.0)
        if self.reduce == "mean":
            weight = weight / mask.sum(1).clamp(min=1)
        return {"weight": broadcast_rows(weight, mask).to(ratios.dtype)}

    def token_loss(self, batch: Batch) -> TokenLoss:
        return TokenLoss(policy=-batch.extras["weight"] * masked(batch.logprobs, batch.loss_mask))
