"""Rows of chosen ratios and advantages, for gradients per token against closed forms."""

from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from objectives import Finish, Objective, Rollout, Targets
from objectives.reference_engine import Case, one_step

RATIOS = (0.05, 0.4, 0.7, 0.85, 0.95, 1.0, 1.05, 1.15, 1.25, 1.6, 3.5, 8.0)
ADVANTAGES = (-2.0, -0.3, 0.0, 0.4, 1.5)
# One token; three of the same ratio; three that differ.
SHAPES = ((1.0,), (1.0, 1.0, 1.0), (1.0, 0.9, 1.3))
_GROUPS = 36
_WIDTH = 3


@dataclass(frozen=True)
class Grid:
    """Every ratio with every advantage in every shape, and what the closed forms are written in.

    Attributes:
        case: the data; each row's rewards and extras are made up, its advantages are given by ``slopes``.
        advantages: [N, T].
        mask: [N, T] bool.
        r: [N, T], ratio of a token; 1 where masked.
        pi: [N, T], probability of a token under the current policy; 1 where masked.
        mu: [N, T], the same under the old one.
    """

    case: Case
    advantages: Tensor
    mask: Tensor
    r: Tensor
    pi: Tensor
    mu: Tensor

    @property
    def l(self) -> Tensor:  # noqa: E743
        """[N, T], log-ratio of a token; 0 where masked."""
        return self.r.log()

    @property
    def n(self) -> Tensor:
        """[N, 1], tokens of the row."""
        return self.mask.sum(1, keepdim=True)

    @property
    def whole(self) -> Tensor:
        """[N, 1], ratio of the whole response."""
        return self.r.prod(1, keepdim=True)

    @property
    def s(self) -> Tensor:
        """[N, 1], geometric mean of the row's ratios."""
        return self.whole ** (1 / self.n)

    def slopes(self, objective: Objective) -> Tensor:
        """Return c_t = -d loss / d log pi_t over the token's weight [N, T]; 0 where masked."""

        def given(targets: Targets) -> Targets:
            return replace(targets, advantages=self.advantages)

        outcome = one_step(objective, self.case, edit=given)
        return torch.where(self.mask, -outcome.gradients["logprobs"] / outcome.weights, 0.0)


def grid(pattern: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Grid:
    """Return the grid; a row's advantage is multiplied by ``pattern`` along its tokens."""
    generator = torch.Generator().manual_seed(0)
    rows = list(product(SHAPES, RATIOS, ADVANTAGES))
    count = len(rows)
    mask = torch.tensor([[t < len(shape) for t in range(_WIDTH)] for shape, _, _ in rows])
    ratios = torch.tensor([[r * x for x in (*shape, 1, 1)[:_WIDTH]] for shape, r, _ in rows], dtype=torch.float64)
    ratios = torch.where(mask, ratios, 1.0)
    old = torch.where(torch.arange(count) % 2 == 0, 0.02, 0.09).double()[:, None].expand(count, _WIDTH)
    mu = torch.where(mask, old, 1.0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    advantages = torch.tensor([a for _, _, a in rows], dtype=torch.float64)[:, None] * torch.tensor(pattern)
    rollout = Rollout(
        rewards=noise(count),
        group=torch.arange(count) % _GROUPS,
        origin=torch.zeros(count, dtype=torch.int8),
        finish=torch.full((count,), int(Finish.EOS), dtype=torch.int8),
        response_ids=torch.zeros(count, _WIDTH, dtype=torch.int64),
        response_mask=mask,
        old_logprobs=mu.log() + 1e-6 * noise(count, _WIDTH),
        ref_logprobs=mu.log() + noise(count, _WIDTH),
        teacher_logprobs=mu.log() + noise(count, _WIDTH),
        old_values=noise(count, _WIDTH + 1),
        greedy_rewards=noise(count),
        correct=(noise(count) > 0).double(),
        window_mask=mask,
        max_response_tokens=_WIDTH + 2,
    )
    logprobs = rollout.old_logprobs + ratios.log()
    current = {name: noise(count, _WIDTH) for name in ("values", "entropy", "exact_kl_old")} | {"logprobs": logprobs}
    return Grid(
        case=Case(rollout, current),
        advantages=torch.where(mask, advantages, 0.0),
        mask=mask,
        r=ratios,
        pi=torch.where(mask, logprobs.exp(), 1.0),
        mu=torch.where(mask, rollout.old_logprobs.exp(), 1.0),
    )
