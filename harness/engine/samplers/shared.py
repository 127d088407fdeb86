"""Responses drawn by several processes, each for its part of the prompts; all of them then have all responses."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.engine.ledger import Work
from harness.engine.policy import Policy
from harness.engine.samplers.base import Charge, Sampler, Samples
from harness.engine.samplers.charging import decode_pieces, prefill_work
from harness.engine.streams import Noise
from harness.engine.weights import full_weights, local_digest
from harness.engine.world import World

__all__ = ["SharedSampler"]


class SharedSampler:
    """Lets a sampler of each process draw for every ``world.size``-th prompt.

    A sharded policy is sampled from a whole copy of it, which is brought up to date where weights have changed.
    """

    def __init__(self, sampler: Sampler, world: World) -> None:
        self._sampler, self._world = sampler, world
        self._held: list[bytes] = []

    @torch.no_grad()
    def sample(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        noise: Sequence[Noise],
        *,
        limit: int,
        temperature: float,
        charge: Charge,
    ) -> Samples:
        """Sample responses (``Sampler.sample``); charged after they are drawn, in the pieces of one process."""
        world, size = self._world, len(noise) // len(prompts)
        mine = range(world.rank, len(prompts), world.size)
        work, part = Work(), None

        def note(pieces: Mapping[str, Work]) -> None:
            for piece in pieces.values():
                work.add(piece)

        whole = self._whole(policy)
        if mine:
            rows = [noise[i * size + j] for i in mine for j in range(size)]
            asked = {"limit": limit, "temperature": temperature, "charge": note}
            part = self._sampler.sample(whole, [prompts[i] for i in mine], rows, **asked)
        found = world.gather((_moved(part, torch.device("cpu")), work))
        samples = _moved(_joined([one for one, _ in found], len(prompts), size, policy.tokenizer.pad_id), policy.device)
        assert samples is not None
        self._charge(policy, prompts, samples, [done for _, done in found], charge)
        return samples

    def close(self) -> None:
        """Give back what this process's sampler holds."""
        self._sampler.close()

    def _whole(self, policy: Policy) -> Policy:
        if policy.replica is None:
            return policy
        held = self._world.gather(local_digest(policy))
        if held != self._held:
            weights = dict(policy.replica.model.named_parameters())
            for name, weight in full_weights(policy):
                weights[name].copy_(weight)
            self._held = held
        return policy.replica

    def _charge(
        self, policy: Policy, prompts: Sequence[Sequence[int]], samples: Samples, done: Sequence[Work], charge: Charge
    ) -> None:
        lengths, size = [len(prompt) for prompt in prompts], len(samples.ids) // len(prompts)
        first = prefill_work(policy.shape, lengths, len(samples.ids))
        contexts = [length for length in lengths for _ in range(size)]
        pieces = list(decode_pieces(policy.shape, contexts, samples.mask.sum(1).tolist()))
        useful = first.flops + sum(piece.flops for piece in pieces)
        first.executed_flops += sum(one.executed_flops for one in done) - useful
        charge({"prefill": first})
        for piece in pieces:
            charge({"decode": piece})


def _moved(samples: Samples | None, device: torch.device) -> Samples | None:
    if samples is None:
        return None
    return Samples(*(tensor.to(device) for tensor in (samples.ids, samples.mask, samples.finish, samples.logprobs)))


def _joined(parts: Sequence[Samples | None], prompts: int, size: int, pad_id: int) -> Samples:
    """Return the samples of all prompts, which were dealt to ``parts`` one after the other."""
    known = [part for part in parts if part is not None]
    width = max(part.ids.shape[1] for part in known)

    def rows(name: str, fill: float) -> Tensor:
        laid = []
        for part in known:
            tensor = getattr(part, name)
            laid.append(tensor if tensor.ndim == 1 else pad(tensor, (0, width - tensor.shape[1]), value=fill))
        order = [part[i // len(parts) * size :][:size] for i in range(prompts) for part in (laid[i % len(parts)],)]
        return torch.cat(order)

    return Samples(rows("ids", pad_id), rows("mask", 0), rows("finish", 0), rows("logprobs", 0.0))
