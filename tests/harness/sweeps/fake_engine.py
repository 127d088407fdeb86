"""An engine for tests of the executor: no model, many records and checkpoints, deterministic but for timing.jsonl.

The objective's settings make it misbehave: ``fail_at`` (a recorded failure), ``crash_at`` (an error nobody foresaw),
``die_at`` (SIGKILL to itself, with a torn line behind it); a seed of 100 or more fails at iteration 2. With FAKE_BEST,
a learning rate, the final scores say how near it the run's is, and a run at ten times of it or more diverges.
"""

import hashlib
import json
import math
import os
import signal
import time
from dataclasses import dataclass

from harness.config.errors import UserError

CHECKPOINT = "checkpoint"


class RunFailed(Exception):  # noqa: N818
    pass


@dataclass(frozen=True)
class Estimate:
    flops: float
    iterations: float
    updates: float
    smallest_update_flops: float


def identity(config):
    return {"config": config.model_dump(mode="json"), "engine": "fake"}


def estimate_cell(config):
    if config.budget.amount < 1:
        raise UserError("budget.amount is too small for one update: the smallest costs 1")
    return Estimate(config.budget.amount * 1e6, config.budget.amount, config.budget.amount, 1.0)


def draw(*words):
    return int(hashlib.sha256(repr(words).encode()).hexdigest()[:8], 16) / 16**8


def note(*words):
    if os.environ.get("FAKE_LOG"):
        with open(os.environ["FAKE_LOG"], "a") as file:
            file.write(" ".join(words) + "\n")


def run_cell(config, folder, notify):
    total, faults = int(config.budget.amount), config.objective.settings
    saved = folder.read_checked(CHECKPOINT)
    state = json.loads(saved) if saved else {"iteration": 0, "weight": config.seed, "offsets": {}}
    note("start", folder.path.name, str(state["iteration"]))
    folder.truncate(state["offsets"])
    if not saved:
        folder.append("evals", evaluation(config, 0, 0.0))
    for iteration in range(state["iteration"] + 1, total + 1):
        misbehave(config, folder, faults, iteration)
        state["weight"] = draw(state["weight"], config.objective.name, iteration)
        folder.append("metrics", metric(iteration, state["weight"]))
        folder.append("samples", {"iteration": iteration, "text": "x" * (iteration % 50)})
        folder.append("timing", {"iteration": iteration, "seconds": time.monotonic()})
        time.sleep(float(os.environ.get("FAKE_SLEEP", "0")))
        if iteration % config.engine.checkpoint_every == 0:
            state |= {"iteration": iteration, "offsets": folder.flush()}
            folder.write_checked(CHECKPOINT, json.dumps(state).encode())
            note("checkpoint", folder.path.name, str(iteration))
        notify({"fraction": iteration / total, "score": state["weight"], "iteration": iteration})
    score = state["weight"]
    if "FAKE_BEST" in os.environ:
        distance = math.log10(config.update.learning_rate / float(os.environ["FAKE_BEST"]))
        if distance >= 1:
            folder.finish("failed", "loss is nan at update 1", failure="divergence")
            raise RunFailed("loss is nan at update 1")
        score = math.exp(-abs(distance))
    for split in ("validation", "test"):
        folder.append("evals", {**evaluation(config, total, score), "split": split, "fraction": 1.0})
    folder.append("timing", {"total": True, "seconds": time.monotonic(), "train_seconds": 1.0})
    weights = json.dumps(state["weight"]).encode() * 1000
    folder.write_atomic("weights.safetensors", weights)
    folder.write_atomic("surrogate.json", json.dumps(SURROGATE).encode())
    digest = hashlib.sha256(weights).hexdigest()
    folder.finish("completed", digests={"weights.safetensors": digest}, totals=totals(total))
    note("completed", folder.path.name)
    folder.remove(CHECKPOINT)


def misbehave(config, folder, faults, iteration):
    if faults.get("fail_at") == iteration or (config.seed >= 100 and iteration == 2):
        folder.finish("failed", "loss is nan", failure="divergence")
        raise RunFailed("loss is nan")
    if faults.get("crash_at") == iteration:
        raise KeyError("surprise")
    if faults.get("die_at") == iteration:
        folder.flush()
        with (folder.path / "metrics.jsonl").open("ab") as file:
            file.write(b'{"torn')
        os.kill(os.getpid(), signal.SIGKILL)


SURROGATE = {"ratio": [0.5, 1.5], "advantage": [1.0, 1.0], "loss": [-0.5, -1.2], "weight": [1.0, 0.0]}


def metric(iteration, weight):
    histogram = {"edges": [-1.0, 0.0, 1.0], "counts": [iteration, 2]}
    return {
        "iteration": iteration,
        "updates": iteration,
        "spent_flops": iteration * 1e6,
        "generated_tokens": iteration * 10,
        "reward_mean": weight,
        "entropy_nats": None,
        "ratio_hist": histogram,
    }


def evaluation(config, iteration, score):
    return {
        "split": "validation",
        "fraction": 0.0,
        "iteration": iteration,
        "updates": iteration,
        "spent_flops": iteration * 1e6,
        "generated_tokens": iteration * 10,
        "score": score,
        "num_prompts": config.eval.num_prompts,
        "response_tokens_mean": 3.0,
        "infra": 0,
    }


def totals(total):
    spent = {"spent_flops": total * 1e6, "executed_flops": total * 2e6, "eval_flops": 5.0, "discarded_flops": 0.0}
    counts = {"generated_tokens": total * 10, "trained_tokens": total * 10, "updates": total, "iterations": total}
    return {**spent, **counts, "phases": {"decode": {"useful_flops": total * 1e5}}}
