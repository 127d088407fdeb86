"""Weights, gradients and moments in shards, one a process: torch's FSDP2 (``fully_shard``).

Every layer's weights are gathered for its own forward and backward pass alone. Gradients are summed over the processes:
an objective's weights are those of the whole optimizer step already.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from harness.engine.copies import copy_trained
from harness.engine.world import World

__all__ = ["PASS", "alike", "shard", "whole", "whole_copy"]

Output = TypeVar("Output")

PASS = "sharded_pass"
"""Method of a sharded module that calls a function with the module's own weights gathered."""


def shard(module: nn.Module, layers: Iterable[nn.Module], world: World) -> None:
    """Shard ``module`` over the processes, each of ``layers`` and the rest of it as units; nothing for one process.

    What is outside ``layers`` is gathered inside the method ``PASS``.
    """
    if world.size == 1:
        return
    mesh = init_device_mesh(next(module.parameters()).device.type, (world.size,))
    for layer in [*layers, module]:
        fully_shard(layer, mesh=mesh).set_gradient_divide_factor(1.0)  # pyright: ignore
    setattr(module, PASS, _call)
    register_fsdp_forward_method(module, PASS)


def _call(job: Callable[[], Output]) -> Output:
    return job()


def whole(tensor: Tensor) -> Tensor:
    """Return all of a sharded tensor, or any other as it is; every process has to ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def alike(tensor: Tensor, pattern: Tensor) -> Tensor:
    """Return the whole ``tensor`` sharded as ``pattern`` is."""
    if isinstance(pattern, DTensor) and not isinstance(tensor, DTensor):
        return distribute_tensor(tensor.to(pattern.device), pattern.device_mesh, pattern.placements, src_data_rank=None)
    return tensor


def whole_copy(module: nn.Module) -> Any:
    """Return a frozen copy of a small module, such as a head, with whole weights; frozen ones are shared."""
    found = copy_trained(module)
    for name, parameter in module.named_parameters():
        if isinstance(parameter, DTensor):
            holder, _, last = name.rpartition(".")
            setattr(found.get_submodule(holder), last, nn.Parameter(whole(parameter).detach(), requires_grad=False))
    return found.requires_grad_(False)
