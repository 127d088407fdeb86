"""How a rollout is cut into minibatches and micro-batches."""

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.experience import Experience
from harness.engine.streams import key

__all__ = ["Plan", "make_plan"]


@dataclass(frozen=True)
class Plan:
    """How a rollout is cut: minibatches of whole groups, each cut into micro-batches; [K] int64 rows each.

    Every pass over the rollout, the old policy's and each epoch's, uses these same micro-batches: a ratio then is 1 to
    rounding as long as the weights are the same.
    """

    minibatches: tuple[tuple[Tensor, ...], ...]

    @property
    def micro_batches(self) -> list[Tensor]:
        """All micro-batches in order."""
        return [part for minibatch in self.minibatches for part in minibatch]

    def of(self, rows: Tensor) -> "Plan":
        """Return the plan of only the ``rows`` [N] bool of the rollout; micro-batches without any vanish."""
        kept = [[part[rows[part]] for part in minibatch] for minibatch in self.minibatches]
        return Plan(tuple(tuple(part for part in minibatch if len(part)) for minibatch in kept))


def make_plan(
    experience: Experience, minibatches: int, micro_batch_tokens: int, *, seed: int, iteration: int, shares: int = 1
) -> Plan:
    """Deal the prompts of a rollout, with all their groups, to minibatches, in an order keyed by seed and iteration.

    Within a minibatch the responses to a prompt stay together, so that a micro-batch computes few prompts, and prompts
    are sorted by their longest response. For ``shares`` processes micro-batches are so small that each gets its part.
    """
    generator = torch.Generator().manual_seed(key(seed, "minibatches", iteration) % 2**63)
    order = torch.randperm(int(experience.prompt_of_row.max()) + 1, generator=generator)
    lengths, prompts, origins = experience.lengths, experience.prompt_of_row.tolist(), experience.origin.tolist()
    longest: dict[int, int] = {}
    for prompt, length in zip(prompts, lengths, strict=True):
        longest[prompt] = max(length, longest.get(prompt, 0))
    found: list[tuple[Tensor, ...]] = []
    for chosen in order.chunk(minibatches):
        rows = torch.isin(experience.prompt_of_row, chosen).nonzero()[:, 0].tolist()
        rows.sort(key=lambda i: (origins[i], longest[prompts[i]], prompts[i], lengths[i]))
        room = micro_batch_tokens if shares == 1 else min(micro_batch_tokens, -(-_tokens(rows, experience) // shares))
        found.append(_micro_batches(rows, experience, room))
    return Plan(tuple(found))


def _tokens(rows: list[int], experience: Experience) -> int:
    """Return the tokens of ``rows``, each prompt once."""
    lengths = experience.lengths
    prompts = {tuple(experience.prompts[i]) for i in rows}
    return sum(lengths[i] for i in rows) + sum(map(len, prompts))


def _micro_batches(rows: list[int], experience: Experience, micro_batch_tokens: int) -> tuple[Tensor, ...]:
    """Split ``rows`` where their tokens, each prompt once, would be more; a row that is more by itself stands alone.

    No micro-batch holds rows of two origins, so that a pass over one cuts as the update does.
    """
    parts: list[list[int]] = []
    room, origin = 0, -1
    known: set[tuple[int, ...]] = set()
    lengths, origins = experience.lengths, experience.origin.tolist()
    for i in rows:
        prompt, length, kind = tuple(experience.prompts[i]), lengths[i], origins[i]
        needed = length + (0 if prompt in known else len(prompt))
        if not parts or needed > room or kind != origin:
            parts.append([])
            room, origin, known = micro_batch_tokens, kind, set()
            needed = length + len(prompt)
        parts[-1].append(i)
        known.add(prompt)
        room -= needed
    return tuple(torch.tensor(part, dtype=torch.int64) for part in parts)
