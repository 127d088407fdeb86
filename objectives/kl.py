"""Estimators of KL divergence from samples, per token, in nats.

All take the log-probabilities of the sampled token under p and q, where the token was drawn from q, and estimate
KL(q || p). With d = log p - log q:

    k1 = -d             unbiased, may be negative
    k2 = d^2 / 2        biased, never negative
    k3 = exp(d) - 1 - d unbiased, never negative

As a loss, what counts is the gradient. For KL(pi_old || pi_theta) the samples come from pi_old and do not depend on
theta: k1 and k3 both have the exact gradient in expectation, k2 does not. For KL(pi_theta || pi_ref) with samples
from pi_old it is ratio * k1 and ratio * k3 (differentiated through the ratio) and sg(ratio) * k2 that have the exact
gradient; bare k1 has none and bare k3 has that of the reversed divergence. ``kl_from_old`` puts those factors in.
(Schulman, "Approximating KL Divergence", 2020; arXiv:2506.09477.)
"""

from typing import Literal

import torch
from torch import Tensor

from objectives.ops import log_ratio

__all__ = ["Estimator", "k1", "k2", "k3", "kl_from_old"]

Estimator = Literal["k1", "k2", "k3"]


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


def kl_from_old(
    estimator: Estimator, logprobs_p: Tensor, logprobs_q: Tensor, old_logprobs: Tensor, mask: Tensor
) -> Tensor:
    """Return an estimate of KL(q || p) per token from tokens that were drawn from pi_old, whatever q is.

    The estimator is weighted by q / pi_old: 1 where q is pi_old. Where q is pi_theta the weight carries a gradient for
    k1 and k3 and none for k2, which makes the gradient exact in expectation, token by token. k2 with q = pi_old has a
    biased gradient (see above).

    Args:
        estimator: which.
        logprobs_p: [B, T] float, of the sampled tokens under p.
        logprobs_q: [B, T] float, under q.
        old_logprobs: [B, T] float, under pi_old.
        mask: [B, T] bool.

    Returns:
        [B, T] float, nats; 0 outside ``mask``.
    """
    found = {"k1": k1, "k2": k2, "k3": k3}[estimator](logprobs_p, logprobs_q, mask)
    if logprobs_q is old_logprobs:
        return found
    weight = torch.exp(log_ratio(logprobs_q, old_logprobs, mask))
    return (weight.detach() if estimator == "k2" else weight) * found
