"""ReMax: REINFORCE with the reward of the greedy response as baseline (Li et al. 2023, arXiv:2310.10505).

    A    = R - R(greedy response to the same prompt)
    loss = -A log pi_theta
    c_t  = A

Weights: 1 / (rows * max_response_tokens): a sum over tokens up to a constant.
Differs from RLOO: the baseline costs one more response a prompt, at temperature 0, and needs no group.
The greedy responses are charged to the budget (phase "greedy"). The paper's KL penalty in the reward is left to a
trust region. Where the greedy reward is unknown the response leaves the loss.
Defaults: none to choose.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from objectives.advantages import broadcast_rows
from objectives.aggregation import constant
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.surrogates import score_function


@dataclass(frozen=True)
class ReMax(Objective):
    """REINFORCE against the greedy response."""

    requires: ClassVar[frozenset[str]] = frozenset({"greedy_rewards"})

    def aggregation(self, step: Step) -> Tensor:
        return constant(step)

    def targets(self, rollout: Rollout) -> Targets:
        if rollout.greedy_rewards is None:
            raise ValueError("remax reads Rollout.greedy_rewards, which is None")
        advantages = rollout.rewards - rollout.greedy_rewards
        mask = rollout.scored & ~torch.isnan(advantages)[:, None]
        return Targets(broadcast_rows(advantages, mask).to(rollout.old_logprobs.dtype), mask)

    def token_loss(self, batch: Batch) -> TokenLoss:
        return score_function(batch, 1.0)
