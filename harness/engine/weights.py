"""A policy's weights as a stream of named tensors, and a digest that tells whether they changed."""

import hashlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from harness.engine.heads import wide
from harness.engine.lora import ADAPTER
from harness.engine.policy import Policy
from harness.engine.sharding import local, whole

__all__ = ["checkpoint_weights", "full_weights", "local_digest", "weights_digest"]

_BASE = ".base_layer."


def full_weights(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight once, whole and detached, under the model's name of it; adapters are merged into the weights.

    A merged weight is a new tensor, summed up in float32 or wider and rounded to the model's precision once; any other
    that is not sharded is the model's own.
    """
    modules = dict(policy.model.named_modules())
    for name, parameter in policy.model.named_parameters():
        layer, base, kind = name.partition(_BASE)
        if not base:
            if f".{ADAPTER}." not in name:
                yield name, whole(parameter.detach())
        elif kind == "weight":
            product = whole(modules[layer].get_delta_weight(ADAPTER).detach())
            yield f"{layer}.weight", (wide(whole(parameter.detach())) + wide(product)).to(parameter.dtype)
        else:
            yield f"{layer}.{kind}", whole(parameter.detach())


def checkpoint_weights(policy: Policy) -> list[tuple[str, Tensor]]:
    """Return the weights under the names of a pretrained model's files, for an engine that loads those.

    Experts stand apart. A tied head stands under both of its names: some loaders keep the head that they have if it
    does not come.
    """
    tensors = dict(full_weights(policy))
    first = {id(parameter): name for name, parameter in policy.model.named_parameters()}
    for name, parameter in policy.model.named_parameters(remove_duplicate=False):
        if name not in tensors and first[id(parameter)] in tensors:
            tensors[name] = tensors[first[id(parameter)]]
    return list(revert_weight_conversion(policy.model, tensors).items())


@torch.no_grad()
def weights_digest(policy: Policy) -> bytes:
    """Return a digest of all weights: another one after any change, however it was made.

    It is made of the contents, as nothing else sees every change: fused optimizers do not count theirs in
    ``Tensor._version``. Of each row there is an exclusive or over its bits, which the smallest change shows in, and a
    weighted sum, for changes that cancel in it (all signs, an exchange). The weights are read twice.
    """
    return _digest(full_weights(policy))


@torch.no_grad()
def local_digest(policy: Policy) -> bytes:
    """Return the same of what this process holds of a sharded policy's weights."""
    return _digest((name, local(parameter.detach())) for name, parameter in policy.model.named_parameters())


def _digest(weights: Iterable[tuple[str, Tensor]]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name, weight in weights:
        factors = torch.arange(weight.shape[-1], device=weight.device).cos().to(weight.dtype)
        bits, sums = torch.hash_tensor(weight, -1).view(torch.int64), (weight @ factors).double().view(torch.int64)
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(torch.stack([bits, sums]).cpu().numpy().tobytes())
    return digest.digest()
