"""DPPO with the binary KL mask (Qi et al. 2026, arXiv:2602.04879).

    D_t  = mu log(mu / pi) + (1 - mu) log((1 - mu) / (1 - pi)),   mu = pi_old, pi = pi_theta of the sampled token
    drop token t where D_t > high and A_t > 0 and pi > mu, or D_t > low and A_t < 0 and pi < mu
    loss = -r_t A_t for the rest
    c_t  = r_t A_t, 0 where dropped

Weights: 1 / tokens of the step (denominators keep dropped tokens).
Differs from ``dppo_tv``: the divergence of the two-way choice "this token or another" in place of the difference of its
probabilities. From GRPO: see there.
Probabilities are kept below 1 - 1e-7, where the complement has no digits left.
Defaults: 0.05 on either side, as in the example that the authors contributed to verl; std_eps 1e-6 is ours.
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

_LARGEST = 1 - 1e-7


@dataclass(frozen=True)
class DPPOKL(GroupRatio):
    """Divergence proximal policy optimisation, binary KL.

    Attributes:
        kl_low: bound where the advantage is negative and the probability has fallen; nats, at least 0.
        kl_high: bound where the advantage is positive and the probability has risen; nats, at least 0.
    """

    kl_low: float = 0.05
    kl_high: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, kl_low=self.kl_low, kl_high=self.kl_high)

    def aggregation(self, step: Step) -> Tensor:
        return token_mean(step)

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask = batch.loss_mask
        log_pi, log_mu = masked(batch.logprobs, mask).detach(), masked(batch.old_logprobs, mask)
        pi, mu = log_pi.exp().clamp(max=_LARGEST), log_mu.exp().clamp(max=_LARGEST)
        divergence = mu * (log_mu - log_pi) + (1 - mu) * (torch.log1p(-mu) - torch.log1p(-pi))
        rises = (pi > mu) & (divergence > self.kl_high)
        falls = (pi < mu) & (divergence > self.kl_low)
        out = torch.where(batch.advantages > 0, rises, falls) & (batch.advantages != 0)
        return kept_surrogate(batch, ~out)
