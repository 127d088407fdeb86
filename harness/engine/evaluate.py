"""Evaluate a policy on held-out prompts, with common random numbers."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness import plugins
from harness.config.errors import CorruptRecordError, UserError
from harness.config.loading import resolve_run
from harness.engine.ledger import Work
from harness.engine.policy import Policy, load_policy, load_weights
from harness.engine.sampler import sample
from harness.engine.streams import uniforms
from tasks.base import Example, Score, Split, Task

__all__ = ["Evaluation", "evaluate", "evaluate_run"]


@dataclass
class Evaluation:
    """Scores of responses on the first prompts of a split.

    Attributes:
        examples: one a response; the samples of a prompt are next to each other.
        responses: texts.
        scores: one a response.
        lengths: response tokens.
        samples: responses a prompt.
        work: what it cost; never charged to a budget.
    """

    examples: list[Example]
    responses: list[str]
    scores: list[Score]
    lengths: list[int]
    samples: int
    work: Work = field(default_factory=Work)

    def pass_rate(self) -> float:
        """Return pass@1: the mean over prompts of the mean over samples; NaN if nothing could be scored."""
        values = np.array([score.value for score in self.scores]).reshape(-1, self.samples)
        known = ~np.isnan(values)
        rows = known.any(1)
        if not rows.any():
            return float("nan")
        return float((np.where(known, values, 0).sum(1)[rows] / known.sum(1)[rows]).mean())

    def summary(self) -> dict[str, Any]:
        """Return score, length, verdicts and the score by difficulty as plain values; None where unknown."""
        by_difficulty: dict[str, list[float]] = defaultdict(list)
        for example, score in zip(self.examples, self.scores, strict=True):
            if not np.isnan(score.value):
                by_difficulty[example.difficulty].append(score.value)
        verdicts = Counter(score.verdict for score in self.scores)
        rate = self.pass_rate()
        return {
            "score": None if np.isnan(rate) else rate,
            "num_prompts": len(self.scores) // self.samples,
            "response_tokens_mean": float(np.mean(self.lengths)),
            "infra": verdicts.get("infra", 0),
            "verdicts": dict(sorted(verdicts.items())),
            "by_difficulty": {name: float(np.mean(values)) for name, values in sorted(by_difficulty.items())},
        }


def evaluate(
    policy: Policy,
    task: Task,
    *,
    split: Split,
    num_prompts: int,
    samples: int,
    temperature: float,
    seed: int,
    limit: int,
    batch_rows: int,
) -> Evaluation:
    """Sample and score the first ``num_prompts`` examples of a split.

    The uniforms are keyed by seed, split and prompt alone: every policy meets the same prompts and the same noise at
    every point of a run.

    Args:
        policy: the model.
        task: where prompts and verdicts come from.
        split: "validation" or "test".
        num_prompts: prompts; UserError if the split has fewer.
        samples: responses a prompt.
        temperature: divides the logits; 0 takes the most probable token.
        seed: of the run.
        limit: response tokens at most.
        batch_rows: responses sampled at a time.
    """
    examples = task.examples(split)
    if num_prompts > len(examples):
        raise UserError(f"{num_prompts} prompts asked of split {split!r}, which has {len(examples)}")
    result = Evaluation([], [], [], [], samples)

    def book(work: Mapping[str, Work]) -> None:
        for part in work.values():
            result.work.add(part)

    step = max(1, batch_rows // samples)
    for start in range(0, num_prompts, step):
        chosen = list(examples[start : min(start + step, num_prompts)])
        prompts = [policy.tokenizer.encode(task.prompt(example)) for example in chosen]
        noise = uniforms(seed, f"evaluation {split}", 0, [example.id for example in chosen], samples, limit)
        drawn = sample(policy, prompts, noise, temperature=temperature, charge=book)
        repeated = [example for example in chosen for _ in range(samples)]
        lengths = drawn.mask.sum(1).tolist()
        texts = [policy.tokenizer.decode(row[:n]) for row, n in zip(drawn.ids.tolist(), lengths, strict=True)]
        result.examples += repeated
        result.responses += texts
        result.scores += task.score_many(zip(repeated, texts, strict=True))
        result.lengths += lengths
    return result


def evaluate_run(folder: Path, split: Split, num_prompts: int | None) -> dict[str, Any]:
    """Evaluate the final weights of a completed run, with the run's own sampling settings.

    Args:
        folder: of the run.
        split: "validation" or "test".
        num_prompts: prompts; those of the run's configuration for the split if None.

    Returns:
        The summary of the evaluation.

    Raises:
        UserError: the run has no final weights.
        CorruptRecordError: its configuration cannot be read.
    """
    try:
        config = resolve_run(json.loads((folder / "run.json").read_text(encoding="utf-8")))
    except (OSError, json.JSONDecodeError, TypeError) as error:
        raise CorruptRecordError(f"{folder / 'run.json'} is not the configuration of a run: {error!r}") from None
    weights = folder / "weights.safetensors"
    if not weights.is_file():
        raise UserError(f"{folder} has no final weights (weights.safetensors): the run has not been completed")
    torch.set_num_threads(config.engine.threads)
    start = config.policy.model_copy(update={"weights": str(weights)}) if config.policy.weights else config.policy
    policy = load_policy(start, config.task.name, config.engine.device)
    load_weights(policy, weights)
    chosen = config.eval.num_prompts if split == "validation" else config.eval.test_prompts
    outcome = evaluate(
        policy,
        plugins.task(config.task),
        split=split,
        num_prompts=num_prompts or chosen,
        samples=config.eval.samples,
        temperature=config.eval.temperature,
        seed=config.seed,
        limit=config.rollout.max_response_tokens,
        batch_rows=config.eval.batch_rows,
    )
    return {"split": split, **outcome.summary()}
