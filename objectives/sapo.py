"""SAPO: a soft gate in place of the clip (Gao et al. 2025, arXiv:2511.20347).

    f(r)  = (4 / tau) sigmoid(tau (r - 1)),   tau = tau_positive where A > 0, else tau_negative
    loss  = -f(r_t) A_i
    c_t   = r_t A_i sech^2(tau (r_t - 1) / 2)

Weights: 1 / (rows * tokens of the row).
Differs from GRPO: the gradient fades instead of stopping, on both sides and for both signs. At r = 1 value 2 / tau and
slope 1, so the on-policy gradient is GRPO's. The weight is not monotone: at tau = 1 tokens with r up to about 3.4 get
more than 1.
"clipped" marks tokens whose gate is shut to the last digit.
Defaults: tau 1.0 and 1.05 from the paper; std_eps 1e-6 is ours.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from objectives.aggregation import sequence_mean
from objectives.base import Batch, Step, TokenLoss
from objectives.checks import require_positive
from objectives.families import GroupRatio
from objectives.ops import choose, log_ratio, saturated


@dataclass(frozen=True)
class SAPO(GroupRatio):
    """Soft adaptive policy optimisation.

    Attributes:
        tau_positive: steepness of the gate where the advantage is positive, above 0.
        tau_negative: steepness of the gate where it is not, above 0.
    """

    tau_positive: float = 1.0
    tau_negative: float = 1.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(tau_positive=self.tau_positive, tau_negative=self.tau_negative)

    def aggregation(self, step: Step) -> Tensor:
        return sequence_mean(step)

    def token_loss(self, batch: Batch) -> TokenLoss:
        pair = batch.logprobs, batch.old_logprobs, batch.loss_mask
        tau = choose(batch.advantages > 0, self.tau_positive, self.tau_negative, batch.logprobs)
        gate = torch.sigmoid(tau * torch.expm1(log_ratio(*pair)))
        shut = gate.detach() * (1 - gate.detach()) == 0
        return TokenLoss(policy=-4 / tau * gate * batch.advantages, stats={"clipped": shut | saturated(*pair)})
