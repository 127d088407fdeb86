"""What is logged for every objective without its help: token weights, clip and dead fractions, ratios.

Sums are kept over the micro-batches and steps of one rollout and divided once, so a metric does not depend on how the
work was cut. Only tokens of the loss mask are read; what was never seen is missing (None). The glossary is in the
README.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from harness.engine.accumulators import Grid, Histogram, Mean, Ratios
from objectives.segments import fixed_length, segment_sums

__all__ = ["GRIDS", "LOG_RATIO_EDGES", "SEGMENT_TOKENS", "WEIGHT_EDGES", "StepMetrics", "Tokens"]

# Edges of the histogram of token log-ratios, nats.
LOG_RATIO_EDGES: tuple[float, ...] = tuple(round(-1 + 0.05 * i, 2) for i in range(41))
# Edges of the histogram of c_t / A_t: 0 (dead) and 1 (REINFORCE) are in the middle of a bin.
WEIGHT_EDGES: tuple[float, ...] = tuple(round(-1.05 + 0.1 * i, 2) for i in range(42))
# Of the variance of a response's token log-ratios, nats squared; a response that has not moved is in the first bin.
VARIANCE_EDGES: tuple[float, ...] = tuple(float(f"{10 ** (i / 2):.3g}") for i in range(-16, 5))
# Positions and lengths, tokens: two bins an octave, for responses of 10 tokens and of 30,000.
LENGTH_EDGES: tuple[float, ...] = tuple(sorted({round(2 ** (i / 2)) - 0.5 for i in range(34)}))
_TENS = tuple(a * 10.0**b for b in (-3, -2, -1) for a in (1, 3))
# Of log-ratios, fine about 0 where nearly all are, nats.
FINE_EDGES: tuple[float, ...] = tuple(round(x, 4) for x in (*(-v for v in (3, 1, *_TENS[::-1])), *_TENS, 1, 3))
PROBABILITY_EDGES: tuple[float, ...] = tuple(round(0.05 * i, 2) for i in range(21))
# Counted by two numbers of a token, logged as ``<name>_hist``: edges of the first and of the second.
GRIDS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ratio_by_position": (LENGTH_EDGES, FINE_EDGES),
    "clip_by_length": (LENGTH_EDGES, (-0.5, 0.5, 1.5)),
    "sampler_probability": (PROBABILITY_EDGES, PROBABILITY_EDGES),
}
# Segments of an objective that has none.
SEGMENT_TOKENS = 16

_LEVELS = {"token": "ratio", "segment": "ratio_segment", "seq": "ratio_seq"}
_SIDES = ("pos_high_", "pos_low_", "neg_high_", "neg_low_")
_MEANS = (
    *(f"clip_{unit}{side}frac" for unit in ("", "seq_") for side in ("", *_SIDES)),
    *("alive_frac", "c_abs_mean", "dead_frac", "entropy_nats"),
    *("policy_loss", "value_loss", "critic_grad_norm", "divergence_before_step", "step_kept_frac", "backtracks"),
    *("correction_mean", "correction_zero_frac", "clip_pos_high_prob_mean"),
)


@dataclass(frozen=True)
class Tokens:
    """A micro-batch as the log sees it, [B, T] each, no gradients; anything outside ``mask`` may be NaN.

    Attributes:
        mask: bool, the loss mask.
        log_ratio: float, log(pi_theta / pi_old), nats.
        advantages: float.
        policy_gradient: float, d(policy loss) / d(log-probability), aggregation weights included.
        gradient: float, the same of policy loss plus the objective's own penalty.
        weights: float, aggregation weights.
        clipped: bool, where the objective says its clip is active; None if it does not say.
        segment: int64, the objective's segments; None for pieces of ``SEGMENT_TOKENS``.
        old_logprobs: float, log pi_old, nats; None where it is not known.
        sampler_logprobs: float, the same as the sampler reported it.
    """

    mask: Tensor
    log_ratio: Tensor
    advantages: Tensor
    policy_gradient: Tensor
    gradient: Tensor
    weights: Tensor
    clipped: Tensor | None = None
    segment: Tensor | None = None
    old_logprobs: Tensor | None = None
    sampler_logprobs: Tensor | None = None


@dataclass
class StepMetrics:
    """Metrics of the updates on one rollout."""

    means: dict[str, Mean] = field(default_factory=dict)
    ratios: dict[str, Ratios] = field(default_factory=lambda: {level: Ratios() for level in _LEVELS})
    ratio_hist: Histogram = field(default_factory=lambda: Histogram(LOG_RATIO_EDGES))
    weight_hist: Histogram = field(default_factory=lambda: Histogram(WEIGHT_EDGES))
    variance_hist: Histogram = field(default_factory=lambda: Histogram(VARIANCE_EDGES))
    grids: dict[str, Grid] = field(default_factory=lambda: {name: Grid(*edges) for name, edges in GRIDS.items()})

    def add(self, name: str, total: float, weight: float = 1.0) -> None:
        """Add to the mean ``name``."""
        self.means.setdefault(name, Mean()).add(total, weight)

    def add_tokens(self, tokens: Tokens) -> None:
        """Add the tokens of a micro-batch; rows must be whole."""
        mask = tokens.mask.cpu()
        if not mask.any():
            return
        log_ratio = tokens.log_ratio.cpu().double()
        segment = fixed_length(mask, SEGMENT_TOKENS) if tokens.segment is None else tokens.segment.cpu()
        sums, sizes = segment_sums(log_ratio, segment, mask)
        sequence = sums.sum(1)  # [B]
        flat, advantages = log_ratio.masked_select(mask), tokens.advantages.cpu().masked_select(mask)  # [n]
        self.ratios["token"].add(flat)
        self.ratios["segment"].add(sums[sizes > 0])
        self.ratios["seq"].add(sequence[mask.any(1)])
        self.ratio_hist.add(flat)
        self._add_weights(tokens, mask, advantages)
        self._add_places(tokens, mask, log_ratio)
        if tokens.clipped is not None:
            row, clipped = mask.nonzero()[:, 0], tokens.clipped.cpu().masked_select(mask)
            lengths = mask.sum(1)
            by_token = _clip_counts(clipped, advantages, flat, row, len(mask))
            by_response = _clip_counts(clipped, advantages, sequence[row], row, len(mask))
            shares = by_response.double() / lengths.clamp(min=1)[:, None]
            for i, side in enumerate(("", *_SIDES)):
                self.add(f"clip_{side}frac", float(by_token[:, i].sum()), len(row))
                self.add(f"clip_seq_{side}frac", float(shares[:, i].sum()), float(lengths.count_nonzero()))

    def _add_weights(self, tokens: Tokens, mask: Tensor, advantages: Tensor) -> None:
        """Add what the gradient says of the tokens: which are alive, and each one's effective weight c_t."""
        alive, moved = tokens.policy_gradient.cpu().masked_select(mask) != 0, advantages != 0
        self.add("alive_frac", float(alive.sum()), len(alive))
        self.add("dead_frac", float((moved & ~alive).sum()), float(moved.sum()))
        weights = tokens.weights.cpu().masked_select(mask).double()
        weighed = weights != 0  # c_t is not defined without a weight
        c = torch.where(weighed, -tokens.gradient.cpu().masked_select(mask).double() / weights, 0.0)
        self.add("c_abs_mean", float(c.abs().sum()), float(weighed.sum()))
        shown = weighed & moved
        self.weight_hist.add(c[shown] / advantages[shown])

    def _add_places(self, tokens: Tokens, mask: Tensor, log_ratio: Tensor) -> None:
        """Add how log-ratios [B, T] lie along and within responses, and which tokens a clip meets."""
        lengths = mask.sum(1)
        position = torch.arange(1, mask.shape[1] + 1).expand_as(mask).masked_select(mask)
        self.grids["ratio_by_position"].add(position, log_ratio.masked_select(mask))
        kept = log_ratio.where(mask, 0.0)[lengths > 1]
        several = lengths[lengths > 1]
        mean = kept.sum(1) / several
        spread = (kept - mean[:, None]).square().where(mask[lengths > 1], 0.0).sum(1) / several
        self.variance_hist.add(spread)
        old = None if tokens.old_logprobs is None else tokens.old_logprobs.cpu().double()
        if old is not None and tokens.sampler_logprobs is not None:
            drawn = tokens.sampler_logprobs.cpu().double().masked_select(mask)
            self.grids["sampler_probability"].add(drawn.exp(), old.masked_select(mask).exp())
        if tokens.clipped is None:
            return
        clipped = tokens.clipped.cpu() & mask
        self.grids["clip_by_length"].add(
            lengths[:, None].expand_as(mask).masked_select(mask), clipped.masked_select(mask)
        )
        if old is not None:
            up = clipped & (tokens.advantages.cpu() > 0) & (log_ratio > 0)
            probability = (old + log_ratio).masked_select(up).exp()
            self.add("clip_pos_high_prob_mean", float(probability.sum()), len(probability))

    def join(self, other: "StepMetrics") -> None:
        """Add what ``other`` has seen of the same rollout."""
        for name, mean in other.means.items():
            self.means.setdefault(name, Mean()).join(mean)
        for level, ratios in other.ratios.items():
            self.ratios[level].join(ratios)
        self.ratio_hist.join(other.ratio_hist)
        self.weight_hist.join(other.weight_hist)
        self.variance_hist.join(other.variance_hist)
        for name, grid in other.grids.items():
            self.grids[name].join(grid)

    def summary(self) -> dict[str, Any]:
        """Return means, extremes and effective sample sizes of the ratios, and histograms as plain values."""
        found: dict[str, Any] = {**dict.fromkeys(_MEANS), **{name: mean.value() for name, mean in self.means.items()}}
        for level, name in _LEVELS.items():
            found[f"{name}_min"], found[f"{name}_max"], found[f"ess_{level}_frac"] = self.ratios[level].value()
        found["ratio_hist"] = self.ratio_hist.value()
        found["c_per_advantage_hist"] = self.weight_hist.value()
        found["log_ratio_variance_hist"] = self.variance_hist.value()
        found |= {f"{name}_hist": grid.value() for name, grid in self.grids.items()}
        return dict(sorted(found.items()))


def _clip_counts(clipped: Tensor, advantages: Tensor, side: Tensor, row: Tensor, rows: int) -> Tensor:
    """Count clipped tokens by the signs of ``advantages`` and of ``side``.

    Args:
        clipped: [n] bool.
        advantages: [n] float.
        side: [n] float64, log-ratio of the token or of its response.
        row: [n] int64, in [0, rows).
        rows: B.

    Returns:
        [B, 5] int64: all, then as in ``_SIDES``.
    """
    # One number for each of the nine pairs of signs, from 1; 0 for what is not clipped.
    case = torch.where(clipped, 5 + 3 * advantages.sign() + side.sign(), 0).long()
    counts = torch.bincount(10 * row + case, minlength=10 * rows).view(rows, 10)
    sides = counts[:, [5 + 3 + 1, 5 + 3 - 1, 5 - 3 + 1, 5 - 3 - 1]]
    return torch.cat([counts[:, 1:].sum(1, keepdim=True), sides], 1)
