"""A key-value cache that grows by several columns at a time: transformers' own is copied whole at every token."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

__all__ = ["GROWTH", "cache_width", "make_cache"]

GROWTH = 16
"""Columns of a cache that are added at once; those that are not written yet have to be masked."""


def make_cache() -> Cache:
    """Return an empty cache for the passes of one sampling call."""
    return Cache(layer_class_to_replicate=_GrowingLayer)


def cache_width(prompt: int, drawn: int) -> int:
    """Return the columns that keys have in the pass over the ``drawn``-th token behind a padded prompt."""
    return prompt + -(-drawn // GROWTH) * GROWTH


class _GrowingLayer(DynamicLayer):
    """Keys and values of one layer, [B, H, columns, C]; the first update makes as many columns as it brings."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._filled = 0

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the states into the next columns; return all columns, of which the last ones may be empty."""
        begin, self._filled = self._filled, self._filled + key_states.shape[-2]
        if begin == 0:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return key_states, value_states
        keys, values = self.keys, self.values
        assert keys is not None
        assert values is not None
        if self._filled > keys.shape[-2]:
            keys, values = _wider(keys), _wider(values)
        keys[..., begin : self._filled, :], values[..., begin : self._filled, :] = key_states, value_states
        self.keys, self.values = keys, values
        return keys, values

    def get_seq_length(self) -> int:
        """Return the columns that are written."""
        return self._filled


def _wider(states: Tensor) -> Tensor:
    return torch.cat([states, states.new_zeros(*states.shape[:-2], GROWTH, states.shape[-1])], -2)
