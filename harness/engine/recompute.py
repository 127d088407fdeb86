"""Activations of a layer that the backward pass makes again instead of keeping them."""

import types
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from harness.engine.routing import again

__all__ = ["recompute_layers"]


def recompute_layers(body: nn.Module) -> None:
    """Let each decoder layer of ``body`` keep its input alone for the backward pass; without gradients nothing changes.

    transformers' own switch works in training mode only, in which dropout would be on.
    """
    for layer in body.layers:  # pyright: ignore[reportGeneralTypeIssues]
        layer.forward = types.MethodType(_forward, layer)  # bound, so that a copied layer calls itself


def _forward(layer: nn.Module, *arguments: Any, **options: Any) -> Any:
    forward = type(layer).forward.__get__(layer)
    if not torch.is_grad_enabled():
        return forward(*arguments, **options)
    return checkpoint(forward, *arguments, use_reentrant=False, context_fn=lambda: again(layer), **options)
