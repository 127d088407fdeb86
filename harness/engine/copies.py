"""Copies of models that share what is never trained: with LoRA, almost all of one."""

import copy
from typing import TypeVar

from torch import nn

__all__ = ["copy_trained"]

Module = TypeVar("Module", bound=nn.Module)


def copy_trained(module: Module) -> Module:
    """Return a copy of ``module`` with parameters of its own, but for frozen ones, which both hold."""
    return copy.deepcopy(module, {id(p): p for p in module.parameters() if not p.requires_grad})
