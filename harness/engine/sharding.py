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

__all__ = ["alike", "gathered", "local", "shard", "whole", "whole_copy"]

Output = TypeVar("Output")

_PASS = "sharded_pass"
"""Method of a sharded module that calls a function with the module's own weights gathered."""


def shard(module: nn.Module, layers: Iterable[nn.Module], world: World) -> None:
    """Shard ``module`` over the processes, each of ``layers`` and the rest of it as units; nothing for one process.

    A pass through it is a job of ``gathered``.
    """
    if world.size == 1:
        return
    mesh = init_device_mesh(next(module.parameters()).device.type, (world.size,))
    for layer in [*layers, module]:
        # Resharded always: weights that stayed gathered after a pass would not see what then changes in the shards.
        unit: Any = fully_shard(layer, mesh=mesh, reshard_after_forward=True)
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)  # gloo can do nothing else
    setattr(module, _PASS, _call)
    register_fsdp_forward_method(module, _PASS)


def gathered(module: nn.Module, job: Callable[[], Output]) -> Output:
    """Return what ``job``, a pass through the parts of ``module``, returns: tensors or a tuple of them.

    What of a sharded module is outside its layers is there for the job.
    """
    return getattr(module, _PASS)(job) if hasattr(module, _PASS) else job()


def _call(job: Callable[[], Output]) -> Output:
    return job()


def whole(tensor: Tensor) -> Tensor:
    """Return all of a sharded tensor, or any other as it is; every process has to ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """Return this process's shard of a tensor, or any other as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


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
