"""Subsequence-clipped GSPO: the proposal under test, a product of clipped segment ratios (no publication; no arXiv id).

A response a is cut into K segments; L_k = sum_{t in S_k} log(pi_theta / pi_old), w_k = 1 or 1/|S_k|:

    rho_k = clip(exp(w_k L_k), 1 - low, 1 + high)
    loss  = -A rho / T_max,   rho = prod_k rho_k                                 combine = "product" (the proposal)
    loss  = -A mean_t rho_k(t)     (raw: -A sum_k rho_k / T_max)                 combine = "mean"
    c_t   = A rho, 0 where the segment of t is clipped ("stopgrad": nowhere)

    clip_mode "plain":     the literal formula. Also clips a segment that lies on the wrong side of its advantage, which
                           then gets no gradient back; when all segments are clipped the response is dead.
    clip_mode "one_sided": clip only what goes further out: A > 0: min(rho_k, 1 + high); A < 0: max(rho_k, 1 - low).
                           Raw and as a product, a lower bound of the exact A prod_k exp(L_k), equal at pi_old.
    clip_mode "outer_min": min(A rho, A rho_raw) of "plain"; a lower bound as well, and a tighter one.
    clip_mode "stopgrad":  rho of "plain" is a detached weight and every token keeps its gradient: -A rho log pi_theta.

Weights: 1 / (rows * max_response_tokens); 1 / (rows * tokens of the row) where normalised. Raw ratios (norm "none", no
root) have gradient A per token whatever the length, so they are divided by a constant; normalised forms average over a
response, as GSPO does.
Differs from GSPO: the ratio is clipped per segment before the segments are combined, and (raw) is not normalised by
length.
Reduces to (presets of these names): GSPO: one segment, norm "mean", one_sided. GRPO: one token a segment, combine
"mean", one_sided. GMPO: one token a segment, product, outer_root "tokens", one_sided. TRL's RLOO: one segment, raw,
one_sided.
Invalid with one response a prompt, or one update a rollout. Segments are cut from the response and from pi_old, and
never move with pi_theta.
Defaults are the literal proposal: K equal parts, raw ratios, product, plain clip. It names no numbers: 4 segments and
clip 0.2 are ours. K equal parts are no stopping times (see ``segments.fixed_count``); all other rules are.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from objectives.advantages import group_advantages, leave_one_out_advantages, row_targets
from objectives.aggregation import constant, sequence_mean
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.checks import refuse_unread, require_at_least, require_between
from objectives.ops import MAX_LOG_RATIO, log_bound, log_ratio, masked, row_mean, saturated
from objectives.segments import READS, SETTINGS, Rule, count_segments, cut, segment_sums


@dataclass(frozen=True)
class GSPOSubsequence(Objective):
    """GSPO with one clipped ratio a segment.

    Attributes:
        segment_rule: "fixed_k", "fixed_length", "delimiter", "entropy", "random" or "oracle": see ``segments.cut``.
        num_segments: K of "fixed_k", at least 1.
        segment_tokens: tokens a segment of "fixed_length", their mean of "random"; at least 1.
        entropy_threshold: "entropy" cuts before tokens where pi_old's entropy exceeds this, nats, at least 0.
        min_segment_tokens: no cut of the last four rules before a segment has so many tokens; at least 1.
        max_segment_tokens: a cut of the same rules after so many in any case; None for no bound.
        norm: "none" for raw segment ratios exp(L_k), "mean" for exp(L_k / |S_k|).
        combine: "product" of segment ratios, or "mean" weighted by their tokens.
        outer_root: of a product: "none", "segments" (1/K) or "tokens" (1/T).
        clip_mode: "plain", "one_sided", "outer_min" or "stopgrad".
        clip_scale: factor of the bounds' logarithms: "const" 1; "sqrt_len" the root of the segment's tokens (with norm
            "mean" one over it), as the log-ratio scatters; "budget" 1/K, one response's bounds shared out.
        clip_low: segment ratio is clipped to >= 1 - clip_low; in [0, 1], 1 leaves it free.
        clip_high: segment ratio is clipped to <= 1 + clip_high; at least 0, inf leaves it free.
        dual_clip: upper bound of a segment's ratio where A < 0, for "one_sided", which has none; above 1.
        outer_low: the product is clipped to >= 1 - outer_low; in [0, 1]; None leaves it free.
        outer_high: the product is clipped to <= 1 + outer_high; at least 0; None leaves it free.
        advantages: "grpo" (R - mean) / std of the group, "dr_grpo" R - mean, or "rloo" R - mean of the others.
        std_eps: added to the group's standard deviation, reward units.
    """

    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "several"
    min_group_size: ClassVar[int] = 2
    gives: ClassVar[frozenset[str]] = frozenset({"segment"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "literal": {},
        "one_sided": {"clip_mode": "one_sided"},
        "detached": {"clip_mode": "stopgrad"},
        "rloo": {"num_segments": 1, "clip_mode": "one_sided", "advantages": "rloo"},
        "gspo": {"num_segments": 1, "norm": "mean", "clip_mode": "one_sided", "clip_low": 3e-4, "clip_high": 4e-4},
        "grpo": {
            "segment_rule": "fixed_length",
            "segment_tokens": 1,
            "norm": "mean",
            "combine": "mean",
            "clip_mode": "one_sided",
        },
        "gmpo": {
            "segment_rule": "fixed_length",
            "segment_tokens": 1,
            "outer_root": "tokens",
            "clip_mode": "one_sided",
            "clip_low": -math.expm1(-0.4),
            "clip_high": math.expm1(0.4),
        },
    }

    segment_rule: Rule = "fixed_k"
    num_segments: int = 4
    segment_tokens: int = 16
    entropy_threshold: float = 1.0
    min_segment_tokens: int = 1
    max_segment_tokens: int | None = None
    norm: Literal["none", "mean"] = "none"
    combine: Literal["product", "mean"] = "product"
    outer_root: Literal["none", "segments", "tokens"] = "none"
    clip_mode: Literal["plain", "one_sided", "outer_min", "stopgrad"] = "plain"
    clip_scale: Literal["const", "sqrt_len", "budget"] = "const"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    outer_low: float | None = None
    outer_high: float | None = None
    advantages: Literal["grpo", "dr_grpo", "rloo"] = "grpo"
    std_eps: float = 1e-6

    def __post_init__(self) -> None:
        require_at_least(1, num_segments=self.num_segments, segment_tokens=self.segment_tokens)
        require_at_least(1, min_segment_tokens=self.min_segment_tokens)
        require_between(0, 1, clip_low=self.clip_low, outer_low=self.outer_low or 0)
        require_at_least(0, clip_high=self.clip_high, std_eps=self.std_eps, outer_high=self.outer_high or 0)
        require_at_least(0, entropy_threshold=self.entropy_threshold)
        if self.max_segment_tokens is not None:
            require_at_least(self.min_segment_tokens, max_segment_tokens=self.max_segment_tokens)
        self._refuse_contradictions()

    def _refuse_contradictions(self) -> None:
        unread = frozenset[str]().union(*SETTINGS.values()) - SETTINGS[self.segment_rule]
        refuse_unread(self, unread, f"segment_rule = {self.segment_rule!r}")
        if self.advantages != "grpo":
            refuse_unread(self, {"std_eps"}, f"advantages = {self.advantages!r}")
        if self.combine == "mean":
            of_product = {
                "outer_root": self.outer_root != "none",
                "clip_mode = 'outer_min'": self.clip_mode == "outer_min",
                "outer_low": self.outer_low is not None,
                "outer_high": self.outer_high is not None,
            }
            for setting, given in of_product.items():
                if given:
                    raise ValueError(f"{setting} is about a product of ratios; use combine = 'product'")
        if self.dual_clip is not None:
            if self.clip_mode != "one_sided":
                raise ValueError(f"dual_clip is for clip_mode = 'one_sided'; {self.clip_mode!r} bounds ratios already")
            if not self.dual_clip > 1:
                raise ValueError(f"dual_clip = {self.dual_clip!r} must be above 1")

    @property
    def requires(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the segment rule reads."""
        return frozenset({READS[self.segment_rule]} if self.segment_rule in READS else ())

    @property
    def _raw(self) -> bool:
        return self.norm == "none" and self.outer_root == "none"

    def aggregation(self, step: Step) -> Tensor:
        return constant(step) if self._raw else sequence_mean(step)

    def targets(self, rollout: Rollout) -> Targets:
        segment = cut(
            rollout,
            self.segment_rule,
            count=self.num_segments,
            tokens=self.segment_tokens,
            threshold=self.entropy_threshold,
            min_tokens=self.min_segment_tokens,
            max_tokens=self.max_segment_tokens,
        )
        if self.advantages == "rloo":
            advantages = leave_one_out_advantages(rollout.rewards, rollout.group)
        else:
            scale = "group" if self.advantages == "grpo" else "none"
            advantages = group_advantages(rollout.rewards, rollout.group, scale=scale, std_eps=self.std_eps)
        return row_targets(rollout, advantages, {"segment": segment})

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask, segment = batch.loss_mask, batch.extras["segment"]
        advantage = row_mean(batch.advantages, mask)  # [B, 1]
        pair = batch.logprobs, batch.old_logprobs, mask
        total, tokens = segment_sums(log_ratio(*pair), segment, mask)
        free = total / tokens.clamp(min=1) if self.norm == "mean" else total  # [B, segments], log ratio
        bounded = self._clip(free, advantage, tokens)
        clipped = (bounded != free).gather(1, segment)
        if self.combine == "product":
            log_rho, clipped = self._product(bounded, free, advantage, tokens, clipped)
            log_rho = log_rho.expand_as(segment)
        else:
            log_rho = bounded.gather(1, segment)
        surrogate = log_rho.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        clipped = clipped | (log_rho.abs() > MAX_LOG_RATIO) | saturated(*pair)
        if self.clip_mode == "stopgrad":
            policy = -surrogate.detach() * advantage * masked(batch.logprobs, mask)
        else:
            policy = -surrogate * advantage * self._share(tokens, segment)
        return TokenLoss(policy=policy, stats={"clipped": clipped})

    def _clip(self, free: Tensor, advantage: Tensor, tokens: Tensor) -> Tensor:
        """Bound the log-ratios of segments [B, segments], strictly between the bounds with gradient 1."""
        scale = self._scale(tokens)
        low, high = log_bound(-self.clip_low) * scale, log_bound(self.clip_high) * scale
        if self.clip_mode == "one_sided":
            dual = math.inf if self.dual_clip is None else math.log(self.dual_clip)
            # Not minimum and maximum, which halve the gradient at the bound itself.
            below, above = torch.where(free <= high, free, high), torch.where(free >= low, free, low)
            return torch.where(advantage >= 0, below, above.clamp(max=dual))
        return free.clamp(low, high)

    def _scale(self, tokens: Tensor) -> Tensor:
        """Return the factor of the bounds' logarithms [B, segments]."""
        if self.clip_scale == "sqrt_len":
            root = tokens.clamp(min=1).sqrt()
            return 1 / root if self.norm == "mean" else root
        if self.clip_scale == "budget":
            return (1 / count_segments(tokens)).expand_as(tokens)
        return torch.ones_like(tokens)

    def _product(
        self, bounded: Tensor, free: Tensor, advantage: Tensor, tokens: Tensor, clipped: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the logarithm of the product [B, 1] and where a clip is active [B, T]."""
        root = self._root(tokens)
        inner, raw = ((x * root).sum(1, keepdim=True) for x in (bounded, free))
        low = -math.inf if self.outer_low is None else log_bound(-self.outer_low)
        high = math.inf if self.outer_high is None else log_bound(self.outer_high)
        product = inner.clamp(low, high)
        if self.clip_mode == "one_sided":
            product = torch.where(advantage >= 0, inner.clamp(max=high), inner.clamp(min=low))
        clipped = clipped | (product != inner)
        if self.clip_mode == "outer_min":
            lower = torch.where(advantage >= 0, raw < product, raw > product)
            product, clipped = torch.where(lower, raw, product), clipped & ~lower
        return product, clipped

    def _root(self, tokens: Tensor) -> Tensor | float:
        if self.outer_root == "segments":
            return 1 / count_segments(tokens)
        if self.outer_root == "tokens":
            return 1 / tokens.sum(1, keepdim=True).clamp(min=1)
        return 1.0

    def _share(self, tokens: Tensor, segment: Tensor) -> Tensor | float:
        """What of a row's or segment's raw surrogate stands at each of its tokens, so that the row's sum is whole."""
        if not self._raw:
            return 1.0
        if self.combine == "product":
            return 1 / tokens.sum(1, keepdim=True).clamp(min=1)
        return 1 / tokens.gather(1, segment).clamp(min=1)
