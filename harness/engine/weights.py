"""A policy's weights under transformers' names, as other programs read them."""

from collections.abc import Iterator

from torch import Tensor

from harness.engine.heads import wide
from harness.engine.lora import ADAPTER
from harness.engine.policy import Policy

__all__ = ["full_weights"]

_BASE = ".base_layer."


def full_weights(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """Yield each parameter's name and value, a tied one once, LoRA's adapters merged into the weights beside them.

    A merged weight is a new tensor, summed up in float32 or wider and rounded to the model's precision once; any other
    is the model's own.
    """
    modules = dict(policy.model.named_modules())
    for name, parameter in policy.model.named_parameters():
        layer, base, kind = name.partition(_BASE)
        if not base:
            if f".{ADAPTER}." not in name:
                yield name, parameter.detach()
        elif kind == "weight":
            product = modules[layer].get_delta_weight(ADAPTER).detach()
            yield f"{layer}.weight", (wide(parameter.detach()) + wide(product)).to(parameter.dtype)
        else:
            yield f"{layer}.{kind}", parameter.detach()
