"""Seeded batches for the comparison with other libraries, our side of it, and what both sides exchange."""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from objectives import Finish, Objective, Origin, Rollout, Targets
from objectives.reference_engine import Case, Outcome, one_step

PROMPTS = 3
GROUP_SIZE = 8
WIDTH = 12
LIMIT = 16
RTOL = 1e-7


@dataclass(frozen=True)
class Tokens:
    """What both sides are given, [N, T] each; what stands outside ``mask`` is finite and means nothing."""

    logprobs: Tensor
    old_logprobs: Tensor
    ref_logprobs: Tensor
    advantages: Tensor
    mask: Tensor

    @property
    def row_advantages(self) -> Tensor:
        """[N]: the advantage of each row's first token."""
        return self.advantages.gather(1, self.mask.int().argmax(1, keepdim=True))[:, 0]

    def rows(self, start: int, stop: int) -> "Tokens":
        return Tokens(**{item.name: getattr(self, item.name)[start:stop] for item in fields(self)})


@dataclass(frozen=True)
class Result:
    """What a peer says: the loss, its gradient [N, T] to what carries one, and what it logs as clipped."""

    loss: Tensor
    gradient: Tensor
    clip_fraction: float | None = None


def make_case(*, seed: int = 0, spread: float = 0.4, holes: bool = False, one_length: int | None = None) -> Case:
    """Return 3 prompts with 8 responses of 1 to 12 tokens, all scored; with ``holes`` some hold a tool's tokens."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    rows = PROMPTS * GROUP_SIZE
    lengths = torch.randint(1, WIDTH + 1, (rows,), generator=generator)
    if one_length is not None:
        lengths = torch.full_like(lengths, one_length)
    mask = torch.arange(WIDTH) < lengths[:, None]
    if holes:
        mask &= (torch.rand(rows, WIDTH, generator=generator) > 0.3) | (torch.arange(WIDTH) == lengths[:, None] - 1)
    old_logprobs = -0.1 - normal(rows, WIDTH).abs()
    rewards = normal(rows)
    rollout = Rollout(
        rewards=rewards,
        group=torch.arange(rows) // GROUP_SIZE,
        origin=torch.full((rows,), int(Origin.FRESH), dtype=torch.int8),
        finish=torch.full((rows,), int(Finish.EOS), dtype=torch.int8),
        response_ids=torch.randint(0, 50, (rows, WIDTH), generator=generator),
        response_mask=mask,
        old_logprobs=old_logprobs,
        ref_logprobs=old_logprobs + 0.3 * normal(rows, WIDTH),
        teacher_logprobs=-normal(rows, WIDTH).abs(),
        old_values=normal(rows, WIDTH + 1),
        greedy_rewards=normal(PROMPTS).repeat_interleave(GROUP_SIZE),
        correct=(rewards > 0).double(),
        max_response_tokens=LIMIT,
    )
    current = {
        "logprobs": (old_logprobs + spread * normal(rows, WIDTH)).clamp(max=-0.01),
        "values": normal(rows, WIDTH),
        "entropy": normal(rows, WIDTH).abs(),
        "exact_kl_old": normal(rows, WIDTH).square(),
    }
    return Case(rollout, current)


CASES = {
    "plain": make_case(),
    "holes": make_case(seed=1, spread=0.5, holes=True),
    "wide": make_case(seed=2, spread=0.9),
}


def with_mask(case: Case, mask: Tensor) -> Case:
    return Case(replace(case.rollout, response_mask=mask), case.current)


def without_row(case: Case, row: int) -> Case:
    """Return ``case`` with no token in ``row``."""
    mask = case.rollout.response_mask.clone()
    mask[row] = False
    return with_mask(case, mask)


def with_log_ratio(case: Case, places: Tensor, log_ratio: float) -> Case:
    """Return ``case`` with the current policy ``log_ratio`` nats from the old one at ``places`` [N, T] bool."""
    logprobs = torch.where(places, case.rollout.old_logprobs + log_ratio, case.current["logprobs"])
    return Case(case.rollout, {**case.current, "logprobs": logprobs})


def ours(objective: Objective, case: Case, advantages: Tensor | None = None) -> Outcome:
    """Return one step of our engine without the value loss, with other advantages [N, T] if given."""

    def edit(targets: Targets) -> Targets:
        given = targets.advantages if advantages is None else torch.where(targets.loss_mask, advantages, 0.0)
        return replace(targets, advantages=given, value_mask=torch.zeros_like(targets.loss_mask))

    return one_step(objective, case, edit=edit)


def tokens_of(case: Case, outcome: Outcome) -> Tokens:
    """Return what a peer needs to repeat ``outcome``."""
    ref_logprobs = case.rollout.ref_logprobs
    assert ref_logprobs is not None
    return Tokens(
        logprobs=case.current["logprobs"],
        old_logprobs=case.rollout.old_logprobs,
        ref_logprobs=ref_logprobs,
        advantages=outcome.targets.advantages,
        mask=outcome.targets.loss_mask,
    )


def assert_close(found: Tensor, expected: Tensor, rtol: float = RTOL, atol: float = 1e-13) -> None:
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)


def assert_same_gradient(found: Outcome, expected: Result, factor: float = 1) -> None:
    gradient = found.gradients["logprobs"] * factor
    assert int((gradient != 0).sum()) > 10
    assert_close(gradient, expected.gradient)


def assert_same(found: Outcome, expected: Result, factor: float = 1) -> None:
    """Our loss and gradient times ``factor`` are the peer's."""
    assert_close(found.loss * factor, expected.loss, atol=0)
    assert_same_gradient(found, expected, factor)


def assert_other_gradient(found: Outcome, expected: Result) -> None:
    """The two gradients do not even point the same way to 1 part in 10,000."""
    cosine = torch.cosine_similarity(found.gradients["logprobs"].flatten(), expected.gradient.flatten(), 0)
    assert float(cosine) < 0.9999
