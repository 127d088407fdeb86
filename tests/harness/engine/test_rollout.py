"""Rollouts: whole groups, unknown rewards, resampling, and one key for every sample."""

import dataclasses

import pytest
import torch
from tiny_engine import free_run, make_config, plugin

from harness.engine.rollout import collect
from harness.engine.run import build_run
from tasks.base import Example


def rollout(run, **more):
    config = run.config.rollout.model_copy(update=more)
    return collect(
        run.policy, run.sampler, run.task, run.objective, config, run.ledger,
        seed=run.config.seed, iteration=run.iteration, cursor=run.cursor,
    )  # fmt: skip


def responses(experience):
    return [tuple(row[:n]) for row, n in zip(experience.ids.tolist(), experience.lengths, strict=True)]


def test_a_rollout_is_made_of_whole_groups_in_order(tiny):
    experience = rollout(free_run(make_config()))
    assert experience.group.tolist() == [g for g in range(4) for _ in range(4)]
    prompts = [tuple(p) for p in experience.prompts]
    assert [len(set(prompts[4 * g : 4 * g + 4])) for g in range(4)] == [1] * 4
    assert len(set(prompts)) == 4
    assert experience.cursor == 4
    assert experience.num_rejected == 0
    assert (experience.origin == 0).all()


def test_rewards_and_verdicts_are_those_of_the_responses(tiny):
    run = free_run(make_config())
    experience = rollout(run)
    expected = [float(sum(map(ord, run.policy.tokenizer.decode(r))) % 2 == 0) for r in responses(experience)]
    assert experience.rewards.tolist() == experience.correct.tolist() == expected
    assert 0 < sum(expected) < 16
    assert experience.verdicts == {"pass": sum(expected), "wrong": 16 - sum(expected)}


def test_infrastructure_failures_are_missing_and_not_wrong(tiny):
    run = free_run(make_config(task=plugin("Unknowable", train_size=50)))
    experience = rollout(run, group_size=8)
    unknown = torch.tensor(["7" in run.policy.tokenizer.decode(r) for r in responses(experience)])
    assert 0 < unknown.sum() < 32
    assert torch.equal(experience.rewards.isnan(), unknown)
    assert torch.equal(experience.correct.isnan(), unknown)
    assert experience.verdicts["infra"] == unknown.sum()


def test_rejected_groups_are_replaced_charged_and_counted(tiny):
    run = free_run(make_config(objective=plugin("Mixed"), rollout={"max_resamples": 1}))
    experience = rollout(run, num_prompts=8, group_size=2, max_resamples=20)
    rewards = experience.rewards.reshape(8, 2)
    assert (rewards[:, 0] != rewards[:, 1]).all()
    assert experience.num_rejected > 0
    sampled = experience.num_rejected + 8
    assert experience.cursor == sampled
    assert sum(experience.verdicts.values()) == 2 * sampled
    assert run.ledger.spent.generated_tokens > sum(experience.lengths)
    assert experience.group.tolist() == [g for g in range(8) for _ in range(2)]


def test_the_first_groups_of_a_resampled_rollout_are_those_of_a_plain_one(tiny):
    plain = rollout(free_run(make_config()), num_prompts=8, group_size=2)
    mixed = rollout(
        free_run(make_config(objective=plugin("Mixed"), rollout={"max_resamples": 1})),
        num_prompts=8,
        group_size=2,
        max_resamples=20,
    )
    rewards = plain.rewards.reshape(8, 2)
    kept = (rewards[:, 0] != rewards[:, 1]).nonzero()[:, 0].tolist()
    assert 0 < len(kept) < 8
    expected = [row for g in kept for row in responses(plain)[2 * g : 2 * g + 2]]
    assert responses(mixed)[: len(expected)] == expected


@pytest.mark.parametrize("resamples", [0, 2])
def test_a_rollout_keeps_its_size_when_every_group_is_rejected(tiny, resamples):
    run = free_run(make_config(objective=plugin("Picky"), rollout={"max_resamples": 1}))
    experience = rollout(run, max_resamples=resamples)
    assert len(experience.prompts) == 16
    assert experience.cursor == 4 * (1 + resamples)
    assert experience.num_rejected == 4 * resamples
    assert experience.group.tolist() == [g for g in range(4) for _ in range(4)]
    assert run.ledger.phases["prefill"].generated_tokens == 16 * (1 + resamples)


class Twins:
    """Two examples with one text, and what else a task needs."""

    def __init__(self, count):
        self._examples = [Example(f"twin-{i}", "train") for i in range(count)]

    def examples(self, split):
        del split
        return self._examples

    def prompt(self, example):
        del example
        return "1+1="

    def score_many(self, pairs):
        from tasks.base import Score

        return [Score(float(example.id == "twin-0"), "wrong") for example, _ in pairs]


def test_two_prompts_of_one_text_stay_two_groups(tiny):
    run = dataclasses.replace(free_run(make_config()), task=Twins(2))
    experience = rollout(run, num_prompts=2)
    assert experience.group.tolist() == [0] * 4 + [1] * 4
    assert sorted(experience.rewards.reshape(2, 4).mean(1).tolist()) == [0.0, 1.0]
    advantages = run.objective.targets(as_rollout(experience)).advantages
    assert (advantages == 0).all()
    assert responses(experience)[:4] != responses(experience)[4:]


def as_rollout(experience):
    from objectives import Rollout

    return Rollout(
        experience.rewards, experience.group, experience.origin, experience.finish, experience.ids, experience.mask,
        torch.zeros(experience.mask.shape),
    )  # fmt: skip


def test_a_prompt_that_comes_twice_in_a_rollout_gets_other_responses(tiny):
    run = dataclasses.replace(free_run(make_config()), task=Twins(1))
    experience = rollout(run, num_prompts=3, group_size=8)
    groups = [tuple(responses(experience)[8 * g : 8 * g + 8]) for g in range(3)]
    assert len(set(groups)) == 3


def test_responses_depend_on_seed_iteration_and_nothing_else(tiny):
    first = build_run(make_config())
    again = build_run(make_config(objective={"name": "gspo"}, trust_region={"name": "dual"}))
    assert responses(rollout(first)) == responses(rollout(again))
    assert responses(rollout(build_run(make_config(seed=1)))) != responses(rollout(first))
    before = rollout(first)
    first.iteration = 1
    after = rollout(first)
    assert before.prompts == after.prompts
    assert responses(before) != responses(after)
