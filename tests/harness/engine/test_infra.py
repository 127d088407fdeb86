"""What could not be scored: counted once, left out of every objective's step, too much of it the end of a run."""

import dataclasses
import json
import math
from collections import Counter

import pytest
import torch
from test_update import gradient, moved
from tiny_engine import cell, double, free_run, make_config, needs, plugin, roll
from tiny_engine import update as train_on

import objectives
from harness.config.errors import RunFailed
from harness.engine.infra import TooManyUnscored, check_scored, explain, tally, verdicts
from harness.engine.recorder import _rollout_metrics
from objectives.base import select_rows
from objectives.reference_engine import Case, one_step, random_case
from tasks.base import Score

NAN = math.nan


def counts(infra, right, reason="the sandbox is gone"):
    return tally([Score(NAN, "infra", reason)] * infra + [Score(1.0, "pass")] * right)


def test_verdicts_are_counted_with_their_reasons():
    found = tally([Score(0.0, "wrong", "expected 1, got 2")] * 2 + [Score(0.0, "wrong", "x"), Score(1.0, "pass")])
    assert found == {("wrong", "expected 1, got 2"): 2, ("wrong", "x"): 1, ("pass", ""): 1}
    assert verdicts(found) == {"wrong": 3, "pass": 1}
    assert explain(found) == "wrong 3 (2 times 'expected 1, got 2'), pass 1"
    assert explain(Counter()) == ""


@pytest.mark.parametrize(
    ("infra", "right", "limit", "stops"),
    [
        (0, 10, 0.0, False),
        (1, 9, 0.0, True),
        (1, 3, 0.1, False),  # a quarter, but a single failure
        (2, 6, 0.1, True),
        (10, 90, 0.1, False),  # the limit itself is allowed
        (11, 89, 0.1, True),
        (5, 0, 1.0, False),
        (0, 0, 0.0, False),
    ],
)
def test_the_share_that_stops_a_run_by_hand(infra, right, limit, stops):
    if not stops:
        check_scored(counts(infra, right), limit, "the rollout", "rollout.max_infra_frac")
        return
    with pytest.raises(TooManyUnscored):
        check_scored(counts(infra, right), limit, "the rollout", "rollout.max_infra_frac")


def test_the_message_names_counts_and_the_most_common_reason_in_one_line():
    found = counts(3, 5) + counts(1, 0, "another\nreason") + tally([Score(0.0, "format", "no answer")])
    with pytest.raises(TooManyUnscored) as stop:
        check_scored(found, 0.25, "the rollout", "rollout.max_infra_frac")
    assert str(stop.value).startswith(
        "4 of 10 responses of the rollout could not be scored, more than rollout.max_infra_frac = 0.25 allows; "
        "verdicts: infra 4 (3 times 'the sandbox is gone'), pass 5, format 1 (1 times 'no answer'); "
    )
    assert "\n" not in explain(counts(1, 0, "two\nlines"))
    assert len(explain(counts(1, 0, "x" * 5000))) < 200


def unknown(rollout, rows):
    """Return the rollout with the rewards of ``rows`` [N] bool unknown."""
    rewards = torch.where(rows, NAN, rollout.rewards)
    correct = None if rollout.correct is None else torch.where(rows, NAN, rollout.correct)
    return dataclasses.replace(rollout, rewards=rewards, correct=correct)


PATTERNS = {
    "a row": lambda rollout: torch.arange(len(rollout.group)) == 7,
    "a row of each group": lambda rollout: torch.arange(len(rollout.group)) >= len(rollout.group) - 3,
    "a whole group": lambda rollout: rollout.group == 2,
    "all but one group": lambda rollout: rollout.group != 0,
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", objectives.names())
def test_a_step_with_unknown_rewards_is_the_step_without_these_rows(name, pattern):
    objective = objectives.make(name)
    case = random_case(objective.requires)
    rollout = unknown(case.rollout, PATTERNS[pattern](case.rollout))
    known = (~rollout.rewards.isnan()).nonzero()[:, 0]
    with_them = one_step(objective, Case(rollout, case.current))
    current = {key: value[known] for key, value in case.current.items()}
    without = one_step(objective, Case(select_rows(rollout, known), current))
    assert float(with_them.loss) == pytest.approx(float(without.loss), rel=1e-12, abs=1e-15)
    dropped = rollout.rewards.isnan()
    for key, value in with_them.gradients.items():
        torch.testing.assert_close(value[known], without.gradients[key], rtol=1e-11, atol=1e-15)
        assert (value[dropped] == 0).all(), key
    torch.testing.assert_close(with_them.weights[known], without.weights, rtol=1e-12, atol=0)


def laid_out(targets, rows, total):
    """Return the targets of some rows of a rollout where they stand in it."""

    def lay(tensor):
        return None if tensor is None else tensor.new_zeros(total, tensor.shape[1]).index_copy(0, rows, tensor)

    return dataclasses.replace(
        targets,
        **{name: lay(getattr(targets, name)) for name in ("advantages", "loss_mask", "returns", "value_mask")},
        extras={name: lay(value) for name, value in targets.extras.items()},
    )


def configuration(objective, **tables):
    """Return a run of two minibatches a rollout, or of one where the objective wants one update."""
    base = {"rollout": {"num_prompts": 4, "group_size": 4}, "objective": {"name": objective}}
    merged = {**base, **{name: {**base.get(name, {}), **table} for name, table in tables.items()}}
    for name, table in needs(objective).items():
        merged[name] = {**merged.get(name, {}), **table}
    return make_config(task={"name": "arithmetic", "train_size": 50}, **merged)


@pytest.mark.parametrize("name", objectives.names())
def test_the_engine_makes_the_same_gradient_with_them_as_without(tiny, monkeypatch, name):
    """A row of every group but the last of each minibatch, which is unknown as a whole."""
    config = configuration(name)
    run = double(free_run(config))
    experience, plan, rollout, _ = moved(run, roll(run))
    rewards = torch.arange(16).remainder(5).double() / 4
    rollout = dataclasses.replace(rollout, rewards=rewards, correct=(rewards > 0.5).double())
    last = torch.cat([experience.group[torch.cat(part)].max()[None] for part in plan.minibatches])
    rollout = unknown(rollout, torch.isin(rollout.group, last) | (torch.arange(16) % 4 == 1))
    known = (~rollout.rewards.isnan()).nonzero()[:, 0]
    assert 0 < len(known) < 12
    found = gradient(run, (experience, plan, rollout, run.objective.targets(rollout)), monkeypatch)
    targets = laid_out(run.objective.targets(select_rows(rollout, known)), known, 16)
    expected = gradient(run, (experience, plan.of(~rollout.rewards.isnan()), rollout, targets), monkeypatch)
    assert expected.norm() > 0
    assert float((found - expected).norm() / expected.norm()) < 1e-9


@pytest.mark.parametrize("name", ["ppo", "remax", "grpo", "dapo"])
def test_a_minibatch_of_unknown_rewards_alone_has_no_gradient(tiny, name):
    run = free_run(configuration(name))
    experience, plan, rollout, _ = roll(run)
    rollout = unknown(rollout, torch.ones(16, dtype=torch.bool))
    before = [parameter.clone() for parameter in run.policy.model.parameters()]
    train_on(run, (experience, plan, rollout, run.objective.targets(rollout)))
    for parameter, kept in zip(run.policy.model.parameters(), before, strict=True):
        assert torch.equal(parameter, kept)


def test_an_unknown_greedy_reward_takes_its_rows_out(tiny):
    run = free_run(configuration("remax"))
    _, _, rollout, _ = roll(run)
    greedy = torch.where(rollout.group == 1, NAN, rollout.greedy_rewards)
    targets = run.objective.targets(dataclasses.replace(rollout, greedy_rewards=greedy))
    assert not targets.loss_mask[rollout.group == 1].any()
    assert targets.loss_mask[rollout.group != 1].any(1).all()


@pytest.mark.parametrize(
    ("rewards", "kept"),
    [
        ([[NAN, NAN, NAN], [0, 1, NAN], [1, NAN, NAN], [1, 1, NAN], [0, 0, 1]], [False, True, False, False, True]),
    ],
)
def test_unknown_rewards_do_not_make_a_group_informative(rewards, kept):
    assert objectives.make("dapo").keep_groups(torch.tensor(rewards)).tolist() == kept


def test_a_group_of_which_nothing_is_known_is_in_no_mean_of_the_log(tiny):
    run = free_run(make_config())
    experience = roll(run)[0]
    rewards = torch.tensor([NAN] * 4 + [0.0, 1, NAN, NAN] + [1.0] * 8)
    counts = Counter({("infra", "down"): 6, ("pass", ""): 9, ("wrong", ""): 1})
    found = _rollout_metrics(dataclasses.replace(experience, rewards=rewards, correct=rewards, tally=counts))
    assert found["reward_mean"] == pytest.approx(9 / 10)
    assert found["infra_frac"] == pytest.approx(6 / 16)
    assert found["informative_frac"] == pytest.approx(1 / 3)


def failing(**rollout):
    """Return a run of a task that cannot score a response with a "7" in it."""
    task = plugin("Unknowable", train_size=50, validation_size=20, test_size=20)
    return make_config(task=task, rollout=rollout, engine={"checkpoint_every": 1})


def test_a_run_stops_where_too_much_could_not_be_scored(tiny, tmp_path):
    with pytest.raises(RunFailed, match=r"of 16 responses of the rollout could not be scored"):
        cell(failing(max_infra_frac=0.05), tmp_path)
    ended = json.loads((tmp_path / "status.json").read_text())
    assert ended["status"] == "failed"
    assert "more than rollout.max_infra_frac = 0.05 allows; verdicts: infra " in ended["cause"]
    assert "times 'test')" in ended["cause"]
    assert ended["totals"]["generated_tokens"] > 0


def test_a_run_that_was_stopped_goes_on_under_a_higher_limit(tiny, tmp_path):
    cell(failing(max_infra_frac=1.0), tmp_path / "whole")
    with pytest.raises(RunFailed):
        cell(failing(max_infra_frac=0.0), tmp_path / "cut")
    cell(failing(max_infra_frac=1.0), tmp_path / "cut")
    for name in ("weights.safetensors", "metrics.jsonl", "evals.jsonl", "samples.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    rows = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert any(row["infra_frac"] > 0 for row in rows)


def test_a_rollout_of_which_nothing_is_known_ends_the_run_whatever_the_limit(tiny, tmp_path, monkeypatch):
    config = failing(max_infra_frac=1.0)
    monkeypatch.setattr("tasks.arithmetic.Arithmetic.score", lambda *_: Score(NAN, "infra", "gone"))
    config = config.model_copy(update={"task": config.task.model_copy(update={"name": "arithmetic"})})
    with pytest.raises(RunFailed, match=r"no response of the rollout could be scored; verdicts: infra 16 \(16 t"):
        cell(config, tmp_path)
    assert json.loads((tmp_path / "status.json").read_text())["totals"]["updates"] == 0


def test_what_a_check_of_an_evaluation_raises_is_a_recorded_failure(tiny, tmp_path, monkeypatch):
    from harness.engine import recorder

    original = recorder.Recorder._evaluate

    def evaluate(self, split, fraction):
        original(self, split, fraction)
        if fraction == at:
            check_scored(counts(5, 5), 0.1, f"the {split} evaluation", "rollout.max_infra_frac")

    monkeypatch.setattr(recorder.Recorder, "_evaluate", evaluate)
    for at in (0.0, 0.5, 1.0):
        with pytest.raises(RunFailed, match="5 of 10 responses of the validation evaluation"):
            cell(make_config(), tmp_path / str(at))
        assert json.loads((tmp_path / str(at) / "status.json").read_text())["status"] == "failed"


def test_verdicts_are_counted_once_with_windows_and_replay(tiny):
    from harness.engine.windows import carry_over

    arithmetic = {"name": "arithmetic", "train_size": 4}
    windowed = make_config(
        objective={"name": "tppo"}, task=arithmetic, rollout={"window_tokens": 2, "max_response_tokens": 8}
    )
    run, ended, judged = free_run(windowed), 0, 0
    for _ in range(5):
        parts = roll(run)
        carry_over(run, parts[0], parts[2])
        run.iteration, run.cursor = run.iteration + 1, parts[0].cursor
        ended += int(parts[0].ended.sum())
        judged += sum(parts[0].verdicts.values())
    assert ended == judged > 16

    replaying = make_config(
        task=arithmetic, replay={"strategy": "all", "num_replays": 4, "min_cache": 4, "max_cache": 4}
    )
    run = free_run(replaying)
    for _ in range(3):
        parts = roll(run)
        run.replay.push(parts[0], parts[2])
        run.iteration, run.cursor = run.iteration + 1, parts[0].cursor
        assert sum(parts[0].verdicts.values()) == 16
    assert len(parts[0].prompts) > 16


def test_an_unscored_response_is_not_remembered(tiny):
    run = free_run(make_config(task=plugin("Unknowable", train_size=4), replay={"strategy": "all"}))
    experience, _, rollout, _ = roll(run)
    run.replay.push(experience, rollout)
    held = [memory for memories in run.replay.memories.values() for memory in memories]
    assert len(held) == int((~experience.rewards.isnan()).sum()) < 16
    assert all(not math.isnan(memory.reward) for memory in held)


def test_infra_of_greedy_responses_stops_a_run_too(tiny, tmp_path, monkeypatch):
    from harness.engine import rollout

    real = rollout._greedy

    def down(*arguments):
        judged = real(*arguments)
        return dataclasses.replace(judged, tally=Counter({("infra", "judge is down"): judged.tally.total()}))

    monkeypatch.setattr(rollout, "_greedy", down)
    with pytest.raises(RunFailed, match=r"of the rollout could not be scored.*judge is down"):
        cell(make_config(objective={"name": "remax"}, update={"minibatches": 1}), tmp_path)


SMALL = {"name": "arithmetic", "train_size": 50, "validation_size": 20, "test_size": 20}


def test_an_outage_at_the_start_is_not_kept_for_other_cells(tiny, tmp_path, monkeypatch):
    from tasks.arithmetic import Arithmetic

    with monkeypatch.context() as patch:
        patch.setattr(Arithmetic, "score", lambda *_: Score(NAN, "infra", "judge is down"))
        with pytest.raises(RunFailed, match="judge is down"):
            cell(make_config(seed=4711, task=SMALL), tmp_path / "one")
    cell(make_config(seed=4711, task=SMALL), tmp_path / "two")
    assert json.loads((tmp_path / "two" / "status.json").read_text())["status"] == "completed"
