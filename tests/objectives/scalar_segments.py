"""The subsequence objective in Python floats and loops, from spec/objectives.md, section 6."""

import math
from dataclasses import dataclass

from tests.objectives.scalar import Row, clip


def cut(length: int, rule: str, size: int) -> list[list[int]]:
    """Positions of each segment: ``size`` equal parts (fewer in a shorter row), or parts of ``size`` tokens."""
    if rule == "fixed_length":
        return [list(range(start, min(start + size, length))) for start in range(0, length, size)]
    parts = min(size, length)
    edges = [math.ceil(k * length / parts) for k in range(parts + 1)]
    return [list(range(edges[k], edges[k + 1])) for k in range(parts)]


@dataclass(frozen=True)
class Subsequence:
    """Settings of section 6.

    Attributes:
        rule: "fixed_k" or "fixed_length".
        size: K, or tokens a segment.
        norm: "none" or "mean".
        combine: "product" or "mean".
        root: "none", "segments" or "tokens".
        mode: "plain", "one_sided", "outer_min" or "stopgrad".
        low: a ratio is at least 1 - low.
        high: a ratio is at most 1 + high.
        max_tokens: the length limit.
        scale: "const"; "sqrt_len": log bounds times the root of the segment's tokens; "budget": over K.
        dual: where A < 0 and one_sided, a ratio is at most this.
        outer_low: the product is at least 1 - outer_low.
        outer_high: the product is at most 1 + outer_high.
    """

    rule: str
    size: int
    norm: str
    combine: str
    root: str
    mode: str
    low: float
    high: float
    max_tokens: int
    scale: str = "const"
    dual: float = math.inf
    outer_low: float = 1.0
    outer_high: float = math.inf

    @property
    def raw(self) -> bool:
        return self.norm == "none" and self.root == "none"

    def bounds(self, tokens: int, segments: int) -> tuple[float, float]:
        """(1 - low, 1 + high), their logarithms scaled."""
        power = {"const": 1.0, "sqrt_len": math.sqrt(tokens), "budget": 1 / segments}[self.scale]
        if self.scale == "sqrt_len" and self.norm == "mean":
            power = 1 / power
        return (1 - self.low) ** power, (1 + self.high) ** power

    def ratios(self, row: Row, advantage: float, *, free: bool = False) -> list[tuple[float, int]]:
        """(clipped ratio, tokens) of every segment; not clipped if ``free``."""
        segments = cut(len(row.columns), self.rule, self.size)
        found = []
        for segment in segments:
            total = sum(row.log_ratios[j] for j in segment)
            ratio = math.exp(total / len(segment) if self.norm == "mean" else total)
            low, high = self.bounds(len(segment), len(segments))
            if free:
                pass
            elif self.mode != "one_sided":
                ratio = clip(ratio, low, high)
            elif advantage > 0:
                ratio = min(ratio, high)
            else:
                ratio = min(max(ratio, low), self.dual)
            found.append((ratio, len(segment)))
        return found

    def product(self, row: Row, advantage: float) -> float:
        """rho: the product of the segments' ratios, rooted and bounded."""
        length = len(row.columns)

        def rooted(ratios: list[tuple[float, int]]) -> float:
            power = {"none": 1.0, "segments": 1 / len(ratios), "tokens": 1 / length}[self.root]
            return math.prod(ratio for ratio, _ in ratios) ** power

        rho = rooted(self.ratios(row, advantage))
        if self.mode != "one_sided":
            rho = clip(rho, 1 - self.outer_low, 1 + self.outer_high)
        elif advantage > 0:
            rho = min(rho, 1 + self.outer_high)
        else:
            rho = max(rho, 1 - self.outer_low)
        if self.mode == "outer_min":
            raw = rooted(self.ratios(row, advantage, free=True))
            return min(rho * advantage, raw * advantage) / advantage if advantage else rho
        return rho

    def loss_of(self, row: Row, frozen: Row, advantage: float) -> float:
        length = len(row.columns)
        scale = 1 / self.max_tokens if self.raw else 1 / length
        still = frozen if self.mode == "stopgrad" else row
        ratios = self.ratios(still, advantage)
        if self.mode == "stopgrad":
            per_token = [self.product(still, advantage)] * length
            if self.combine == "mean":
                per_token = [ratio for ratio, tokens in ratios for _ in range(tokens)]
            return -scale * sum(w * advantage * x for w, x in zip(per_token, row.logprobs, strict=True))
        if self.combine == "product":
            return -advantage * self.product(row, advantage) / (self.max_tokens if self.raw else 1)
        if self.raw:
            return -advantage * sum(ratio for ratio, _ in ratios) / self.max_tokens
        return -advantage * sum(ratio * tokens for ratio, tokens in ratios) / length

    def loss(self, rows: list[Row], frozen: list[Row], advantages: list[float]) -> float:
        terms = zip(rows, frozen, advantages, strict=True)
        return sum(self.loss_of(row, still, advantage) for row, still, advantage in terms) / len(rows)
