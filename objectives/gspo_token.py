"""GSPO-token: GSPO's ratio and clip with a gradient for each token (Zheng et al. 2025, arXiv:2507.18071, section 4.3).

    s_t  = sg(s) pi_theta / sg(pi_theta),   s = exp(mean_t log(pi_theta / pi_old))          eq. 14
    loss = -min(s_t A_t, clip(s_t, 1 - low, 1 + high) A_t)                                  eq. 13
    c_t  = s A_t, 0 where clipped

Weights: 1 / (rows * tokens of the row).
Differs from GSPO: only where advantages vary along a response; then the clip is still decided by the response's s, but
by the sign of each token's own advantage. With one advantage a response, value and gradient are GSPO's.
The log-ratio is assembled small terms first (log pi_theta - sg(log pi_theta), then the mean): adding the mean to a
log-probability first would lose its digits.
Defaults: clip 3e-4 and 4e-4 as GSPO; std_eps 1e-6 is ours.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from objectives.aggregation import sequence_mean
from objectives.base import Batch, Step, TokenLoss
from objectives.families import SequenceClip
from objectives.ops import clip_ratio_pessimistic, log_ratio, masked, row_mean


@dataclass(frozen=True)
class GSPOToken(SequenceClip):
    """GSPO that can take an advantage of its own for every token."""

    def aggregation(self, step: Step) -> Tensor:
        return sequence_mean(step)

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask = batch.loss_mask
        mean = row_mean(log_ratio(batch.logprobs, batch.old_logprobs, mask), mask).detach()
        logprobs = masked(batch.logprobs, mask)
        ratio = torch.exp((logprobs - logprobs.detach()) + mean)
        clipped = clip_ratio_pessimistic(ratio, batch.advantages, self.clip_low, self.clip_high)
        return TokenLoss(
            policy=-clipped * batch.advantages, stats={"clipped": (clipped != ratio) & (batch.advantages != 0)}
        )
