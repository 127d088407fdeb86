"""CISPO: clip the importance weight, never the gradient (MiniMax-M1 2025, arXiv:2506.13585, eq. 4-5).

    loss = -sg(clip(r_t, 1 - low, 1 + high)) A_i log pi_theta
    c_t  = clip(r_t, 1 - low, 1 + high) A_i, never 0

Weights: 1 / tokens of the step (the paper's 1 / tokens of the group, taken over all prompts).
Differs from GRPO: a token outside the bounds keeps its gradient, with a bounded weight. From DAPO's mask: the same.
Same name, other meaning: TRL's ``epsilon_high`` of CISPO is the bound itself (5.0), not its distance from 1.
Defaults: no lower bound (clip_low 1), as the paper has it; clip_high 4, the bound 5 of ScaleRL (arXiv:2510.13786), as
the paper does not publish its own; std_eps 1e-6 is ours.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from objectives.aggregation import token_mean
from objectives.base import Batch, Step, TokenLoss
from objectives.checks import require_at_least, require_between
from objectives.families import GroupRatio
from objectives.ops import log_ratio
from objectives.surrogates import score_function


@dataclass(frozen=True)
class CISPO(GroupRatio):
    """Clipped importance-sampling policy optimisation.

    Attributes:
        clip_low: the weight is at least 1 - clip_low; in [0, 1], 1 leaves it free.
        clip_high: the weight is at most 1 + clip_high; at least 0.
    """

    clip_low: float = 1.0
    clip_high: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between(0, 1, clip_low=self.clip_low)
        require_at_least(0, clip_high=self.clip_high)

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def token_loss(self, batch: Batch) -> TokenLoss:
        ratio = torch.exp(log_ratio(batch.logprobs, batch.old_logprobs, batch.loss_mask))
        weight = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        return score_function(batch, weight, clipped=weight != ratio)
