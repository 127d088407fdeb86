"""A tabular autoregressive policy small enough to enumerate: one row of logits a prefix."""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Toy:
    """All V^T responses; ``states`` says which prefix each token was drawn after."""

    tokens: Tensor
    states: Tensor
    num_states: int
    vocabulary: int

    def logits(self, seed: int, scale: float = 1.0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return scale * torch.randn(self.num_states, self.vocabulary, generator=generator, dtype=torch.float64)

    def logprobs(self, logits: Tensor) -> Tensor:
        """[V^T, T]: log-probability of every token of every response."""
        return torch.log_softmax(logits, -1)[self.states, self.tokens]

    def probabilities(self, logits: Tensor) -> Tensor:
        """[V^T]: probability of every response."""
        return self.logprobs(logits).sum(1).exp()

    @property
    def mask(self) -> Tensor:
        return torch.ones_like(self.tokens, dtype=torch.bool)


def enumerate_toy(vocabulary: int, length: int) -> Toy:
    tokens = torch.tensor(list(itertools.product(range(vocabulary), repeat=length)))
    states = torch.zeros_like(tokens)
    index: dict[tuple[int, ...], int] = {}
    for i, response in enumerate(tokens.tolist()):
        for t in range(length):
            states[i, t] = index.setdefault(tuple(response[:t]), len(index))
    return Toy(tokens, states, len(index), vocabulary)
