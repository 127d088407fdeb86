"""What is logged for every objective without its help: weights, clip and dead fractions, ratios, divergences.

Sums are kept over the micro-batches and steps of one rollout and divided once, so a metric does not depend on how the
work was cut.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

__all__ = ["LOG_RATIO_EDGES", "Mean", "StepMetrics"]

# Edges of the histogram of token log-ratios, nats; what lies outside is counted in the outer bins.
LOG_RATIO_EDGES: tuple[float, ...] = tuple(round(-1 + 0.05 * i, 2) for i in range(41))


@dataclass
class Mean:
    """A weighted mean that is missing as long as nothing was added."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, total: float, weight: float = 1.0) -> None:
        """Add a sum of ``weight`` entries."""
        self.total += total
        self.weight += weight

    def value(self) -> float | None:
        """Return the mean, None without entries or if it is not finite."""
        if not self.weight:
            return None
        mean = self.total / self.weight
        return mean if math.isfinite(mean) else None


@dataclass
class StepMetrics:
    """Metrics of the updates on one rollout."""

    means: dict[str, Mean] = field(default_factory=dict)
    ratio_counts: Tensor = field(default_factory=lambda: torch.zeros(len(LOG_RATIO_EDGES) - 1, dtype=torch.int64))
    log_ratio_min: float = math.inf
    log_ratio_max: float = -math.inf

    def add(self, name: str, total: float, weight: float = 1.0) -> None:
        """Add to the mean ``name``."""
        self.means.setdefault(name, Mean()).add(total, weight)

    def add_tokens(
        self, mask: Tensor, log_ratio: Tensor, advantages: Tensor, gradient: Tensor, clipped: Tensor | None
    ) -> None:
        """Add the tokens of a micro-batch.

        Args:
            mask: [B, T] bool, the loss mask.
            log_ratio: [B, T] float, log(pi_theta / pi_old), detached.
            advantages: [B, T] float.
            gradient: [B, T] float, of the policy term with respect to the log-probabilities.
            clipped: [B, T] bool, tokens at which the objective says its clip is active; None if it does not say.
        """
        tokens = int(mask.sum())
        if not tokens:
            return
        moved = mask & (advantages != 0)
        self.add("dead_frac", float((moved & (gradient == 0)).sum()), float(moved.sum()))
        if clipped is not None:
            self.add("clip_frac", float((mask & clipped).sum()), tokens)
        values = log_ratio[mask]
        self.log_ratio_min = min(self.log_ratio_min, float(values.min()))
        self.log_ratio_max = max(self.log_ratio_max, float(values.max()))
        inner = torch.tensor(LOG_RATIO_EDGES[1:-1], dtype=values.dtype)
        self.ratio_counts += torch.bincount(torch.bucketize(values, inner), minlength=len(self.ratio_counts))

    def summary(self) -> dict[str, Any]:
        """Return all means, the ratio's extremes and its histogram as plain values."""
        seen = self.log_ratio_min <= self.log_ratio_max
        return {
            **{name: mean.value() for name, mean in sorted(self.means.items())},
            "ratio_min": math.exp(self.log_ratio_min) if seen else None,
            "ratio_max": math.exp(self.log_ratio_max) if seen else None,
            "ratio_hist": {"edges": list(LOG_RATIO_EDGES), "counts": self.ratio_counts.tolist()},
        }
