"""Evaluate a policy on held-out prompts, with common random numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from harness.config.errors import UserError
from harness.engine.ledger import Work
from harness.engine.policy import Policy
from harness.engine.samplers import Sampler, Samples
from harness.engine.streams import noises
from harness.scoring import Group, examples_of, sample_row, score_pairs, summarise, vote_answers
from tasks.base import Example, Score, Split, Task

__all__ = ["Evaluation", "evaluate"]


@dataclass
class Evaluation:
    """Scores of responses on the first prompts of a split.

    Attributes:
        examples: one a response; the samples of a prompt are next to each other.
        responses: texts.
        scores: one a response.
        lengths: response tokens.
        samples: responses a prompt.
        prompts: texts, one a response.
        answers: what each response votes for; None where the task's answers cannot be voted on.
        ks: k of pass@k and maj@k.
        work: what it cost; never charged to a budget.
    """

    examples: list[Example]
    responses: list[str]
    scores: list[Score]
    lengths: list[int]
    samples: int
    prompts: list[str]
    answers: list[str | None] | None = None
    ks: tuple[int, ...] = (1,)
    work: Work = field(default_factory=Work)

    def groups(self) -> list[Group]:
        """Return the scores prompt by prompt."""
        starts = range(0, len(self.scores), self.samples)
        spans = [slice(start, start + self.samples) for start in starts]
        answers = self.answers
        return [
            Group(self.examples[s.start].difficulty, self.scores[s], None if answers is None else answers[s])
            for s in spans
        ]

    def summary(self) -> dict[str, Any]:
        """Return what ``harness.scoring.summarise`` says of the groups, and the mean length; None where unknown."""
        return {**summarise(self.groups(), self.ks), "response_tokens_mean": float(np.mean(self.lengths))}

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a response, as ``evengrad samples`` reads them."""
        columns = zip(self.examples, self.prompts, self.responses, self.scores, strict=True)
        return [
            sample_row(example, number // self.samples, number % self.samples, prompt, response, score)
            for number, (example, prompt, response, score) in enumerate(columns)
        ]


def evaluate(
    policy: Policy,
    sampler: Sampler,
    task: Task,
    *,
    split: Split,
    num_prompts: int,
    samples: int,
    temperature: float,
    seed: int,
    limit: int,
    batch_rows: int,
    ks: Sequence[int] = (1,),
) -> Evaluation:
    """Sample and score the first ``num_prompts`` examples of a split.

    The noise is keyed by seed, split and prompt alone: every policy meets the same prompts and the same noise at every
    point of a run.

    Args:
        policy: the model.
        sampler: draws its responses.
        task: where prompts and verdicts come from.
        split: "validation" or "test".
        num_prompts: prompts; UserError if the split has fewer.
        samples: responses a prompt.
        temperature: divides the logits; 0 takes the most probable token.
        seed: of the run.
        limit: response tokens at most.
        batch_rows: responses sampled at a time.
        ks: k of pass@k and maj@k; UserError if one is above ``samples``.
    """
    examples = examples_of(task, split)
    if num_prompts > len(examples):
        raise UserError(f"{num_prompts} prompts asked of split {split!r}, which has {len(examples)}")
    if max(ks) > samples:
        raise UserError(f"pass@{max(ks)} asked of {samples} response(s) a prompt: sample {max(ks)} or more")
    result = Evaluation([], [], [], [], samples, [], ks=tuple(ks))
    step = max(1, batch_rows // samples)
    for start in range(0, num_prompts, step):
        chosen = examples[start : min(start + step, num_prompts)]
        noise = noises(seed, f"evaluation {split}", 0, [example.id for example in chosen], samples)
        draw = partial(sampler.sample, policy, noise=noise, limit=limit, temperature=temperature)
        _extend(result, policy, task, chosen, draw)
    if max(ks) > 1:
        result.answers = vote_answers(task, result.responses)
    return result


def _extend(
    result: Evaluation, policy: Policy, task: Task, chosen: Sequence[Example], draw: Callable[..., Samples]
) -> None:
    """Add responses to some examples, and their scores, to the result; ``draw`` takes their prompts and a charge."""

    def book(work: Mapping[str, Work]) -> None:
        for part in work.values():
            result.work.add(part)

    asked = [task.prompt(example) for example in chosen]
    prompts = [policy.tokenizer.prompt_ids(text) for text in asked]
    drawn = draw(prompts=prompts, charge=book)
    lengths = drawn.mask.sum(1).tolist()
    texts = [policy.tokenizer.decode(row[:n]) for row, n in zip(drawn.ids.tolist(), lengths, strict=True)]
    repeated = [example for example in chosen for _ in range(result.samples)]
    result.examples += repeated
    result.responses += texts
    result.prompts += [text for text in asked for _ in range(result.samples)]
    result.scores += score_pairs(task, list(zip(repeated, texts, strict=True)))
    result.lengths += lengths
