"""Routes of a mixture of experts: which experts each token was sent to, recorded and replayed.

After an update a token's router may pick other experts, and its ratio then compares two different networks. Routing
replay (arXiv:2507.18071, section 5.3) sends every token of the current policy's passes, prompts included, to the
experts that the old policy picked; the router's weights of them are the current ones and carry its gradient.

Shapes in this room: L layers with experts, N tokens of a packed row, k experts a token.
"""

import types
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

__all__ = ["Replayed", "again", "follow_routes", "routers", "taken"]


def routers(body: nn.Module) -> list[Any]:
    """Return the routers of a decoder, by layer; none of a dense one. Checkpoints know them as ``mlp.gate``."""
    blocks: list[Any] = [getattr(layer, "mlp", None) for layer in body.layers]  # pyright: ignore[reportGeneralTypeIssues]
    return [block.gate for block in blocks if hasattr(block, "experts") and hasattr(block, "gate")]


def follow_routes(body: nn.Module) -> None:
    """Let the routers of ``body`` remember their choices and take given ones; a dense one stays as it is.

    A copy of ``body`` has choices of its own.
    """
    for router in routers(body):
        router.choice = _Choice()
        router.forward = types.MethodType(_forward, router)  # bound, so that a copied router calls itself


def _forward(router: Any, *arguments: Any, **options: Any) -> Any:
    with router.choice:
        return type(router).forward.__get__(router)(*arguments, **options)


class _Choice(TorchFunctionMode):
    """The top-k choice inside a router's forward pass; what the router makes of the chosen scores is its own affair.

    Attributes:
        given: [N, k] integers, the experts to take instead of the best ones; None for the best ones.
        made: [N, k] int64, the experts taken last; None before the first pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.given: Tensor | None = None
        self.made: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func not in (torch.topk, Tensor.topk):
            return found
        if self.given is not None:
            indices = self.given.long()
            if indices.shape != found.indices.shape:
                raise RuntimeError(f"routes of {[*indices.shape]} are given, {[*found.indices.shape]} are chosen")
            found = torch.return_types.topk((args[0].gather(-1, indices), indices))
        self.made = found.indices
        return found


def _choices(module: nn.Module) -> list[_Choice]:
    found = [getattr(part, "choice", None) for part in module.modules()]
    return [choice for choice in found if isinstance(choice, _Choice)]


def taken(body: nn.Module) -> Tensor | None:
    """Return the routes [L, N, k] of the last pass, uint8 or, of more than 256 experts, int16; None of a dense body."""
    made = [choice.made for choice in _choices(body) if choice.made is not None]
    if not made:
        return None
    routes = torch.stack(made)
    return routes.to(torch.uint8 if int(routes.max()) <= torch.iinfo(torch.uint8).max else torch.int16)


class Replayed:
    """A block in which the routers of a module take given experts; it may be entered again."""

    def __init__(self, module: nn.Module, routes: Sequence[Tensor | None] | Tensor | None) -> None:
        """Prepare the block.

        Args:
            module: a decoder or a part of one.
            routes: [N, k] for each of its routers, or None where one chooses freely; None where all do.
        """
        self._choices = _choices(module)
        self._routes: Sequence[Tensor | None] | Tensor = [None] * len(self._choices) if routes is None else routes
        self._before: list[Tensor | None] = []

    def __enter__(self) -> None:
        self._before = [choice.given for choice in self._choices]
        for choice, routes in zip(self._choices, self._routes, strict=True):
            choice.given = routes

    def __exit__(self, *_: object) -> None:
        for choice, before in zip(self._choices, self._before, strict=True):
            choice.given = before


def again(layer: nn.Module) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return torch's contexts of a checkpointed layer: when it is made again, its routers take what is given now."""
    return nullcontext(), Replayed(layer, [choice.given for choice in _choices(layer)])
