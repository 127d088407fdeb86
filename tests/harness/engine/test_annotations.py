"""What a rollout brings besides its numbers: greedy rewards, a teacher, keyed uniforms, ends of steps, task steps."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from tiny_engine import cell, free_run, make_config, make_policy, plugin, roll, sample, teach, update

import tasks
from harness.config.errors import UserError
from harness.config.loading import apply_overrides, resolve_run
from harness.engine.annotations import keyed_uniforms
from harness.engine.checkpoint import policy_weights
from harness.engine.estimate import estimate_cell
from harness.engine.identity import identity
from harness.engine.passes import score_rows
from harness.engine.run import build_run

ARITHMETIC = {"name": "arithmetic", "train_size": 50, "validation_size": 5, "test_size": 5}


def test_greedy_rewards_are_those_of_the_most_probable_response(tiny):
    run = free_run(make_config(objective={"name": "remax"}))
    experience, _, rollout, targets = roll(run)
    prompts = [experience.prompts[i] for i in range(0, 16, 4)]
    drawn = sample(run.policy, prompts, np.zeros((4, 1, 8)), temperature=0)
    texts = [run.policy.tokenizer.decode(row[:n]) for row, n in zip(drawn.ids.tolist(), drawn.mask.sum(1), strict=True)]
    expected = [float(sum(map(ord, text)) % 2 == 0) for text in texts]
    assert rollout.greedy_rewards.tolist() == [reward for reward in expected for _ in range(4)]
    row = int((rollout.rewards != rollout.greedy_rewards).nonzero()[0])
    assert targets.advantages[row, 0] == rollout.rewards[row] - rollout.greedy_rewards[row]
    greedy = run.ledger.phases["greedy"]
    assert greedy.generated_tokens == int(drawn.mask.sum())
    assert greedy.flops > 0
    assert run.ledger.spent.generated_tokens == greedy.generated_tokens + sum(experience.lengths)


def test_greedy_responses_change_no_sample(tiny):
    plain, _, _, _ = roll(free_run(make_config()))
    remax, _, _, _ = roll(free_run(make_config(objective={"name": "remax"})))
    assert torch.equal(plain.ids, remax.ids)
    assert plain.greedy_rewards is None


@pytest.fixture
def taught_weights(tmp_path, tiny):
    run = build_run(make_config())
    run.policy.model.load_state_dict(teach(make_policy(seed=11)).model.state_dict())
    path = tmp_path / "teacher.safetensors"
    path.write_bytes(policy_weights(run))
    return path


def distilling(**teacher):
    return make_config(
        objective={"name": "kdrl", "beta_start": 1.0, "beta_end": 1.0},
        teacher=teacher,
        rollout={"num_prompts": 8},
        update={"learning_rate": 1e-3, "max_grad_norm": 100.0},
    )


def test_a_teacher_scores_the_students_tokens(tiny, taught_weights):
    run = free_run(distilling(name="tiny", weights=str(taught_weights)))
    experience, plan, rollout, _ = roll(run)
    rows = plan.minibatches[0][0]
    assert torch.equal(rollout.teacher_logprobs[rows], score_rows(run, run.teacher, experience, rows).logprobs)
    assert (rollout.teacher_logprobs - rollout.old_logprobs)[experience.mask].abs().max() > 0.1
    assert run.ledger.phases["teacher"].flops == run.ledger.phases["old"].flops
    assert not any(p.requires_grad for p in run.teacher.model.parameters())


def test_a_student_comes_nearer_to_its_teacher(tiny, taught_weights):
    run = free_run(distilling(name="tiny", weights=str(taught_weights)))
    gaps = []
    for _ in range(15):
        parts = roll(run)
        experience, _, rollout, _ = parts
        gaps.append(
            float((rollout.old_logprobs - rollout.teacher_logprobs)[experience.mask].mean())
        )  # KL, nats a token
        update(run, parts)
        run.iteration += 1
    assert sum(gaps[-3:]) / 3 < 0.7 * gaps[0]


def test_an_objective_without_its_teacher_is_refused(tiny):
    config = resolve_run({**make_config().model_dump(), "objective": {"name": "kdrl"}})
    with pytest.raises(UserError, match=r"learns from a teacher: name one with teacher\.name"):
        build_run(config)


def test_the_weights_of_policy_and_teacher_are_in_the_identity_and_their_place_is_not(tiny, taught_weights, tmp_path):
    other = tmp_path / "elsewhere" / taught_weights.name
    other.parent.mkdir()
    other.write_bytes(taught_weights.read_bytes())
    first = identity(distilling(name="tiny", weights=str(taught_weights)))
    assert first == identity(distilling(name="tiny", weights=str(other)))
    other.write_bytes(taught_weights.read_bytes() + b" ")
    assert first != identity(distilling(name="tiny", weights=str(other)))
    assert identity(make_config(policy={"name": "tiny", "weights": str(taught_weights)})) != identity(make_config())


def test_a_policy_starts_from_given_weights(tiny, taught_weights):
    run = build_run(make_config(policy={"name": "tiny", "weights": str(taught_weights)}))
    assert policy_weights(run) == taught_weights.read_bytes()


def test_weights_for_a_pretrained_policy_are_refused(tiny, tmp_path):
    with pytest.raises(UserError, match="go into an embedded preset"):
        build_run(make_config(policy={"name": str(tmp_path), "weights": "x.safetensors"}))


def test_missing_weights_are_named(tiny):
    with pytest.raises(UserError, match=r"cannot read the weights in nowhere\.safetensors"):
        build_run(make_config(policy={"name": "tiny", "weights": "nowhere.safetensors"}))


def segments_of(rule, **more):
    config = make_config(objective={"name": "gspo_subsequence", "segment_rule": rule}, task=ARITHMETIC, **more)
    run = free_run(config)
    return run, *roll(run)


def test_delimiters_end_segments(tiny):
    run, experience, _, _, targets = segments_of("delimiter", rollout={"delimiters": ["1", "2", "3"]})
    decode = run.policy.tokenizer.decode
    seen = 0
    for row in range(16):
        ids = experience.ids[row, : experience.lengths[row]].tolist()
        expected, current = [], 0
        for token in ids:
            expected.append(current)
            current += decode([token]) in ("1", "2", "3")
        seen = max(seen, current)
        assert targets.extras["segment"][row, : len(ids)].tolist() == expected
    assert seen >= 1


def test_task_steps_are_those_of_the_response(tiny):
    run, experience, _, rollout, _ = segments_of("oracle")
    for row in range(16):
        text = run.policy.tokenizer.decode(experience.ids[row, : experience.lengths[row]].tolist())
        expected = [text[:place].count(";") for place in range(len(text))]
        assert rollout.task_steps[row, : len(text)].tolist() == expected


def test_arithmetic_names_the_steps_of_its_careful_responses():
    task = tasks.make("arithmetic")
    assert list(task.step_starts("37+8=45;45-21=24;#24")) == [0, 8, 17]
    assert list(task.step_starts("")) == [0]
    assert tasks.make("synthesis").step_starts("x+1") is None


def raises(error):
    def step_starts(_):
        raise error

    return step_starts


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        (lambda _: [0, 0.5], r"returned \[0, 0\.5\], expected None or a list of ints"),
        (lambda _: 3, "returned 3, expected None or a list of ints"),
        (lambda _: [0, 2, 1], r"returned \[0, 2, 1\], expected rising offsets in \[0, "),
        (lambda _: [0, 10_000], r"returned \[0, 10000\], expected rising offsets in \[0, "),
        (lambda _: [-1, 0], "expected rising offsets"),
        (raises(ValueError("no\nsteps")), "raises ValueError: no"),
        (raises(OSError("gone")), "raises OSError: gone"),
        (raises(SystemExit(0)), "raises SystemExit: 0"),
    ],
)
def test_broken_steps_of_a_task_are_told_in_a_line(tiny, monkeypatch, starts, message):
    run = free_run(make_config(objective={"name": "gspo_subsequence", "segment_rule": "oracle"}, task=ARITHMETIC))
    monkeypatch.setattr(type(run.task), "step_starts", lambda self, response: starts(response))
    with pytest.raises(UserError, match=message) as caught:
        roll(run)
    assert "step_starts of task Arithmetic on the response " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_task_may_name_no_steps_of_a_response(tiny, monkeypatch):
    run = free_run(make_config(objective={"name": "gspo_subsequence", "segment_rule": "oracle"}, task=ARITHMETIC))
    monkeypatch.setattr(type(run.task), "step_starts", lambda self, response: None)
    assert int(roll(run)[2].task_steps.max()) == 0


def test_steps_of_a_task_that_names_none_are_refused(tiny):
    with pytest.raises(UserError, match="names none"):
        build_run(
            make_config(objective={"name": "gspo_subsequence", "segment_rule": "oracle"}, task={"name": "synthesis"})
        )


def test_random_segments_are_the_same_for_every_policy(tiny):
    run, experience, _, _, targets = segments_of("random")
    with torch.no_grad():
        for parameter in run.policy.model.parameters():
            parameter *= 1.01
    run.cursor = 0
    again = roll(run)
    width = min(experience.mask.shape[1], again[0].mask.shape[1])
    both = experience.mask[:, :width] & again[0].mask[:, :width]
    first, second = targets.extras["segment"][:, :width], again[3].extras["segment"][:, :width]
    assert torch.equal(first[both], second[both])
    run.iteration += 1
    assert not torch.equal(roll(run)[2].uniforms[:, 0], again[2].uniforms[:, 0])


def test_uniforms_belong_to_a_prompts_sample_wherever_it_stands(tiny):
    plain = free_run(make_config(task=ARITHMETIC))
    first = roll(plain)[0]
    drawn = keyed_uniforms(plain, first, "step", 7)
    moved = dataclasses.replace(
        first,
        examples=first.examples[:8],
        group=first.group[:8],
        origin=first.origin[:8],
        mask=torch.nn.functional.pad(first.mask[:8], (0, 3)),
    )
    fewer = keyed_uniforms(plain, moved, "step", 7)
    assert torch.equal(fewer[:, : drawn.shape[1]], drawn[:8])
    assert len(set(drawn[:, 0].tolist())) == 16
    assert not torch.equal(keyed_uniforms(plain, first, "step", 8), drawn)


def test_an_objective_that_rejects_groups_must_say_how_often(tiny):
    tables = apply_overrides(make_config(objective={"name": "dapo"}).model_dump(), {"rollout.max_resamples": 0})
    with pytest.raises(UserError, match=r"say how often with rollout\.max_resamples >= 1"):
        build_run(resolve_run(tables))


@pytest.mark.parametrize("name", ["remax", "kdrl"])
def test_the_estimate_counts_greedy_responses_and_teachers(tiny, name):
    plain = estimate_cell(make_config(budget={"axis": "updates", "amount": 4}))
    more = estimate_cell(make_config(objective={"name": name}, budget={"axis": "updates", "amount": 4}))
    assert more.flops > plain.flops


def test_file_plugins_are_still_objectives(tiny):
    assert build_run(make_config(objective=plugin("Prepared"))).objective is not None


BUDGET = {"axis": "updates", "amount": 12}


@pytest.mark.parametrize(
    "tables",
    [
        {"trust_region": {"name": "backtrack", "delta": 1e-4, "estimator": "exact"}},
        {"trust_region": {"name": "projection", "delta": 1e-3}},
        {"trust_region": {"name": "dual", "estimator": "exact"}},
        {"objective": {"name": "remax"}},
        {"replay": {"strategy": "all", "min_cache": 4, "max_cache": 8}},
        {"shaping": {"name": "bingo"}},
    ],
)
def test_the_estimate_is_an_upper_bound_of_what_is_charged(tiny, tables, tmp_path):
    config = make_config(
        task={**ARITHMETIC, "train_size": 8, "validation_size": 6, "test_size": 6}, budget=BUDGET, **tables
    )
    cell(config, tmp_path)
    spent = json.loads((tmp_path / "status.json").read_text())["totals"]["spent_flops"]
    assert spent <= estimate_cell(config).flops
