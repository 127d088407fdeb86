"""Sums that a metric is made of: added to piece by piece, divided once; missing as long as nothing was added."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from objectives.ops import MAX_LOG_RATIO

__all__ = ["Grid", "Histogram", "Mean", "Ratios"]


@dataclass
class Mean:
    """A weighted mean."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, total: float, weight: float = 1.0) -> None:
        """Add a sum of ``weight`` entries."""
        self.total += total
        self.weight += weight

    def join(self, other: "Mean") -> None:
        """Add what ``other`` has seen."""
        self.add(other.total, other.weight)

    def value(self) -> float | None:
        """Return the mean, None without entries or if it is not finite."""
        if not self.weight:
            return None
        mean = self.total / self.weight
        return mean if math.isfinite(mean) else None


@dataclass
class Histogram:
    """Counts between fixed edges; what lies outside is counted in the outer bins."""

    edges: tuple[float, ...]
    counts: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.counts = torch.zeros(len(self.edges) - 1, dtype=torch.int64)

    def add(self, values: Tensor) -> None:
        """Count ``values`` [n] float64."""
        inner = torch.tensor(self.edges[1:-1], dtype=values.dtype)
        self.counts += torch.bincount(torch.bucketize(values, inner), minlength=len(self.counts))

    def join(self, other: "Histogram") -> None:
        """Add what ``other`` has counted."""
        self.counts += other.counts

    def value(self) -> dict[str, Any]:
        """Return edges and counts as plain lists."""
        return {"edges": list(self.edges), "counts": self.counts.tolist()}


@dataclass
class Grid:
    """Counts of pairs between fixed edges of either number; what lies outside is counted in the outer bins."""

    x_edges: tuple[float, ...]
    y_edges: tuple[float, ...]
    counts: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.counts = torch.zeros(len(self.x_edges) - 1, len(self.y_edges) - 1, dtype=torch.int64)

    def add(self, x: Tensor, y: Tensor) -> None:
        """Count the pairs of ``x`` [n] and ``y`` [n]."""
        rows, columns = self.counts.shape
        places = [
            torch.bucketize(values.double(), torch.tensor(edges[1:-1], dtype=torch.float64))
            for values, edges in ((x, self.x_edges), (y, self.y_edges))
        ]
        self.counts += torch.bincount(places[0] * columns + places[1], minlength=rows * columns).view(rows, columns)

    def join(self, other: "Grid") -> None:
        """Add what ``other`` has counted."""
        self.counts += other.counts

    def value(self) -> dict[str, Any]:
        """Return edges, and the counts above 0 as [place in x, place in y, count]."""
        places = self.counts.nonzero()
        counts = torch.cat([places, self.counts[places[:, 0], places[:, 1]][:, None]], 1)
        return {"x_edges": list(self.x_edges), "y_edges": list(self.y_edges), "counts": counts.tolist()}


@dataclass
class Ratios:
    """Extremes and effective sample size of importance ratios pi_theta/pi_old of tokens, segments or responses.

    Log-ratios are bounded by +-20 as those of ``objectives.ops.log_ratio``: squares stay below exp(40), far from where
    float64 ends.
    """

    low: float = math.inf
    high: float = -math.inf
    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, log_ratio: Tensor) -> None:
        """Add units by their summed log-ratios, [n] float64, nats."""
        if not len(log_ratio):
            return
        bounded = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = bounded.exp()
        self.low = min(self.low, float(bounded.min()))
        self.high = max(self.high, float(bounded.max()))
        self.count += len(ratio)
        self.total += float(ratio.sum())
        self.squares += float(ratio.square().sum())

    def join(self, other: "Ratios") -> None:
        """Add what ``other`` has seen."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.count += other.count
        self.total += other.total
        self.squares += other.squares

    def value(self) -> tuple[float | None, float | None, float | None]:
        """Return the smallest and the largest ratio, and (sum w)^2 / (n sum w^2): 1 where all are equal, 1/n where one
        has all the weight.
        """
        if not self.count:
            return None, None, None
        size = self.total**2 / (self.count * self.squares)
        return math.exp(self.low), math.exp(self.high), min(size, 1.0)  # above 1 by rounding only
