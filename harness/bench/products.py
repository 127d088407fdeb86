"""How fast this machine multiplies the matrices of a pass: the rate that an update can be held against."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from harness.bench.workloads import make_config
from harness.engine.loading import load_policy
from harness.engine.policy import Policy

__all__ = ["Rates", "phase_rates"]

_SECONDS = 0.2


@dataclass(frozen=True)
class Rates:
    """FLOPs a second of a policy's linear layers alone, each with as many tokens as it has in a phase.

    Attributes:
        forward: weights times states.
        backward: the two products of the backward pass.
    """

    forward: float
    backward: float


def phase_rates(workload: str, threads: int) -> dict[str, float]:
    """Return the FLOPs a second of the products of each phase: "sample", "old" and "update"."""
    torch.set_num_threads(threads)
    config = make_config(workload, threads)
    policy = load_policy(config.policy, config.task.name)
    rollout = config.rollout
    rows = rollout.num_prompts * rollout.group_size
    tokens = min(config.engine.micro_batch_tokens, rows // config.update.minibatches * rollout.max_response_tokens)
    decode, passed = _rates(policy, rows), _rates(policy, tokens)
    update = 3 / (1 / passed.forward + 2 / passed.backward)
    return {"sample": decode.forward, "old": passed.forward, "update": update}


@torch.no_grad()
def _rates(policy: Policy, tokens: int) -> Rates:
    """Measure each shape among the policy's linear layers, as often as it occurs, with ``tokens`` states."""
    shapes: dict[tuple[int, int], int] = {}
    for module in policy.model.modules():
        if isinstance(module, nn.Linear):
            shape = (module.in_features, module.out_features)
            shapes[shape] = shapes.get(shape, 0) + 1
    flops = seconds = backward_seconds = 0.0
    for (inner, outer), count in shapes.items():
        states, weight, gradient = torch.randn(tokens, inner), torch.randn(outer, inner), torch.randn(tokens, outer)
        flops += count * 2 * tokens * inner * outer
        seconds += count * _time(lambda s=states, w=weight: nn.functional.linear(s, w))
        backward_seconds += count * _time(lambda g=gradient, w=weight: g @ w)
        backward_seconds += count * _time(lambda g=gradient, s=states: g.T @ s)
    return Rates(flops / seconds, 2 * flops / backward_seconds)


def _time(product: Callable[[], object]) -> float:
    """Return the seconds of one product: the shortest of as many as fit into a fifth of a second."""
    product()
    best, ends = float("inf"), time.perf_counter() + _SECONDS
    while time.perf_counter() < ends:
        begun = time.perf_counter()
        product()
        best = min(best, time.perf_counter() - begun)
    return best
