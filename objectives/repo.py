"""RePO: GRPO on fresh and on replayed responses (Li et al. 2025, arXiv:2506.09340).

    A     = (R - mean) / (std + std_eps) of the row's own group ("split"), or of fresh and replayed rows of its prompt
            together ("mixed")
    loss  = -min(r_t A, clip(r_t, 1 - low, 1 + high) A),   r_t = pi_theta / policy that wrote the row
    c_t   = r_t A, 0 where clipped; times replay_coef in replayed rows

Weights: 1 / (rows * tokens of the row); fresh and replayed rows each by their own number of rows, as the formula of the
paper reads. The authors' code divides both by the number of all rows (``normaliser = "all"``), which halves both parts
where there are as many replays as fresh responses.
Differs from GRPO: by the replayed rows, whose ratio is to their own behaviour policy. The buffer is ``[replay]`` of the
run, open to any objective; RePO's own is strategy "highest_k", 8 replays, 16 remembered (their script).
Reduces to: GRPO where nothing is replayed, as in the first visits of a prompt: one is replayed from its third visit on
with 8 responses a visit. With "highest_k", "split" and rewards 0 and 1, replays teach only while successes are rare:
a group of successes alone has advantage 0.
Defaults: clip 0.2, split, replay_coef 1 from the authors' script; their std_eps 1e-4. No KL (their beta is 0).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from objectives.advantages import group_advantages, row_targets
from objectives.aggregation import sequence_mean
from objectives.base import Origin, Rollout, Step, Targets
from objectives.checks import require_at_least
from objectives.families import TokenClip


@dataclass(frozen=True)
class RePO(TokenClip):
    """Replay-enhanced policy optimisation.

    Attributes:
        advantages: "split" compares a row within its own group, "mixed" with all responses to its prompt.
        replay_coef: factor of replayed rows, at least 0.
        normaliser: divide fresh and replayed rows by their "own" number of rows, or both by that of "all".
        std_eps: added to the standard deviation, reward units.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"prompt"})
    min_group_size: ClassVar[int] = 2

    advantages: Literal["split", "mixed"] = "split"
    replay_coef: float = 1.0
    normaliser: Literal["own", "all"] = "own"
    std_eps: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, replay_coef=self.replay_coef, std_eps=self.std_eps)

    def aggregation(self, step: Step) -> Tensor:
        """Return the weights; rows of each origin count their own, unless ``normaliser`` says otherwise."""
        weights = sequence_mean(step)
        live, replayed = step.loss_mask.any(1), step.origin == Origin.REPLAY
        if self.normaliser == "own":
            rows = live.sum()
            share = torch.where(replayed, (live & replayed).sum(), (live & ~replayed).sum()).clamp(min=1)
            weights = weights * (rows.to(weights.dtype) / share)[:, None]
        return torch.where(replayed[:, None], self.replay_coef * weights, weights)

    def targets(self, rollout: Rollout) -> Targets:
        group = rollout.group
        if self.advantages == "mixed":
            if rollout.prompt is None:
                raise ValueError("repo with advantages = 'mixed' reads Rollout.prompt, which is None")
            group = rollout.prompt
        return row_targets(rollout, group_advantages(rollout.rewards, group, scale="group", std_eps=self.std_eps))
