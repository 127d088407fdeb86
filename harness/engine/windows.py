"""Resumable rollouts: a response grows by a window of tokens an iteration and is carried over until it ends.

Any objective that can learn from unfinished responses (``Objective.windows``) can use it. A response is continued with
the noise that it began with, so under an unchanging policy it is the one that would have been sampled at once. Rows
that end make room for fresh prompts ("successive batching", Truncated PPO, arXiv:2506.15050).
"""

from collections import Counter

import numpy as np
import torch
from torch import Tensor

from harness.engine.experience import Experience
from harness.engine.rollout import judge
from harness.engine.run import Run
from harness.engine.sampler import sample
from harness.engine.streams import uniform_row
from harness.engine.unfinished import Unfinished
from objectives import Finish, Origin, Rollout

__all__ = ["carry_over", "continued"]


def carry_over(run: Run, experience: Experience, rollout: Rollout) -> None:
    """Remember the responses that the window cut off, with what they were drawn with so far."""
    assert rollout.old_entropy is not None
    found = {"ids": experience.ids, "logprobs": experience.logprobs}
    found |= {"old_logprobs": rollout.old_logprobs, "old_entropy": rollout.old_entropy}
    lengths = experience.lengths
    run.unfinished = [
        Unfinished(
            experience.examples[row],
            experience.draws[row],
            {name: value[row, : lengths[row]].detach().clone() for name, value in found.items()},
        )
        for row in (experience.finish == Finish.WINDOW).nonzero()[:, 0].tolist()
    ]


def continued(run: Run) -> Experience | None:
    """Sample the next window of every unfinished response; None if there is none."""
    carried, config, task = run.unfinished, run.config.rollout, run.task
    if not carried:
        return None
    examples = {example.id: example for example in task.examples("train")}
    encode, decode = run.policy.tokenizer.encode, run.policy.tokenizer.decode
    prompts = [encode(task.prompt(examples[one.example])) for one in carried]
    prefixes = [one.tensors["ids"].tolist() for one in carried]
    window, limit = config.window_tokens, config.max_response_tokens
    noise = [
        uniform_row(run.config.seed, "rollout", *one.draw, limit)[len(prefix) : len(prefix) + window]
        for one, prefix in zip(carried, prefixes, strict=True)
    ]
    drawn = sample(
        run.policy,
        [[*prompt, *prefix] for prompt, prefix in zip(prompts, prefixes, strict=True)],
        np.stack(noise)[:, None],
        temperature=config.temperature,
        charge=run.ledger.charge,
    )
    begin = torch.tensor([len(prefix) for prefix in prefixes])
    width = int((begin + drawn.mask.sum(1)).max())

    def laid_out(name: str, new: Tensor | None, fill: float) -> Tensor:
        rows = torch.full((len(carried), width), fill, dtype=carried[0].tensors[name].dtype)
        for row, one in enumerate(carried):
            old = one.tensors[name]
            rows[row, : len(old)] = old
            if new is not None:
                rows[row, len(old) : len(old) + int(drawn.mask[row].sum())] = new[row][drawn.mask[row]]
        return rows

    lengths = begin + drawn.mask.sum(1)
    cut = (drawn.finish == Finish.LENGTH) & (lengths < limit)
    finish = torch.where(cut, int(Finish.WINDOW), drawn.finish).to(torch.int8)
    ids = laid_out("ids", drawn.ids, run.policy.tokenizer.pad_id)
    texts = [decode(row[:length]) for row, length in zip(ids.tolist(), lengths.tolist(), strict=True)]
    verdicts: Counter[str] = Counter()
    rewards, correct = judge(task, [examples[one.example] for one in carried], texts, finish, verdicts)
    numbers = {example: place for place, example in enumerate(dict.fromkeys(one.example for one in carried))}
    group = torch.tensor([numbers[one.example] for one in carried])
    return Experience(
        prompts=prompts,
        examples=[one.example for one in carried],
        draws=[one.draw for one in carried],
        group=group,
        prompt_of_row=group,
        origin=torch.full((len(carried),), int(Origin.CONTINUED), dtype=torch.int8),
        begin=begin,
        ids=ids,
        mask=torch.arange(width) < lengths[:, None],
        logprobs=laid_out("logprobs", drawn.logprobs, 0.0),
        finish=finish,
        rewards=rewards,
        correct=correct,
        stored={name: laid_out(name, None, 0.0) for name in ("old_logprobs", "old_entropy")},
        verdicts=verdicts,
        cursor=run.cursor,
    )
