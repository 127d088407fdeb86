"""GMPO: geometric mean of token ratios, each clipped first (Zhao et al. 2025, arXiv:2507.20673).

    l_t  = log(pi_theta / pi_old);  A > 0: min(l_t, high);  A < 0: max(l_t, -low)
    loss = -A_i exp(mean_t l_t)
    c_t  = A_i exp(mean_t l_t), 0 where the token is clipped

Weights: 1 / (rows * tokens of the row).
Differs from GSPO: clips tokens and then averages, where GSPO averages and then clips; a clipped token is silent and the
rest of its response goes on. Bounds are log-ratios here, not offsets from 1.
Equals ``gspo_subsequence`` with one token a segment, product, outer_root "tokens", one_sided and these bounds.
Defaults: 0.4 on either side of the log-ratio (the paper's range e^-0.4 to e^0.4); std_eps 1e-6 is ours.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from objectives.aggregation import sequence_mean
from objectives.base import Batch, Step, TokenLoss
from objectives.checks import require_at_least
from objectives.families import GroupRatio
from objectives.ops import log_ratio, row_mean, saturated


@dataclass(frozen=True)
class GMPO(GroupRatio):
    """Geometric-mean policy optimisation.

    Attributes:
        log_clip_low: a token's log-ratio is at least -log_clip_low where the advantage is negative; nats, at least 0.
        log_clip_high: a token's log-ratio is at most log_clip_high where the advantage is positive; nats, at least 0.
    """

    log_clip_low: float = 0.4
    log_clip_high: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, log_clip_low=self.log_clip_low, log_clip_high=self.log_clip_high)

    def aggregation(self, step: Step) -> Tensor:
        return sequence_mean(step)

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask = batch.loss_mask
        pair = batch.logprobs, batch.old_logprobs, mask
        advantages = row_mean(batch.advantages, mask)  # [B, 1]
        free = log_ratio(*pair)
        bounded = torch.where(advantages >= 0, free.clamp(max=self.log_clip_high), free.clamp(min=-self.log_clip_low))
        policy = -advantages * torch.exp(row_mean(bounded, mask))
        return TokenLoss(
            policy=policy.expand_as(mask), stats={"clipped": ((bounded != free) & (advantages != 0)) | saturated(*pair)}
        )
