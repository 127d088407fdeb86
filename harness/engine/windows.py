"""Resumable rollouts: a response grows by a window of tokens an iteration and is carried over until it ends.

Any objective that can learn from unfinished responses (``Objective.windows``) can use it. A response is continued with
the noise that it began with, so under an unchanging policy it is the one that would have been sampled at once. Rows
that end make room for fresh prompts ("successive batching", Truncated PPO, arXiv:2506.15050).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.engine.experience import Experience
from harness.engine.judging import judge
from harness.engine.run import Run
from harness.engine.samplers import Samples
from harness.engine.streams import Noise
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
    carried, limit = run.unfinished, run.config.rollout.max_response_tokens
    if not carried:
        return None
    known = {example.id: example for example in run.task.examples("train")}
    examples = [known[one.example] for one in carried]
    prompts = [run.policy.tokenizer.prompt_ids(run.task.prompt(example)) for example in examples]
    with run.ledger.timed("sample"):
        drawn = _next_window(run, prompts)
    begin = torch.tensor([len(one.tensors["ids"]) for one in carried])
    lengths = begin + drawn.mask.sum(1)
    cut = (drawn.finish == Finish.LENGTH) & (lengths < limit)
    finish = torch.where(cut, int(Finish.WINDOW), drawn.finish).to(torch.int8)
    width, pad_id = int(lengths.max()), run.policy.tokenizer.pad_id
    ids = _laid_out(carried, "ids", width, pad_id, drawn.ids, drawn.mask)
    rows = zip(ids.tolist(), lengths.tolist(), strict=True)
    texts = [run.policy.tokenizer.decode(row[:length]) for row, length in rows]
    with run.ledger.timed("verify"):
        judged = judge(run.task, examples, texts, lengths, finish)
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
        logprobs=_laid_out(carried, "logprobs", width, 0, drawn.logprobs, drawn.mask),
        finish=finish,
        rewards=judged.rewards,
        correct=judged.correct,
        formatted=judged.formatted,
        stored={name: _laid_out(carried, name, width, 0) for name in ("old_logprobs", "old_entropy")},
        tally=judged.tally,
        cursor=run.cursor,
    )


def _next_window(run: Run, prompts: Sequence[list[int]]) -> Samples:
    """Sample the next window of the unfinished responses to ``prompts``, with the noise that they began with."""
    prefixes = [one.tensors["ids"].tolist() for one in run.unfinished]
    noise = [
        Noise(run.config.seed, "rollout", *one.draw, begin=len(prefix))
        for one, prefix in zip(run.unfinished, prefixes, strict=True)
    ]
    return run.sampler.sample(
        run.policy,
        [[*prompt, *prefix] for prompt, prefix in zip(prompts, prefixes, strict=True)],
        noise,
        limit=run.config.rollout.window_tokens,
        temperature=run.config.rollout.temperature,
        charge=run.ledger.charge,
    )


def _laid_out(
    carried: Sequence[Unfinished],
    name: str,
    width: int,
    fill: float,
    new: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return what is known of the tokens so far [N, width], and after it the masked tokens of ``new``."""
    rows = torch.full((len(carried), width), fill, dtype=carried[0].tensors[name].dtype)
    for row, one in enumerate(carried):
        known = one.tensors[name]
        parts = [known] if new is None or mask is None else [known, new[row][mask[row]].to(known.dtype)]
        whole = torch.cat(parts)
        rows[row, : len(whole)] = whole
    return rows
