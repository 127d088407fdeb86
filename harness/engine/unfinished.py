"""Responses between two windows, and how a checkpoint holds them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

__all__ = ["Unfinished", "pack", "unpack"]

_PER_TOKEN = ("ids", "logprobs", "old_logprobs", "old_entropy")


@dataclass(frozen=True)
class Unfinished:
    """One response that the window cut off.

    Attributes:
        example: id of its example.
        draw: (iteration, key, sample) that its noise is made of.
        tensors: by name [n], one entry a token so far: "ids", "logprobs" of the sampler, "old_logprobs", "old_entropy".
    """

    example: str
    draw: tuple[int, str, int]
    tensors: Mapping[str, Tensor]


def pack(unfinished: Sequence[Unfinished]) -> tuple[dict[str, Tensor], str]:
    """Return the responses as tensors and a JSON text, for a checkpoint."""
    tensors = {f"{i}.{name}": one.tensors[name] for i, one in enumerate(unfinished) for name in _PER_TOKEN}
    return tensors, json.dumps([[one.example, one.draw] for one in unfinished])


def unpack(tensors: Mapping[str, Tensor], text: str) -> list[Unfinished]:
    """Return the responses of what ``pack`` returned."""
    return [
        Unfinished(example, (draw[0], draw[1], draw[2]), {name: tensors[f"{i}.{name}"] for name in _PER_TOKEN})
        for i, (example, draw) in enumerate(json.loads(text))
    ]
