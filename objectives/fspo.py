"""FSPO: a raw response ratio clipped in a band that grows as the root of the length (2025, arXiv:2509.09177).

    S_i  = sum_t log(pi_theta / pi_old)
    loss = -min(exp(S_i) A_i, exp(clip(S_i, -low sqrt(n_i), high sqrt(n_i))) A_i)
    c_t  = exp(S_i) A_i, 0 where clipped

Weights: 1 / (rows * max_response_tokens), a response's loss shared out over its n tokens: the paper's 1 / rows up to a
constant.
Differs from GSPO: the ratio is not normalised by length; instead the bound is, by sqrt(n), which is how the sum of n
log-ratios scatters.
The paper's band is centred on a drift term corrected by KL, whose formula could not be read: here the drift is 0.
Defaults: 0.03 a root token on either side is a reimplementation's; std_eps 1e-6 is ours.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from objectives.aggregation import constant
from objectives.base import Batch, Step, TokenLoss
from objectives.checks import require_at_least
from objectives.families import GroupRatio
from objectives.ops import MAX_LOG_RATIO, log_ratio, row_mean, row_sum, saturated


@dataclass(frozen=True)
class FSPO(GroupRatio):
    """Fair sequence policy optimisation.

    Attributes:
        band_low: S is at least -band_low sqrt(n) where the advantage is negative; nats a root token, at least 0.
        band_high: S is at most band_high sqrt(n) where the advantage is positive; nats a root token, at least 0.
    """

    band_low: float = 0.03
    band_high: float = 0.03

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, band_low=self.band_low, band_high=self.band_high)

    def aggregation(self, step: Step) -> Tensor:
        return constant(step)

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask = batch.loss_mask
        pair = batch.logprobs, batch.old_logprobs, mask
        free = row_sum(log_ratio(*pair), mask)  # [B, 1]
        tokens = mask.sum(1, keepdim=True).to(free.dtype)
        advantages = row_mean(batch.advantages, mask)
        high, low = self.band_high * tokens.sqrt(), -self.band_low * tokens.sqrt()
        bounded = torch.where(advantages >= 0, free.minimum(high), free.maximum(low))
        ratio = bounded.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        policy = -advantages * ratio / tokens.clamp(min=1)
        clipped = ((bounded != free) & (advantages != 0)) | (bounded.abs() > MAX_LOG_RATIO) | saturated(*pair)
        return TokenLoss(policy=policy.expand_as(mask), stats={"clipped": clipped})
