"""Drop segments of a response that have left the region (ours, between token and sequence masks; no arXiv id).

    segment k out: sum_{t in S_k} k3_t > delta: its tokens' policy loss is 0, denominators stay

Differs from ``mask_sequence``: one drifted segment does not silence the rest of its response. From a clip of segment
ratios: the estimate of KL(pi_old || pi_theta) is bounded, in both directions and for both signs of the advantage.
Defaults are ours: segments of 16 tokens; delta 0.1 nats a segment.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from objectives.base import Batch
from objectives.checks import require_at_least, require_positive
from objectives.kl import k3
from objectives.segments import fixed_length, segment_sums
from objectives.trust_region.base import Unit
from objectives.trust_region.measured import KLRegion


@dataclass(frozen=True)
class MaskSegment(KLRegion):
    """Mask the policy loss of segments that the policy has moved away from.

    Attributes:
        delta: largest sum of k3 over a segment, nats, above 0.
        segments: "fixed_length", or "objective" for those that a segment objective has cut.
        segment_tokens: tokens a segment of "fixed_length", at least 1.
    """

    unit: Unit = "per_sequence"
    delta: float = 0.1
    segments: Literal["fixed_length", "objective"] = "fixed_length"
    segment_tokens: int = 16

    def __post_init__(self) -> None:
        require_positive(delta=self.delta)
        require_at_least(1, segment_tokens=self.segment_tokens)

    @property
    def bounds_kl_old(self) -> bool:
        """Its bound is on something else: see delta."""
        return False

    @property
    def reads_extras(self) -> frozenset[str]:
        """The objective's segments, if they are asked for."""
        return frozenset({"segment"} if self.segments == "objective" else ())

    def init(self) -> float:
        """Return 0: there is no penalty."""
        return 0.0

    def keep(self, batch: Batch) -> Tensor:
        """Return [B, T] bool: whole segments."""
        mask = batch.loss_mask
        segment = fixed_length(mask, self.segment_tokens)
        if self.segments == "objective":
            segment = batch.extras["segment"]
        sums, _ = segment_sums(k3(batch.logprobs.detach(), batch.old_logprobs, mask), segment, mask)
        return sums.gather(1, segment) <= self.delta
