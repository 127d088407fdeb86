"""Estimators of KL divergence from samples, per token, in nats.

All take the log-probabilities of the sampled token under p and q, where the token was drawn from q, and estimate
KL(q || p). With d = log p - log q:

    k1 = -d             unbiased, may be negative
    k2 = d^2 / 2        biased, never negative
    k3 = exp(d) - 1 - d unbiased, never negative

As a loss, what counts is the gradient. For KL(pi_old || pi_theta) the samples come from pi_old and do not depend on
theta: k1 and k3 both have the exact gradient in expectation, k2 does not. For KL(pi_theta || pi_ref) with samples
from pi_old it is ratio * k3 (differentiated through the ratio) that has the exact gradient; bare k1 has none and bare
k3 has that of the reversed divergence. (Schulman, "Approximating KL Divergence", 2020; arXiv:2506.09477.)
"""

import torch
from torch import Tensor

from objectives.ops import log_ratio

__all__ = ["k1", "k2", "k3"]


def k1(logprobs_p: Tensor, logprobs_q: Tensor, mask: Tensor) -> Tensor:
    """Return log q - log p [B, T]; 0 outside ``mask``."""
    return -log_ratio(logprobs_p, logprobs_q, mask)


def k2(logprobs_p: Tensor, logprobs_q: Tensor, mask: Tensor) -> Tensor:
    """Return (log p - log q)^2 / 2 [B, T]; 0 outside ``mask``."""
    return log_ratio(logprobs_p, logprobs_q, mask).square() / 2


def k3(logprobs_p: Tensor, logprobs_q: Tensor, mask: Tensor) -> Tensor:
    """Return p/q - 1 - log(p/q) [B, T]; 0 outside ``mask``. ``expm1`` keeps its digits for small differences."""
    d = log_ratio(logprobs_p, logprobs_q, mask)
    return torch.expm1(d) - d
