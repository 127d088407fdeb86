"""Which prompts are drawn: by label, by the curriculum, by their pass rate; and that a resumed run draws the same."""

import json
import math

import pytest
import torch
from test_train import Killed, kill_at
from tiny_engine import cell, digests, free_run, make_config, roll, update

from harness.config.errors import UserError
from harness.config.loading import resolve_run
from harness.config.parts import PromptsConfig
from harness.engine.checkpoint import restore_run, save_run
from harness.engine.ledger import Ledger
from harness.engine.prompts import Prompts, sorted_labels
from harness.engine.run import build_run
from harness.engine.streams import prompt_order
from tasks.base import Example

LABELS = ["10 steps", "2 steps", "2 steps", "3 steps", "10 steps", "3 steps", "2 steps", "2 steps"]
EXAMPLES = [Example(f"e{i}", "train", label) for i, label in enumerate(LABELS)]


def prompts(seed=0, examples=EXAMPLES, **settings):
    return Prompts(PromptsConfig(**settings), seed, examples)


def ids(draw):
    return [example.id for example in draw.examples]


def test_by_default_prompts_are_those_of_the_stream():
    found = prompts(seed=3)
    cursor, drawn = 0, []
    for count in (3, 8, 1, 5):
        draw = found.draw(cursor, count, 0.0)
        drawn += ids(draw)
        assert (draw.cursor, draw.waiting) == (cursor + count, 0)
        cursor = draw.cursor
    assert drawn == [f"e{i}" for i in prompt_order(3, 8, 0, 17)]
    assert found.metrics([draw], 0.5) == dict.fromkeys(("competence", "open_prompts_frac", "waiting_prompts_frac"))
    found.observe("e0", [1.0, 1.0])
    assert json.loads(found.state()) == {"rates": {}, "passed": {}}


def test_labels_sort_by_the_numbers_in_them():
    assert sorted_labels(["10 steps", "9 steps", "1 step", "9 steps"]) == ["1 step", "9 steps", "10 steps"]
    assert sorted_labels(["level 2.5", "level 10", "level 2"]) == ["level 2", "level 2.5", "level 10"]
    assert sorted_labels(["b", "a", "", "a2", "a10", "3"]) == ["", "3", "a", "a2", "a10", "b"]


def test_only_the_labels_asked_for_are_drawn():
    draw = prompts(difficulties=["3 steps", "10 steps"]).draw(0, 8, 0.0)
    assert set(ids(draw)) == {"e0", "e3", "e4", "e5"}
    assert draw.cursor == 8


@pytest.mark.parametrize("pacing", ["root", "linear"])
def test_competence_by_hand(pacing):
    found = prompts(order="easy_to_hard", pacing=pacing, start_share=0.1, open_at=0.5)
    expected = {
        "linear": {0.0: 0.1, 0.125: 0.325, 0.25: 0.55, 0.5: 1.0, 0.9: 1.0},
        "root": {0.0: 0.1, 0.125: math.sqrt(0.01 + 0.99 / 4), 0.25: math.sqrt(0.01 + 0.99 / 2), 0.5: 1.0, 0.9: 1.0},
    }[pacing]
    for fraction, competence in expected.items():
        assert found.competence(fraction) == pytest.approx(competence, rel=1e-12)


def test_a_label_opens_as_a_whole_when_the_competence_reaches_into_it():
    """Easiest to hardest: 4 of 8 with 2 steps, 2 with 3, 2 with 10."""
    found = prompts(order="easy_to_hard", pacing="linear", start_share=0.01)
    easy, medium, hard = {"e1", "e2", "e6", "e7"}, {"e3", "e5"}, {"e0", "e4"}
    for competence, open_ in ((0.01, easy), (0.5, easy), (0.51, easy | medium), (0.75, easy | medium)):
        fraction = (competence - 0.01) / 0.99
        assert set(ids(found.draw(0, 40, fraction))) == open_, competence
        assert found.open_share(fraction) == len(open_) / 8
    for fraction in (0.76, 1.0):
        assert set(ids(found.draw(0, 40, fraction))) == easy | medium | hard
        assert found.open_share(fraction) == 1.0


def test_prompts_too_hard_for_now_are_passed_over_in_the_stream():
    draw = prompts(seed=5, order="easy_to_hard").draw(0, 6, 0.0)
    order = [f"e{i}" for i in prompt_order(5, 8, 0, draw.cursor)]
    assert ids(draw) == [name for name in order if name in {"e1", "e2", "e6", "e7"}]
    assert order[-1] == ids(draw)[-1]


def test_the_order_of_the_labels_can_be_given():
    given = ["10 steps", "2 steps", "3 steps"]
    found = prompts(order="easy_to_hard", difficulty_order=given)
    assert set(ids(found.draw(0, 8, 0.0))) == {"e0", "e4"}
    some = prompts(order="easy_to_hard", difficulty_order=given, difficulties=["2 steps", "3 steps"])
    assert set(ids(some.draw(0, 8, 0.0))) == {"e1", "e2", "e6", "e7"}


def test_a_prompt_that_is_always_right_waits_and_comes_back():
    found = prompts(max_pass_rate=0.9, revisit=2)
    found.observe("e1", [1.0, 1.0, math.nan])
    found.observe("e2", [1.0, 0.0, 1.0])
    order = [f"e{i}" for i in prompt_order(0, 8, 0, 32)]
    expected = [name for place, name in enumerate(order) if name != "e1" or place >= 16]  # two epochs without it
    draw = found.draw(0, 30, 0.0)  # it stays due until it is measured again
    assert ids(draw) == expected
    assert (draw.cursor, draw.waiting) == (32, 2)
    found.observe("e1", [math.nan, math.nan])  # nothing known: still due
    assert ids(found.draw(0, 8, 0.0)) == order[:8]
    found.observe("e1", [1.0, 1.0, 1.0])
    assert found.draw(0, 9, 0.0).waiting == 1  # it waits anew
    found.observe("e1", [1.0, 0.0, 1.0])
    assert ids(found.draw(0, 8, 0.0)) == order[:8]


@pytest.mark.parametrize(
    ("settings", "rate", "waits"),
    [
        ({"min_pass_rate": 0.25}, [0.0, 0.0, 0.0, 0.0], True),
        ({"min_pass_rate": 0.25}, [1.0, 0.0, 0.0, 0.0], False),
        ({"min_pass_rate": 0.25}, [1.0, 1.0, 1.0, 1.0], False),
        ({"max_pass_rate": 0.75}, [1.0, 1.0, 1.0, 0.0], False),
        ({"max_pass_rate": 0.75}, [1.0, 1.0, 1.0, 1.0], True),
        ({"min_pass_rate": 0.2, "max_pass_rate": 0.8}, [1.0, 0.0], False),
    ],
)
def test_the_bounds_of_the_pass_rate_are_kept(settings, rate, waits):
    found = prompts(**settings)
    found.observe("e1", rate)
    assert (found.draw(0, 9, 0.0).waiting > 0) == waits  # more than an epoch has without it


def test_where_every_prompt_waits_the_first_to_have_waited_long_enough_is_drawn():
    found = prompts(max_pass_rate=0.5, revisit=3)
    for example in EXAMPLES:
        found.observe(example.id, [1.0])
    draw = found.draw(0, 3, 0.0)
    assert len(draw.examples) == 3
    assert draw.waiting == 3 * 8
    assert ids(draw) == [f"e{i}" for i in prompt_order(0, 8, 24, 3)]
    assert found.metrics([draw], 0.0)["waiting_prompts_frac"] == pytest.approx(24 / 27)


def test_a_curriculum_counts_only_open_prompts_as_waiting():
    found = prompts(order="easy_to_hard", max_pass_rate=0.5, revisit=1)
    for example in EXAMPLES:
        found.observe(example.id, [1.0])
    draw = found.draw(0, 4, 0.0)
    assert draw.waiting == 4
    assert set(ids(draw)) == {"e1", "e2", "e6", "e7"}


REFUSED = [
    (
        {"difficulties": ["4 steps"]},
        "names '4 steps', which no training prompt has; the labels are '2 steps'",
    ),
    (
        {"difficulties": ["2 steps"], "order": "easy_to_hard"},
        "two difficulty labels or more; the prompts have only",
    ),
    ({"order": "easy_to_hard", "difficulty_order": ["2 steps"]}, "leaves out '3 steps', '10 steps': name each label"),
    (
        {"order": "easy_to_hard", "difficulty_order": ["2 steps", "3 steps", "10 steps", "2 steps"]},
        "names a label twice",
    ),
    ({"order": "easy_to_hard", "difficulty_order": ["hard", "2 steps"]}, "difficulty_order names 'hard', which no"),
]


@pytest.mark.parametrize(("settings", "reason"), REFUSED)
def test_labels_that_are_not_there_are_refused_with_those_that_are(settings, reason):
    with pytest.raises(UserError) as refusal:
        prompts(**settings)
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_task_without_examples_is_refused():
    with pytest.raises(UserError, match="no training example"):
        prompts(examples=[])


def test_bounds_that_exclude_everything_are_refused():
    with pytest.raises(UserError, match=r"prompts\.min_pass_rate = 0\.9 is above prompts\.max_pass_rate = 0\.1"):
        resolve_run({"budget": {"amount": 1.0}, "prompts": {"min_pass_rate": 0.9, "max_pass_rate": 0.1}})


ARITHMETIC = {"name": "arithmetic", "train_size": 24, "validation_size": 6, "test_size": 6, "operands": [2, 3, 4]}


def iterate(run):
    """Make one iteration of the training loop; return its experience."""
    parts = roll(run)
    update(run, parts)
    run.iteration, run.cursor = run.iteration + 1, parts[0].cursor
    return parts[0]


def test_what_is_passed_over_costs_nothing(tiny):
    """Two runs that end up with the same prompts are charged the same, however far they walked."""
    labels = [example.difficulty for example in build_run(make_config(task=ARITHMETIC)).task.examples("train")]
    assert {"2 operands", "3 operands", "4 operands"} == set(labels)
    walking = free_run(make_config(task=ARITHMETIC, prompts={"order": "easy_to_hard"}))
    experience = roll(walking)[0]
    assert experience.cursor > 4
    generated = walking.ledger.spent.generated_tokens
    assert generated == sum(experience.lengths)
    known = {example.id: example.difficulty for example in walking.task.examples("train")}
    assert {known[name] for name in experience.examples} == {"2 operands"}


def test_a_run_opens_harder_prompts_as_its_budget_is_spent(tiny, tmp_path):
    config = make_config(
        task=ARITHMETIC, prompts={"order": "easy_to_hard", "pacing": "linear", "start_share": 0.25},
        budget={"axis": "updates", "amount": 16}, eval={"points": 1},
    )  # fmt: skip
    cell(config, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["competence"] for row in rows] == pytest.approx([0.25 + 0.75 * i / 8 for i in range(8)])
    shares = [row["open_prompts_frac"] for row in rows]
    assert shares == sorted(shares)
    assert shares[0] < 0.5 < shares[-1] == 1.0
    assert all(row["waiting_prompts_frac"] is None for row in rows)


FILTERED = {"max_pass_rate": 0.6, "min_pass_rate": 0.2, "revisit": 2}


def test_measured_groups_make_prompts_wait_rejected_ones_too(tiny):
    run = free_run(make_config(
        task=ARITHMETIC, objective={"name": "dapo", "overlong_buffer": 0.0}, rollout={"max_resamples": 2},
        prompts=FILTERED,
    ))  # fmt: skip
    experience = roll(run)[0]
    assert experience.num_rejected > 0
    assert len(run.prompts.rates) == 4 + experience.num_rejected
    for group in range(4):
        rows = (experience.group == group).nonzero()[:, 0]
        rate = run.prompts.rates[experience.examples[int(rows[0])]]
        assert rate == pytest.approx(float(experience.correct[rows].mean()))
    assert sum(run.ledger.phases[p].generated_tokens for p in ("prefill", "decode")) >= sum(experience.lengths)


def test_a_checkpoint_holds_what_was_measured(tiny):
    run = free_run(make_config(task=ARITHMETIC, prompts=FILTERED))
    for _ in range(10):
        iterate(run)
    assert run.prompts.passed
    other = build_run(run.config)
    other.ledger = Ledger("updates", 10**9)
    restore_run(other, save_run(run, {}))
    assert other.prompts.state() == run.prompts.state()
    for each in (run, other):
        iterate(each)
    assert save_run(run, {}) == save_run(other, {})


CHOSEN = [
    {"difficulties": ["3 operands", "4 operands"]},
    FILTERED,
    {"order": "easy_to_hard", "start_share": 0.2},
    {"order": "easy_to_hard", "start_share": 0.3, "pacing": "linear", **FILTERED},
]


@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda table: "-".join(table)[:40])
@pytest.mark.parametrize("objective", ["grpo", "dapo"])
def test_a_run_killed_at_any_checkpoint_ends_byte_equal(tiny, tmp_path, monkeypatch, chosen, objective):
    config = make_config(
        task=ARITHMETIC, objective={"name": objective}, prompts=chosen, budget={"axis": "tokens", "amount": 2000},
        eval={"points": 1, "num_prompts": 2, "test_prompts": 2}, engine={"checkpoint_every": 2},
    )  # fmt: skip
    cell(config, tmp_path / "whole")
    rows = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) > 6
    if "max_pass_rate" in chosen:
        assert max(row["waiting_prompts_frac"] for row in rows) > 0
    for name, number in (("write_checked", 2), ("append", 14)):
        with monkeypatch.context() as patch:
            kill_at(patch, name, number)
            with pytest.raises(Killed):
                cell(config, tmp_path / name)
        cell(config, tmp_path / name)
        assert digests(tmp_path / name) == digests(tmp_path / "whole")


def test_windowed_runs_can_have_a_curriculum(tiny):
    run = free_run(make_config(
        task=ARITHMETIC, objective={"name": "tppo"}, rollout={"window_tokens": 4, "max_response_tokens": 8},
        prompts={"order": "easy_to_hard"},
    ))  # fmt: skip
    first = iterate(run)
    assert first.prompt_metrics["open_prompts_frac"] < 1
    assert torch.equal(first.group.unique(), torch.arange(4))
