"""Made-up rollouts and current policies that the contract and the tests hold objectives against.

A case has what trips implementations: an empty response, a tool's tokens inside one, an unknown reward, a response cut
off by the window, a group of equal rewards, replayed rows, interleaved groups.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from objectives.base import Finish, Origin, Rollout

__all__ = ["CARRIES_GRADIENT", "Case", "far", "padded", "random_case", "with_logprobs"]

_LENGTHS = (5, 9, 1, 7, 3, 0, 8, 6, 2, 4, 9, 5)
_NUM_PROMPTS = 3
_WIDTH = 9
_MAX_RESPONSE_TOKENS = 12
_STEP_END_SHARE = 0.4
CARRIES_GRADIENT = (
    *("logprobs", "values", "entropy", "projection_gap"),
    *("exact_kl_old", "exact_kl_new_old", "exact_kl_ref", "exact_kl_new_ref"),
)


@dataclass(frozen=True)
class Case:
    """A rollout, and what the current policy and critic say of it.

    Attributes:
        rollout: 12 responses to 3 prompts (interleaved): one empty, one with a tool's tokens inside, one with an
            unknown reward, one cut off by the window, and one group of equal rewards.
        current: [N, T] float by name: logprobs, values, entropy, and the exact divergences.
    """

    rollout: Rollout
    current: Mapping[str, Tensor]


def random_case(
    requires: frozenset[str] = frozenset(), *, seed: int = 0, dtype: torch.dtype = torch.float64, spread: float = 0.3
) -> Case:
    """Return a seeded case whose log-ratios scatter by ``spread`` nats a token; 0 for pi_theta = pi_old."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    rows = len(_LENGTHS)
    mask = torch.arange(_WIDTH) < torch.tensor(_LENGTHS)[:, None]
    mask[6, 2:4] = False
    group = torch.arange(rows) % _NUM_PROMPTS
    rewards = torch.where(group == 1, 0.7, normal(rows))
    rewards[3] = torch.nan
    finish = torch.full((rows,), int(Finish.EOS), dtype=torch.int8)
    finish[[1, 10]] = int(Finish.LENGTH)
    finish[0] = int(Finish.WINDOW)
    origin = torch.full((rows,), int(Origin.FRESH), dtype=torch.int8)
    origin[8] = int(Origin.REPLAY)
    old_logprobs = -1 - normal(rows, _WIDTH).abs()
    optional = {
        "rollout_logprobs": old_logprobs + 0.01 * normal(rows, _WIDTH),
        "ref_logprobs": old_logprobs + 0.2 * normal(rows, _WIDTH),
        "teacher_logprobs": -normal(rows, _WIDTH).abs(),
        "old_entropy": normal(rows, _WIDTH).abs(),
        "old_values": normal(rows, _WIDTH + 1),
        "greedy_rewards": normal(_NUM_PROMPTS)[group],
        "correct": (rewards > 0).to(dtype),
        "prompt": group,
        "uniforms": (old_logprobs * 1e4).remainder(1),
        "step_ends": (old_logprobs * 1e3).remainder(1) < _STEP_END_SHARE,
        "window_mask": torch.arange(_WIDTH) >= (torch.arange(rows) % 4 == 1)[:, None] * 2,
        "task_steps": (torch.arange(_WIDTH) // 3).expand(rows, _WIDTH),
    }
    rollout = Rollout(
        rewards=rewards,
        group=group,
        origin=origin,
        finish=finish,
        response_ids=torch.randint(0, 50, (rows, _WIDTH), generator=generator),
        response_mask=mask,
        old_logprobs=old_logprobs,
        max_response_tokens=_MAX_RESPONSE_TOKENS,
        **{name: value for name, value in optional.items() if name in requires},
    )
    return Case(rollout, _current(rollout, normal, spread))


def _current(rollout: Rollout, normal: Callable[..., Tensor], spread: float) -> dict[str, Tensor]:
    """Return what ``Case.current`` holds, drawn by ``normal(*shape)``."""
    shape = rollout.old_logprobs.shape
    current = {
        "logprobs": rollout.old_logprobs + spread * normal(*shape),
        "values": normal(*shape),
        "entropy": normal(*shape).abs(),
        "exact_kl_old": normal(*shape).square(),
    }
    return current | {name: normal(*shape).square() for name in CARRIES_GRADIENT if name not in current}


def padded(case: Case, columns: int) -> Case:
    """Return ``case`` with ``columns`` more columns of zeros outside every mask."""
    changed = {
        item.name: torch.nn.functional.pad(value, (0, columns))
        for item in fields(case.rollout)
        if isinstance(value := getattr(case.rollout, item.name), Tensor) and value.ndim > 1
    }
    current = {name: torch.nn.functional.pad(value, (0, columns)) for name, value in case.current.items()}
    return Case(replace(case.rollout, **changed), current)  # pyright: ignore[reportArgumentType]


def with_logprobs(case: Case, logprobs: Tensor) -> Case:
    """Return ``case`` under another current policy."""
    return Case(case.rollout, {**case.current, "logprobs": logprobs})


def far(case: Case, distance: float, every: int = 1) -> Case:
    """Move every ``every``-th token ``distance`` nats up or down from pi_old."""
    old = case.rollout.old_logprobs
    place = torch.arange(old.numel()).reshape(old.shape)
    moved = old + torch.where(place // every % 2 == 0, distance, -distance)
    return with_logprobs(case, torch.where(place % every == 0, moved, case.current["logprobs"]))
