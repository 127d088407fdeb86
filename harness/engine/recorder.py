"""What a run writes down: evaluations, metrics, samples, timing, weights, and how it ended."""

import math
from dataclasses import asdict
from functools import cached_property
from typing import Any

from torch import Tensor

from harness.config.errors import RunFailed
from harness.engine.checkpoint import policy_weights
from harness.engine.evaluate import Evaluation, evaluate
from harness.engine.experience import Experience
from harness.engine.identity import identity
from harness.engine.infra import check_scored, tally
from harness.engine.ledger import Work
from harness.engine.memory import peak_memory_bytes
from harness.engine.metrics import StepMetrics
from harness.engine.prompts import PROMPT_METRICS
from harness.engine.routing_probe import ROUTING_METRICS
from harness.engine.run import Run
from harness.engine.surrogate import surrogate_shape
from harness.sweeps.engines import Notify
from harness.sweeps.files import dump_json, sha256_hex
from harness.sweeps.records import Failure
from harness.sweeps.run_folder import RunFolder
from objectives import Finish, Origin
from tasks.base import Split

__all__ = ["Recorder"]

# Of ``probe``, written as they are.
_DIVERGENCES = tuple(f"kl_{of}_{unit}_nats" for of in ("old", "ref") for unit in ("per_token", "per_sequence"))
# Evaluations of the start by everything they depend on: cells of one seed and task that run in one process share it.
_STARTS: dict[str, Evaluation] = {}


class Recorder:
    """Writes what a run does to its folder."""

    def __init__(self, run: Run, folder: RunFolder, notify: Notify) -> None:
        self._run = run
        self._folder = folder
        self._notify = notify
        self._score: float | None = None

    def begin(self) -> None:
        """Evaluate the start; record the surrogate's shape and where the parts of the run come from."""
        self._folder.write_atomic("run.json", self._run.config.model_dump_json().encode())
        shape = {name: [_finite(value) for value in column] for name, column in surrogate_shape(self._run).items()}
        self._folder.write_atomic("surrogate.json", dump_json(shape).encode())
        self._evaluate("validation", 0.0)
        self._evaluate("test", 0.0)

    def evaluate_point(self, point: int) -> None:
        """Evaluate the policy that is the last one within the budget's point number ``point``."""
        self._evaluate("validation", (point + 1) / self._run.config.eval.points)

    def iteration(self, experience: Experience, metrics: StepMetrics, moved: dict[str, float], seconds: float) -> None:
        """Record one iteration; ``moved`` is empty where the budget ended it."""
        run = self._run
        row = {
            "iteration": run.iteration,
            **_position(run),
            **_rollout_metrics(experience),
            **metrics.summary(),
            **{name: moved.get(name) for name in (*_DIVERGENCES, *ROUTING_METRICS)},
            "region_divergence": moved.get("divergence"),
            "region_coef": run.coef,
        }
        row["grad_norm"] = row.pop("policy_grad_norm", None)
        self._folder.append("metrics", {name: _finite(value) for name, value in row.items()})
        self._folder.append("timing", {"iteration": run.iteration, "seconds": seconds})
        self._tell()

    def end(self) -> None:
        """Evaluate the final state, the last one within the budget, and write the weights."""
        self._evaluate("validation", 1.0)
        self._evaluate("test", 1.0)
        self._tell()
        weights = policy_weights(self._run)
        if self._run.policy.shape.merge():
            self._run.ledger.book("merging", Work(self._run.policy.shape.merge()))
        self._folder.write_atomic("weights.safetensors", weights)
        self._finish("completed", "", {"weights.safetensors": sha256_hex(weights)})
        self._folder.remove("checkpoint")

    def _tell(self) -> None:
        run = self._run
        self._notify({"fraction": run.ledger.fraction, "score": self._score, "iteration": run.iteration})

    def diverge(self, cause: str) -> None:
        """Evaluate the last state, which no step has spoilt, where the run ended; record the failure and raise it."""
        reached = self._run.ledger.fraction
        if self._run.updates:  # else it is the start, which is known
            self._evaluate("validation", reached)
            self._evaluate("test", reached)
        self.fail("divergence", cause)

    def fail(self, failure: Failure, cause: str) -> None:
        """Record the failure and raise it."""
        self._finish("failed", cause, {}, failure)
        raise RunFailed(cause)

    def _finish(self, status: Any, cause: str, digests: dict[str, str], failure: Failure = "error") -> None:
        run = self._run
        seconds = {**run.ledger.seconds, "train": run.ledger.train_seconds()}
        outside = {name: value for name, value in seconds.items() if name != "train"}
        self._folder.append(
            "timing",
            {
                "total": True,
                "seconds": sum(seconds.values()),
                "train_seconds": seconds["train"],
                "eval_seconds": seconds.get("evaluation", 0.0),
                "train_phase_seconds": run.ledger.train_phases,
                "outside_seconds": outside,
                "peak_memory_bytes": peak_memory_bytes(),
            },
        )
        spent = run.ledger.spent
        totals = {
            "spent_flops": spent.flops,
            "executed_flops": spent.executed_flops,
            "eval_flops": run.ledger.phases.get("evaluation", Work()).flops,
            "generated_tokens": spent.generated_tokens,
            "trained_tokens": spent.trained_tokens,
            "updates": spent.updates,
            "iterations": run.iteration,
            "discarded_flops": run.ledger.discarded_flops,
            "phases": {phase: asdict(work) for phase, work in sorted(run.ledger.phases.items())},
        }
        self._folder.finish(status, cause, digests, totals, failure)

    def _evaluate(self, split: Split, fraction: float) -> None:
        run, config = self._run, self._run.config
        with run.ledger.outside("evaluation"):
            outcome = self._start(split) if fraction == 0 else _evaluation(run, split)
        run.ledger.book("evaluation", outcome.work)
        limit = config.rollout.max_infra_frac
        check_scored(tally(outcome.scores), limit, f"the {split} evaluation", "rollout.max_infra_frac")
        summary = outcome.summary()
        if split == "validation":
            self._score = summary["score"]
        row = {"split": split, "fraction": fraction, "iteration": run.iteration, **_position(run), **summary}
        self._folder.append("evals", row)
        for sample in outcome.rows()[: config.engine.sample_rows]:
            self._folder.append("samples", {**sample, "fraction": fraction})

    @cached_property
    def _identity(self) -> dict[str, Any]:
        return identity(self._run.config)

    def _start(self, split: Split) -> Evaluation:
        run = self._run
        whole = self._identity
        known = dump_json(
            {
                "split": split,
                "seed": run.config.seed,
                "limit": run.config.rollout.max_response_tokens,
                "config": {name: whole["config"][name] for name in ("policy", "sampler", "task", "eval", "engine")},
                "sources": whole["sources"],
            }
        )
        if known in _STARTS:
            return _STARTS[known]
        found = _evaluation(run, split)
        if not any(score.verdict == "infra" for score in found.scores):  # an outage is not kept for other cells
            _STARTS[known] = found
        return found


def _evaluation(run: Run, split: Split) -> Evaluation:
    config = run.config
    return evaluate(
        run.policy,
        run.sampler,
        run.task,
        split=split,
        num_prompts=config.eval.num_prompts if split == "validation" else config.eval.test_prompts,
        samples=config.eval.samples,
        temperature=config.eval.temperature,
        seed=config.seed,
        limit=config.rollout.max_response_tokens,
        batch_rows=config.eval.batch_rows,
        ks=config.eval.pass_k,
    )


def _position(run: Run) -> dict[str, int]:
    """Return where a run stands on every counted axis."""
    spent = run.ledger.spent
    return {"updates": run.updates, "spent_flops": spent.flops, "generated_tokens": spent.generated_tokens}


def _rollout_metrics(experience: Experience) -> dict[str, Any]:
    """Return what the responses that ended in this iteration show of the policy that made them."""
    fresh = experience.ended
    new = experience.origin != Origin.REPLAY
    lengths = experience.mask.sum(1).float()[fresh]
    rewards, correct, group = experience.rewards[fresh], experience.correct[fresh], experience.group[fresh]
    known = ~rewards.isnan()
    groups = [rewards[known & (group == g)] for g in group[known].unique()]
    right = [correct[known & (group == g)] == 1 for g in group[known].unique()]
    return {
        "rollout_lag": experience.lag,
        "reward_mean": float(rewards[known].mean()),
        "shaped_reward_mean": _known_mean(experience.shaped_rewards, fresh),
        "greedy_reward_mean": _known_mean(experience.greedy_rewards, fresh),
        "infra_frac": experience.infra_share,
        "response_tokens_mean": float(lengths.mean()),
        "response_tokens_right_mean": float(lengths[correct == 1].mean()),
        "response_tokens_wrong_mean": float(lengths[correct == 0].mean()),
        "length_limited_frac": float((experience.finish[fresh] != 0).float().mean()),
        "window_limited_frac": float((experience.finish[new] == Finish.WINDOW).float().mean()),
        "replayed_frac": float((~new).float().mean()),
        "informative_frac": sum(bool((group != group[:1]).any()) for group in groups) / max(1, len(groups)),
        "all_right_frac": sum(bool(group.all()) for group in right) / max(1, len(right)),
        "num_rejected_groups": experience.num_rejected,
        "verdicts": dict(sorted(experience.verdicts.items())),
        **{name: experience.prompt_metrics.get(name) for name in PROMPT_METRICS},
    }


def _known_mean(rewards: Tensor | None, rows: Tensor) -> float | None:
    """Return the mean of the known ``rewards`` among ``rows``; None without rewards, NaN if none is known."""
    return None if rewards is None else float(rewards[rows & ~rewards.isnan()].mean())


def _finite(value: Any) -> Any:
    """Return ``value``, None for a float that is NaN or infinite: missing stays missing."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
