"""DPPO with the binary total-variation mask (Qi et al. 2026, arXiv:2602.04879).

    drop token t where A_t > 0 and pi_theta - pi_old > high, or A_t < 0 and pi_theta - pi_old < -low
    loss = -r_t A_t for the rest
    c_t  = r_t A_t, 0 where dropped

Weights: 1 / tokens of the step (denominators keep dropped tokens).
Differs from GRPO: the bound is on the difference of probabilities of the sampled token, not on their ratio, which
restricts rare tokens too much and frequent ones too little.
Defaults: 0.15 on either side, as in the example that the authors contributed to verl; std_eps 1e-6 is ours.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from objectives.aggregation import token_mean
from objectives.base import Batch, Step, TokenLoss
from objectives.checks import require_at_least
from objectives.families import GroupRatio
from objectives.ops import masked
from objectives.surrogates import kept_surrogate


@dataclass(frozen=True)
class DPPOTV(GroupRatio):
    """Divergence proximal policy optimisation, binary total variation.

    Attributes:
        tv_low: a token's probability may fall by this much where its advantage is negative; at least 0.
        tv_high: a token's probability may rise by this much where its advantage is positive; at least 0.
    """

    tv_low: float = 0.15
    tv_high: float = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, tv_low=self.tv_low, tv_high=self.tv_high)

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask = batch.loss_mask
        moved = masked(batch.logprobs, mask).detach().exp() - masked(batch.old_logprobs, mask).exp()
        out = torch.where(batch.advantages > 0, moved > self.tv_high, moved < -self.tv_low)
        return kept_surrogate(batch, ~(out & (batch.advantages != 0)))
