"""Collect a rollout: prompts, groups of responses, verdicts, and what else the objective asks for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.config.parts import PromptsConfig
from harness.config.schema import RolloutConfig
from harness.engine.experience import Experience
from harness.engine.infra import Tally
from harness.engine.judging import Judged, judge
from harness.engine.ledger import Ledger, Work
from harness.engine.policy import Policy
from harness.engine.prompts import Draw, Prompts
from harness.engine.samplers import NO_NOISE, Sampler, Samples
from harness.engine.streams import noises
from objectives import Finish, Objective, Origin
from tasks.base import Example, Task

__all__ = ["collect"]


@dataclass
class _Round:
    """One sampling round: groups and what they earned."""

    examples: Sequence[Example]
    keys: list[str]
    prompts: list[list[int]]
    samples: Samples
    judged: Judged


def collect(
    policy: Policy,
    sampler: Sampler,
    task: Task,
    objective: Objective,
    config: RolloutConfig,
    ledger: Ledger,
    *,
    seed: int,
    iteration: int,
    cursor: int,
    prompts: Prompts | None = None,
) -> Experience:
    """Sample one rollout and score it; everything sampled is charged, rejected groups too.

    Groups that ``objective.keep_groups`` rejects are replaced by groups of the next prompts, ``max_resamples`` times at
    most; what is still missing then is filled with rejected groups, so that the rollout keeps its size. Prompts are
    those of ``prompts``, which takes note of every group; of all training examples if None. Whatever the rollout
    spends, its curriculum stands where it stood at its start.
    """
    prompts = prompts or Prompts(PromptsConfig(), seed, task.examples("train"))  # pyright: ignore[reportCallIssue]
    fraction = ledger.fraction
    draws: list[Draw] = []
    kept: list[tuple[_Round, int]] = []
    rejected: list[tuple[_Round, int]] = []
    counts: Tally = Counter()
    visits: Counter[str] = Counter()
    for _ in range(1 + config.max_resamples):
        draw = prompts.draw(cursor, config.num_prompts - len(kept), fraction)
        draws.append(draw)
        cursor = draw.cursor
        round_ = _sample_round(policy, sampler, task, draw.examples, config, ledger, seed, iteration, visits)
        counts += round_.judged.tally
        shape = (len(draw.examples), config.group_size)
        for example, correct in zip(draw.examples, round_.judged.correct.reshape(shape).tolist(), strict=True):
            prompts.observe(example.id, correct)
        for index, keep in enumerate(objective.keep_groups(round_.judged.rewards.reshape(shape)).tolist()):
            (kept if keep else rejected).append((round_, index))
        if len(kept) == config.num_prompts:
            break
    missing = config.num_prompts - len(kept)
    chosen = [*kept, *rejected[:missing]]
    experience = _join(chosen, config.group_size, policy.tokenizer.pad_id, iteration)
    experience.tally, experience.cursor, experience.num_rejected = counts, cursor, len(rejected) - missing
    experience.prompt_metrics = prompts.metrics(draws, fraction)
    if "greedy_rewards" in objective.requires:
        picked = [round_.examples[index] for round_, index in chosen]
        greedy = _greedy(policy, sampler, task, picked, config.max_response_tokens, ledger)
        _add_greedy(experience, greedy, config.group_size)
    return experience


def _greedy(
    policy: Policy, sampler: Sampler, task: Task, examples: Sequence[Example], limit: int, ledger: Ledger
) -> Judged:
    """Return what the greedy response to each example earned, charged as "greedy"."""
    prompts = [policy.tokenizer.prompt_ids(task.prompt(example)) for example in examples]

    def as_greedy(work: Mapping[str, Work]) -> None:
        (part,) = work.values()
        ledger.charge({"greedy": part})

    noise = [NO_NOISE] * len(prompts)
    with ledger.timed("greedy"):
        drawn = sampler.sample(policy, prompts, noise, limit=limit, temperature=0, charge=as_greedy)
    with ledger.timed("verify"):
        return judge(task, examples, _texts(policy, drawn), drawn.mask.sum(1), drawn.finish)


def _add_greedy(experience: Experience, greedy: Judged, group_size: int) -> None:
    """Give each response what the greedy response to its prompt earned."""
    experience.greedy_tally = greedy.tally
    experience.greedy = greedy.rows(torch.arange(len(greedy.rewards)).repeat_interleave(group_size))
    experience.greedy_rewards = experience.greedy.rewards


def _sample_round(
    policy: Policy,
    sampler: Sampler,
    task: Task,
    examples: Sequence[Example],
    config: RolloutConfig,
    ledger: Ledger,
    seed: int,
    iteration: int,
    visits: Counter[str],
) -> _Round:
    """Sample and score a group for each example; ``visits`` counts what each has had in this rollout."""
    prompts = [policy.tokenizer.prompt_ids(task.prompt(example)) for example in examples]
    keys: list[str] = []
    for example in examples:  # an example met again, over the end of an epoch, must not repeat its responses
        again = visits[example.id]
        visits[example.id] += 1
        keys.append(f"{example.id} again {again}" if again else example.id)
    noise = noises(seed, "rollout", iteration, keys, config.group_size)
    window = config.window_tokens or config.max_response_tokens
    asked = {"limit": window, "temperature": config.temperature, "charge": ledger.charge}
    with ledger.timed("sample"):
        drawn = sampler.sample(policy, prompts, noise, **asked)
    if window < config.max_response_tokens:
        drawn.finish[drawn.finish == Finish.LENGTH] = int(Finish.WINDOW)
    repeated = [example for example in examples for _ in range(config.group_size)]
    with ledger.timed("verify"):
        judged = judge(task, repeated, _texts(policy, drawn), drawn.mask.sum(1), drawn.finish)
    return _Round(examples, keys, prompts, drawn, judged)


def _texts(policy: Policy, drawn: Samples) -> list[str]:
    """Return the responses as text."""
    rows = zip(drawn.ids.tolist(), drawn.mask.sum(1).tolist(), strict=True)
    return [policy.tokenizer.decode(row[:n]) for row, n in rows]


def _join(chosen: Sequence[tuple[_Round, int]], group_size: int, pad_id: int, iteration: int) -> Experience:
    """Lay the chosen groups of all rounds under each other, padded to one width."""
    width = max(round_.samples.ids.shape[1] for round_, _ in chosen)

    def rows(tensor: Tensor, index: int, fill: int) -> Tensor:
        block = tensor[index * group_size : (index + 1) * group_size]
        return block if block.ndim == 1 else torch.nn.functional.pad(block, (0, width - block.shape[1]), value=fill)

    group = torch.arange(len(chosen)).repeat_interleave(group_size)
    draws = [(iteration, round_.keys[index], i) for round_, index in chosen for i in range(group_size)]
    return Experience(
        draws=draws,
        begin=torch.zeros_like(group),
        prompts=[round_.prompts[index] for round_, index in chosen for _ in range(group_size)],
        examples=[round_.examples[index].id for round_, index in chosen for _ in range(group_size)],
        group=group,
        prompt_of_row=group,
        origin=torch.full((len(group),), int(Origin.FRESH), dtype=torch.int8),
        ids=torch.cat([rows(round_.samples.ids, index, pad_id) for round_, index in chosen]),
        mask=torch.cat([rows(round_.samples.mask, index, 0) for round_, index in chosen]),
        logprobs=torch.cat([rows(round_.samples.logprobs, index, 0) for round_, index in chosen]),
        finish=torch.cat([rows(round_.samples.finish, index, 0) for round_, index in chosen]),
        rewards=torch.cat([rows(round_.judged.rewards, index, 0) for round_, index in chosen]),
        correct=torch.cat([rows(round_.judged.correct, index, 0) for round_, index in chosen]),
        formatted=torch.cat([rows(round_.judged.formatted, index, 0) for round_, index in chosen]),
    )
