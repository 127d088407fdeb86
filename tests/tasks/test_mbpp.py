"""MBPP: the published solutions pass, what is made wrong of them does not."""

import re
import sys
from pathlib import Path

import pytest

import tasks

sys.path.insert(0, str(Path(__file__).parent))
import published

from tasks.code_task import fenced
from tasks.sandbox import defined_names


@pytest.fixture(scope="module")
def task():
    return tasks.make("mbpp", source=published.file("mbpp.jsonl"))


@pytest.fixture(scope="module")
def examples(task):
    return [example for split in tasks.SPLITS for example in task.examples(split)]


def test_every_published_solution_passes_and_the_splits_are_the_published_ones(task, examples):
    assert {split: len(task.examples(split)) for split in tasks.SPLITS} == {"train": 384, "validation": 90, "test": 500}
    assert not task.dropped()
    assert min(int(e.id) for e in task.examples("test")) == 11


@pytest.mark.parametrize("how", ["another item's", "emptied", "another value"])
def test_nothing_made_wrong_of_a_solution_passes(task, examples, how):
    def wrong(index, example):
        code = example.data["code"]
        if how == "another item's":
            return examples[index - 1].data["code"]
        if how == "emptied":
            return published.emptied(code)
        return published.off_by_one(code, entry(example.data))

    pairs = [(example, fenced(wrong(index, example))) for index, example in enumerate(examples)]
    scores = task.score_many(pairs)
    assert [(e.id, s) for (e, _), s in zip(pairs, scores, strict=True) if s.verdict in ("pass", "infra")] == []


def entry(data):
    """Return the function that the first test calls."""
    return next(name for name in re.findall(r"\w+", data["tests"][0]) if name in defined_names(data["code"]))


def sample(**settings):
    return tasks.make("mbpp", source="sample", timeout_seconds=1.0, **settings)


def test_the_prompt_shows_some_tests_and_never_the_solution():
    for shown in (0, 1, 3):
        task = sample(shown_tests=shown)
        for example in task.examples("train"):
            prompt = task.prompt(example)
            assert sum(test in prompt for test in example.data["tests"]) == shown
            assert example.data["code"] not in prompt


def test_a_program_that_tabulates_what_it_was_shown_does_not_pass():
    task = sample()
    example = next(e for e in task.examples("train") if e.data["tests"][0].startswith("assert double_all"))
    score = task.score(example, "def double_all(values): return [2, 4, 6]")
    assert score.verdict == "wrong"
    assert "double_all([])" in score.reason


@pytest.mark.parametrize("partial", [False, True])
def test_partial_credit_is_the_share_of_the_tests(partial):
    task = sample(partial_credit=partial)
    example = next(e for e in task.examples("train") if e.data["tests"][0].startswith("assert double_all"))
    score = task.score(example, "def double_all(values): return [] if not values else [2, 4, 6]")
    assert score.verdict == "wrong"
    assert score.value == (pytest.approx(2 / 3) if partial else 0)
    assert task.score(example, task.gold(example)).value == 1
    assert task.score(example, "def double_all(values): 1 / 0").value == 0


@pytest.mark.parametrize(
    ("wrap", "verdict"),
    [
        ("{}", "pass"),
        ("Sure:\n```python\n{}\n```\nThat is it.", "pass"),
        ("```\n{}\n```", "pass"),
        ("```python\nx = (\n```\nbetter:\n```python\n{}\n```", "pass"),
        ("```py\r\n{}\r\n```", "pass"),
        ("```python\n{}", "format"),
        ("```python\n{}\n```\n```python\n", "format"),
        ("```js\n{}\n```", "format"),
        ("```python\n{}\n```\n```python\nx = 1\n```", "error"),
        ("Here it is: {}", "format"),
        ("```python\n\n```", "format"),
    ],
)
def test_the_last_block_counts(wrap, verdict):
    task = sample()
    example = task.examples("test")[0]
    assert task.score(example, wrap.format(example.data["code"])).verdict == verdict


def test_equal_programs_are_run_once(monkeypatch):
    from tasks import code_task

    runs = []
    real = code_task.judge_many
    monkeypatch.setattr(
        code_task, "judge_many", lambda suites, *a, **k: runs.append(len(suites)) or real(suites, *a, **k)
    )
    task = sample()
    example, other = task.examples("test")[:2]
    runs.clear()
    scores = task.score_many([(example, task.gold(example))] * 5 + [(other, task.gold(example)), (example, "")])
    assert runs == [2]
    assert [score.verdict for score in scores] == ["pass"] * 5 + ["error", "format"]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"test_list": []}, "test_list is empty"),
        ({"test_list": ["assert f(1) =="]}, "is no Python"),
        ({"test_list": ["assert 1 == 1"]}, "calls nothing of the program's"),
        ({"test_list": ["assert f(1) == 3"]}, "have a gold answer that does not pass"),
        ({"code": "def f(x) return x"}, "have a gold answer that does not pass"),
        ({"text": " "}, None),
        ({"task_id": "1"}, "'task_id' is '1' \\(str\\), expected int"),
    ],
)
def test_a_faulty_item_is_named_with_its_place(tmp_path, change, cause):
    import json

    row = {"task_id": 700, "text": "Write f.", "code": "def f(x): return x", "test_list": ["assert f(1) == 1"]}
    (tmp_path / "x.jsonl").write_text(json.dumps({**row, **change}) + "\n")
    task = tasks.make("mbpp", source=str(tmp_path / "x.jsonl"))
    if cause is None:
        assert len(task.examples("train")) == 1
        return
    with pytest.raises(ValueError, match=cause) as refusal:
        task.examples("train")
    assert "x.jsonl line 1" in str(refusal.value)
    assert "\n" not in str(refusal.value)
