"""One of several processes that share runs: writes what their updates were, for ``test_processes.py`` to compare.

torchrun --nproc-per-node 2 processes_job.py TAUGHT.safetensors OUT.pt
"""

import os
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_engine import EXPERTS, TINY, exact_norms, make_config, roll, upcycled, update

import objectives
from harness.engine import embedded, loading
from harness.engine import run as run_module
from harness.engine.checkpoint import save_run
from harness.engine.ledger import Ledger
from harness.engine.metrics import StepMetrics
from harness.engine.optimizer import Optimizer
from harness.engine.sharding import whole
from harness.engine.train import _seen
from harness.engine.world import join_world
from objectives import trust_region

MOE = {"policy": {"name": "tiny-moe"}, "engine": {"routing_replay": True}}
CASES = {
    **{name: {"objective": {"name": name}} for name in objectives.names()},
    **{f"region {name}": {"trust_region": {"name": name}} for name in trust_region.names()},
    "experts": MOE,
    "experts, recomputed": {**MOE, "engine": {"routing_replay": True, "recompute": True}},
    "adapters": {"policy": {"lora": {"rank": 2}}},
    "recomputed": {"engine": {"recompute": True, "logits_mib": 0.001}},
    "replay": {"replay": {"strategy": "all", "min_cache": 1, "max_cache": 4}, "task": "few"},
    "lag": {"rollout": {"lag": 1}},
}


def made(world, tables):
    """Return a run in float64 whose budget never ends."""
    config = make_config(**tables)
    run = run_module.build_run(config, world)
    run.ledger = Ledger("updates", 10**9)
    return run


def outcome(world, tables):
    """Return the gradients of a run's first step, and its weights, FLOPs and metrics after two iterations."""
    tables = {name: table for name, table in tables.items() if name != "task"}
    run = made(world, tables)
    found, losses = {}, []
    for _ in range(2):
        metrics = StepMetrics()
        update(run, roll(run), metrics)
        run.iteration += 1
        losses.append(_seen(run, metrics).summary())
    found |= {name: whole(value).clone() for name, value in run.optimizer.tensors()}
    return {"tensors": found, "metrics": losses, "spent": run.ledger.spent.flops}


def main():
    taught, out = sys.argv[1:]
    torch.set_num_threads(1)
    patch = pytest.MonkeyPatch()
    exact_norms(patch)
    experts = f"{out}.{os.environ.get('RANK', '0')}.experts"
    save_file(upcycled(load_file(taught)), experts)
    patch.setitem(embedded.PRESETS, "tiny", TINY)
    patch.setitem(embedded.PRESETS, "tiny-moe", {**TINY, **EXPERTS})
    patch.setattr(embedded, "weights_file", lambda name, *_: experts if name == "tiny-moe" else taught)
    critic = run_module.Critic
    patch.setattr(run_module, "Critic", lambda policy: critic(policy).double())
    patch.setattr(loading, "getattr", lambda *_: torch.float64, raising=False)
    world = join_world(int(os.environ.get("WORLD_SIZE", "1")), "cpu")
    gradients = {}
    clip = Optimizer.clip

    def seen(optimizer):
        if optimizer.what not in gradients:
            gradients[optimizer.what] = {n: whole(p.grad).clone() for n, p in optimizer._named if p.grad is not None}
        return clip(optimizer)

    patch.setattr(Optimizer, "clip", seen)
    results = {}
    for name, tables in CASES.items():
        gradients.clear()
        results[name] = outcome(world, tables) | {"gradients": dict(gradients)}
    run = made(world, {"objective": {"name": "ppo"}})
    update(run, roll(run))
    run.iteration += 1
    results["checkpoint"] = save_run(run, {})
    if world.rank == 0:
        torch.save(results, out)


if __name__ == "__main__":
    main()
