"""Build synthetic records of a study, seeded, for the tests of the reports."""

import csv
import math
from pathlib import Path

import numpy as np
import pandas as pd

from harness.reports.study import SCHEMA

ARMS = (
    "ppo",
    "grpo",
    "gspo",
    "gspo+dual",
    "gspo_subsequence",
    "gspo_subsequence+dual",
    "gspo_subsequence:detached",
    "gspo_subsequence:detached+dual",
)
FRACTIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
BUDGET = 2.0e12
ITERATIONS = 30
CUT = 11
"""Iterations that a failed or running cell reached."""


def write_study(
    folder,
    arms=ARMS,
    tasks=("arithmetic", "synthesis"),
    seeds=(0, 1, 2),
    statuses=None,
    blank_metrics=(),
    iterations=ITERATIONS,
    surrogates=True,
    fractions=FRACTIONS,
):
    """Write the six CSV files.

    ``statuses`` maps (arm, task, seed) to (status, cause); an arm gains 0.02 a place over the one before it.
    """
    statuses = statuses or {}
    files = {name: [] for name in SCHEMA}
    for task_number, task in enumerate(tasks):
        for arm_number, arm in enumerate(arms):
            for seed in seeds:
                status, cause = statuses.get((arm, task, seed), ("completed", ""))
                rng = np.random.default_rng([task_number, arm_number, seed])
                _add_cell(files, task, arm, arm_number, seed, status, cause, iterations, blank_metrics, rng, fractions)
    if surrogates:
        files["surrogates.csv"] = [row for arm in arms for row in _surrogates(arm)]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*SCHEMA[name], *(["config.lr"] if name == "cells.csv" else [])])
            writer.writeheader()
            writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
    return folder


def with_scores(folder, finals, **settings):
    """Write a study of one task whose validation and test curves rise linearly from 0.2 to the given finals."""
    settings = {"tasks": ("arithmetic",), "iterations": 4} | settings
    write_study(folder, arms=tuple(finals), seeds=tuple(range(len(next(iter(finals.values()))))), **settings)
    cells = pd.read_csv(folder / "cells.csv").set_index("cell")
    evals = pd.read_csv(folder / "evals.csv")
    ends = [finals[cells.loc[cell, "arm"]][cells.loc[cell, "seed"]] for cell in evals["cell"]]
    evals["score"] = [
        round(0.2 + (end - 0.2) * fraction, 9) for end, fraction in zip(ends, evals["fraction"], strict=True)
    ]
    evals.to_csv(folder / "evals.csv", index=False)
    return folder


def _failure(status, cause):
    return ("divergence" if cause.startswith("loss is") else "error") if status == "failed" else ""


def _add_cell(files, task, arm, arm_number, seed, status, cause, iterations, blank_metrics, rng, fractions):
    short, *condition = task.split(" ")
    cell = f"{short[:3]}{arm_number:02d}s{seed}{''.join(condition)}"
    objective, _, region = arm.partition("+")
    reached = iterations if status == "completed" else 0 if status == "missing" else min(CUT, iterations)
    per_iteration = {"updates": 4, "generated_tokens": 5_000 + 300 * arm_number, "spent_flops": BUDGET / iterations}
    totals = {name: value * reached for name, value in per_iteration.items()}
    files["cells.csv"].append(
        {
            **{"cell": cell, "arm": arm, "task": task, "policy": f"tiny-{task}", "seed": seed, "status": status},
            **{
                "failure": _failure(status, cause),
                "cause": cause,
                "objective": objective.split(":")[0],
                "region": region,
            },
            **{"delta": 0.05 if region else None, "delta_unit": "per_sequence" if region else ""},
            **{
                "budget_axis": "flops",
                "budget_amount": BUDGET,
                **totals,
                "executed_flops": totals["spent_flops"] * 1.3,
            },
            **{"eval_flops": 1e11, "trained_tokens": totals["generated_tokens"] * 2, "iterations": reached},
            **{"discarded_flops": 1e9, "config.lr": "1e-4"},
        }
    )
    if status == "missing":
        return
    files["timing.csv"].append(
        {"cell": cell, "seconds": 22.0 + seed, "train_seconds": 20, "eval_seconds": 2, "peak_memory_bytes": 3 * 2**28}
    )
    start = 0.30 + 0.01 * seed if task == "arithmetic" else 0.18 + 0.02 * seed
    rise = 0.12 + 0.02 * arm_number
    for split in ("validation", "test"):
        for fraction in fractions:
            done = round(fraction * iterations)
            if done > reached or (split == "test" and fraction not in (0, 1)):
                continue
            score = start + rise * (1 - math.exp(-2.5 * fraction)) / (1 - math.exp(-2.5))
            score += rng.normal(0, 0.02) if fraction else 0.0
            amounts = {name: value * done for name, value in per_iteration.items()}
            row = {"cell": cell, "split": split, "fraction": fraction, "iteration": done, **amounts, "score": score}
            files["evals.csv"].append(
                row | {"num_prompts": 256, "response_tokens_mean": 20 + 10 * fraction, "infra": 0}
            )
    for iteration in range(1, reached + 1):
        amounts = {name: value * iteration for name, value in per_iteration.items()}
        row = _metrics(arm, arm_number, iteration / iterations, rng)
        row |= dict.fromkeys(blank_metrics)
        files["metrics.csv"].append({"cell": cell, "iteration": iteration, **amounts, **row})
    files["ratios.csv"] += _ratios(cell, 0.02 * (1 + arm_number), rng)


def _metrics(arm, arm_number, progress, rng):
    kl = (0.05 if "+" in arm else 0.03 * (1 + arm_number)) * math.exp(rng.normal(0, 0.3))
    clip = 0.15 * math.exp(rng.normal(0, 0.2)) if arm.startswith("gspo") else 0.0015 * math.exp(rng.normal(0, 0.5))
    clip = 0.0 if "detached" in arm else clip
    return {
        **{
            "reward_mean": 0.3 + 0.3 * progress,
            "response_tokens_mean": 20 + (8 + arm_number) * progress + rng.normal(),
        },
        **{
            "length_limited_frac": 0.01,
            "entropy_nats": 0.9 - (0.2 + 0.04 * arm_number) * progress + rng.normal(0, 0.01),
        },
        **{"informative_frac": 0.6, "clip_frac": clip, "dead_frac": clip / 2, "kl_old_per_token_nats": kl / 20},
        **{"kl_old_per_sequence_nats": kl, "grad_norm": 0.5, "region_coef": 0.1, "ratio_min": 0.7, "ratio_max": 1.4},
        "policy_loss": 0.0,
    }


def write_many(folder, cells=1_000):
    """Write a study of 50 arms on two tasks whose seeds make up about ``cells`` cells, some of them unfinished."""
    arms = ["grpo", *(f"arm {number:02d}{'+dual' if number % 2 else ''}" for number in range(1, 50))]
    tasks, seeds = ("arithmetic", "synthesis"), range(cells // 100)
    statuses = {
        **{(arms[3], tasks[0], 1): ("failed", "loss is nan at update 41")},
        **{(arms[5], tasks[1], 2): ("failed", "worker died 3 times (signal 9)")},
        **{(arms[7], tasks[0], 0): ("running", ""), (arms[9], tasks[1], 3): ("missing", "")},
    }
    fractions = tuple(point / 10 for point in range(11))
    return write_study(folder, arms, tasks, seeds, statuses, fractions=fractions)


def _ratios(cell, width, rng):
    edges = np.linspace(-1, 1, 81)
    for part in ("first third", "second third", "last third"):
        weights = np.exp(-np.abs((edges[:-1] + edges[1:]) / 2) / width)
        counts = rng.multinomial(20_000, weights / weights.sum())
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
            yield {
                **{"cell": cell, "iteration_bin": part, "count": int(count)},
                **{"log_ratio_low": round(float(low), 6), "log_ratio_high": round(float(high), 6)},
            }


def _surrogates(arm):
    family = arm.partition("+")[0]
    band = {"ppo": 0.2, "grpo": 0.2, "gspo": 0.05}.get(family, 0.1)
    for advantage in (1, -1):
        for ratio in np.linspace(0.4, 1.6, 61):
            clipped = min(max(ratio, 1 - band), 1 + band)
            if "detached" in family:
                value, weight = clipped * advantage, clipped * advantage
            elif family == "gspo_subsequence":
                value, weight = clipped**3 * advantage, 3 * ratio**3 * advantage * (clipped == ratio)
            else:
                value = min(ratio * advantage, clipped * advantage)
                weight = ratio * advantage if value == ratio * advantage else 0.0
            yield {
                "arm": arm,
                "advantage": advantage,
                "ratio": round(float(ratio), 6),
                "loss": -value,
                "weight": weight,
            }
