"""What a sampler is: prompts and noise in, responses with their log-probabilities out, every piece of work charged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from harness.config.errors import UserError
from harness.engine.ledger import Work
from harness.engine.policy import Policy
from harness.engine.streams import Noise
from objectives import Finish

__all__ = ["NO_NOISE", "Charge", "Sampler", "Samples", "finished", "require_room"]

Charge = Callable[[Mapping[str, Work]], None]
"""Called with {"prefill" or "decode": work} piece by piece; what it raises ends the sampling."""

NO_NOISE = Noise(seed=0, stream="greedy", step=0, prompt="", sample=0)
"""Stands for the noise of a greedy response, which reads none."""


@dataclass
class Samples:
    """Responses of one sampling call, the samples of a prompt next to each other.

    Attributes:
        ids: [N, T] int64, ``pad_id`` after the end; the end token is included.
        mask: [N, T] bool.
        finish: [N] int8, ``Finish.EOS`` or ``Finish.LENGTH``.
        logprobs: [N, T] float32, log-probability of each token when it was drawn, at the sampling temperature, nats; 0
            outside ``mask``. At temperature 0 that of the untempered distribution.
    """

    ids: Tensor
    mask: Tensor
    finish: Tensor
    logprobs: Tensor


class Sampler(Protocol):
    """Draws responses from a policy as its weights stand at the call."""

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
        """Sample responses.

        Args:
            policy: the model, that of the sampler's first call or a copy of it.
            prompts: token ids, one list a prompt, none empty; at least one.
            noise: one a response, as many for each prompt, those of a prompt next to each other.
            limit: tokens of a response at most.
            temperature: divides the logits; 0 takes the most probable token.
            charge: told of every piece of work, in the order of decoding.

        Returns:
            One response a noise.

        Raises:
            UserError: a prompt and its response do not fit into the policy's context.
        """
        ...

    def close(self) -> None:
        """Give back what it holds; it may be used again."""
        ...


def require_room(policy: Policy, prompt: int, limit: int) -> None:
    """Refuse a prompt of ``prompt`` tokens that leaves no room for ``limit`` of its response; UserError."""
    if policy.context is not None and prompt + limit > policy.context:
        raise UserError(
            f"a prompt of {prompt} tokens and {limit} of its response do not fit into the policy's context of "
            f"{policy.context} tokens: lower rollout.max_response_tokens, or leave such prompts out"
        )


def finished(policy: Policy, ids: Tensor, mask: Tensor, logprobs: Tensor) -> Samples:
    """Return the samples, cut to the columns that one of them uses."""
    stops = torch.tensor(sorted(policy.tokenizer.stop_ids), dtype=torch.int64, device=ids.device)
    ended = (torch.isin(ids, stops) & mask).any(1)
    finish = torch.where(ended, int(Finish.EOS), int(Finish.LENGTH)).to(torch.int8)
    used = int(mask.sum(1).max())
    return Samples(ids[:, :used], mask[:, :used], finish, logprobs[:, :used])
