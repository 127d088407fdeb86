"""Subsequence-clipped GSPO: the proposal under test, a product of clipped segment ratios (no publication; no arXiv id).

A response a is cut into K segments; L_k = sum_{t in S_k} log(pi_theta / pi_old), w_k = 1 or 1/|S_k|:

    rho_k = clip(exp(w_k L_k), 1 - low, 1 + high)
    loss  = -A rho / T_max,   rho = prod_k rho_k                                 combine = "product" (the proposal)
    loss  = -A mean_t rho_k(t)     (raw: -A sum_k rho_k / T_max)                 combine = "mean"

    clip_mode "plain":     the literal formula. Also clips a segment that lies on the wrong side of its advantage, which
                           then gets no gradient back; when all segments are clipped the response is dead.
    clip_mode "one_sided": clip only what goes further out: A > 0: min(rho_k, 1 + high); A < 0: max(rho_k, 1 - low).
                           Raw and as a product, a lower bound of the exact A prod_k exp(L_k), equal at pi_old.
    clip_mode "stopgrad":  rho of "plain" is a detached weight and every token keeps its gradient: -A rho log pi_theta.

Differs from GSPO: the ratio is clipped per segment before the segments are combined, and (raw) is not normalised by
length. One segment, norm "mean", one_sided: GSPO. One token a segment, combine "mean", one_sided: GRPO. One token a
segment, product, outer_root "tokens", one_sided: GMPO. One segment, raw, one_sided: PPO on whole responses.

Scale. For raw ratios (norm "none", no root) the exact sequence objective has gradient A per token whatever the length;
it is divided by max_response_tokens, a constant. Normalised forms average over a response, as GSPO does.
Invalid with one response a prompt, or one update a rollout. Segments are cut from the response and never move.
Defaults are the literal proposal: K equal parts, raw ratios, product, plain clip. It names no numbers: 4 segments and
clip 0.2 are ours. K equal parts are no stopping times (see ``segments.fixed_count``); segment_rule "fixed_length" is.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from objectives.aggregation import constant, sequence_mean
from objectives.base import Batch, Objective, Rollout, Step, Targets, TokenLoss
from objectives.checks import require_at_least, require_between
from objectives.ops import MAX_LOG_RATIO, broadcast_rows, group_advantages, log_ratio, masked, row_mean, saturated
from objectives.segments import fixed_count, fixed_length, segment_sums


@dataclass(frozen=True)
class GSPOSubsequence(Objective):
    """GSPO with one clipped ratio a segment.

    Attributes:
        segment_rule: "fixed_k" cuts every response into ``num_segments`` equal parts, "fixed_length" after every
            ``segment_tokens`` tokens.
        num_segments: K of "fixed_k", at least 1.
        segment_tokens: tokens a segment of "fixed_length", at least 1.
        norm: "none" for raw segment ratios exp(L_k), "mean" for exp(L_k / |S_k|).
        combine: "product" of segment ratios, or "mean" weighted by their tokens.
        outer_root: of a product: "none", "segments" (1/K) or "tokens" (1/T).
        clip_mode: "plain", "one_sided" or "stopgrad".
        clip_low: segment ratio is clipped to >= 1 - clip_low; in [0, 1], 1 leaves it free.
        clip_high: segment ratio is clipped to <= 1 + clip_high; at least 0, inf leaves it free.
        std_eps: added to the group's standard deviation, reward units.
    """

    updates_per_rollout: ClassVar[Literal["one", "several", "any"]] = "several"
    min_group_size: ClassVar[int] = 2
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "literal": {},
        "one_sided": {"clip_mode": "one_sided"},
        "detached": {"clip_mode": "stopgrad"},
    }

    segment_rule: Literal["fixed_k", "fixed_length"] = "fixed_k"
    num_segments: int = 4
    segment_tokens: int = 16
    norm: Literal["none", "mean"] = "none"
    combine: Literal["product", "mean"] = "product"
    outer_root: Literal["none", "segments", "tokens"] = "none"
    clip_mode: Literal["plain", "one_sided", "stopgrad"] = "plain"
    clip_low: float = 0.2
    clip_high: float = 0.2
    std_eps: float = 1e-6

    def __post_init__(self) -> None:
        require_at_least(1, num_segments=self.num_segments, segment_tokens=self.segment_tokens)
        require_between(0, 1, clip_low=self.clip_low)
        require_at_least(0, clip_high=self.clip_high, std_eps=self.std_eps)
        if self.combine == "mean" and self.outer_root != "none":
            raise ValueError(f"outer_root = {self.outer_root!r} is a root of a product; use combine = 'product'")

    @property
    def _raw(self) -> bool:
        return self.norm == "none" and self.outer_root == "none"

    def aggregation(self, step: Step) -> Tensor:
        return constant(step) if self._raw else sequence_mean(step)

    def targets(self, rollout: Rollout) -> Targets:
        mask = rollout.scored
        advantages = group_advantages(rollout.rewards, rollout.group, scale_by_std=True, std_eps=self.std_eps)
        if self.segment_rule == "fixed_k":
            segment = fixed_count(mask, self.num_segments)
        else:
            segment = fixed_length(mask, self.segment_tokens)
        return Targets(broadcast_rows(advantages, mask), mask, extras={"segment": segment})

    def token_loss(self, batch: Batch) -> TokenLoss:
        mask, segment = batch.loss_mask, batch.extras["segment"]
        advantage = row_mean(batch.advantages, mask)  # [B, 1]
        pair = batch.logprobs, batch.old_logprobs, mask
        total, tokens = segment_sums(log_ratio(*pair), segment, mask)
        free = total / tokens.clamp(min=1) if self.norm == "mean" else total  # [B, segments], log ratio
        bounded = self._clip(free, advantage)
        if self.combine == "product":
            log_rho = (bounded * self._root(tokens)).sum(1, keepdim=True).expand_as(segment)
        else:
            log_rho = bounded.gather(1, segment)
        surrogate = log_rho.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        clipped = (bounded != free).gather(1, segment) | (log_rho.abs() > MAX_LOG_RATIO) | saturated(*pair)
        if self.clip_mode == "stopgrad":
            policy = -surrogate.detach() * advantage * masked(batch.logprobs, mask)
        else:
            policy = -surrogate * advantage * self._share(tokens, segment)
        return TokenLoss(policy=policy, stats={"clipped": clipped})

    def _clip(self, free: Tensor, advantage: Tensor) -> Tensor:
        """Bound the log-ratios of segments [B, segments], strictly between the bounds with gradient 1."""
        low = math.log1p(-self.clip_low) if self.clip_low < 1 else -math.inf
        high = math.log1p(self.clip_high)
        if self.clip_mode == "one_sided":
            return free.clamp(max=high).where(advantage >= 0, free.clamp(min=low))
        return free.clamp(low, high)

    def _root(self, tokens: Tensor) -> Tensor | float:
        if self.outer_root == "segments":
            return 1 / (tokens > 0).to(tokens.dtype).sum(1, keepdim=True).clamp(min=1)
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
