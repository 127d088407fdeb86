"""The processes that share a run: alike in everything but their part of the work. Started by torchrun.

Every process makes every decision, from the same numbers: what one of them finds out is gathered by all before anything
depends on it. Process 0 alone writes.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from harness.config.errors import UserError

__all__ = ["World", "join_world", "own_gpu"]

Item = TypeVar("Item")


@dataclass(frozen=True)
class World:
    """The processes of a run, one by default.

    Attributes:
        rank: number of this process.
        size: processes.
    """

    rank: int = 0
    size: int = 1

    def gather(self, mine: Item) -> list[Item]:
        """Return what every process gives, by rank; of more than one, tensors in lists, tuples and dicts on the CPU."""
        if self.size == 1:
            return [mine]
        found: list[Item | None] = [None] * self.size
        dist.all_gather_object(found, tree_map_only(torch.Tensor, torch.Tensor.cpu, mine))
        return found  # pyright: ignore[reportReturnType]

    def deal(self, items: Sequence[Item]) -> list[tuple[Item, bool]]:
        """Return this process's part of ``items``, each with whether it counts.

        All processes get as many, as sharded modules work in step; who has one too few does the last of all again,
        and that one does not count.
        """
        mine = [(item, True) for item in items[self.rank :: self.size]]
        rounds = -(-len(items) // self.size)
        return mine if len(mine) == rounds else [*mine, (items[-1], False)]

    def undeal(self, mine: Sequence[Item], count: int) -> list[Item]:
        """Return the results of all ``count`` items that were dealt, in their order, from this process's."""
        parts = self.gather(list(mine))
        return [parts[i % self.size][i // self.size] for i in range(count)]


def own_gpu(environment: Mapping[str, str]) -> str:
    """Return the GPU of a process that torchrun started, of those that it may see.

    Raises:
        UserError: it may see fewer GPUs than there are processes on its machine.
    """
    place, visible = int(environment["LOCAL_RANK"]), environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return str(place)
    gpus = [gpu for gpu in visible.split(",") if gpu]
    if place >= len(gpus):
        raise UserError(
            f"CUDA_VISIBLE_DEVICES = {visible!r} names {len(gpus)} GPU(s), none for process {place} of this machine: "
            "name one for each of engine.processes"
        )
    return gpus[place]


def join_world(processes: int, device: str) -> World:
    """Return the processes that torchrun has started.

    Args:
        processes: ``engine.processes``.
        device: ``engine.device``.

    Raises:
        UserError: they are not as many, or there is no GPU for them.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size != processes:
        raise UserError(
            f"engine.processes = {processes}, but {size} process(es) were started: run it with torchrun "
            f"--nproc-per-node {processes} -m harness.cli train ..., or set engine.processes = {size}"
        )
    if size == 1:
        return World()
    if not dist.is_initialized():
        on_gpu = torch.device(device).type == "cuda"
        if on_gpu and not torch.cuda.is_available():
            raise UserError(f"engine.device = {device!r} cannot be used here (there is no GPU); use 'cpu'")
        if on_gpu:  # before anything is put on a GPU: vLLM takes the first one that it sees
            os.environ["CUDA_VISIBLE_DEVICES"] = own_gpu(os.environ)
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    return World(dist.get_rank(), size)
