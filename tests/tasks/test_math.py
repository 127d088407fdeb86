"""Competition mathematics: rows of several shapes, prompts, gold answers, and every published item of MATH-500."""

import json
import math
import re
from pathlib import Path

import pytest

from tasks.math import Math
from tasks.sandbox.program import SandboxError

PUBLISHED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "math500.jsonl"
needs_published = pytest.mark.skipif(not PUBLISHED.exists(), reason="the published data are not at hand")

PROBLEM = r"Write $0.75$ as a common fraction."
SOLUTION = "We have $0.75 = \\frac{75}{100}$.\nThat is $\\boxed{\\dfrac{3}{4}}$."


def row(**values):
    return {"problem": PROBLEM, "answer": r"\frac{3}{4}", **values}


def load(tmp_path, *rows, **settings):
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return Math(test=str(tmp_path / "test.jsonl"), **settings)


def one(tmp_path, **values):
    task = load(tmp_path, row(**values))
    return task, task.examples("test")[0]


def test_the_module_does_not_stand_in_for_the_standard_library():
    assert math.isclose(math.pi, 3.14159, abs_tol=1e-5)


def test_the_prompt_is_the_problem_and_the_form_of_the_answer(tmp_path):
    task, example = one(tmp_path, solution=SOLUTION)
    assert task.prompt(example).startswith(f"{PROBLEM}\n\n")
    assert task.prompt(example).endswith(r"\boxed{}")
    assert r"\frac" not in task.prompt(example)


def test_the_gold_response_is_the_solution_where_its_box_is_the_answer(tmp_path):
    task, example = one(tmp_path, solution=SOLUTION)
    assert task.gold(example) == SOLUTION
    assert [(d.response, d.style) for d in task.demonstrations(example)] == [
        (SOLUTION, "careful"),
        (r"\boxed{\frac{3}{4}}", "bare"),
    ]


@pytest.mark.parametrize(
    "solution", [None, "", "No box.", r"First \boxed{\frac34}, then \boxed{5}.", r"\boxed{\frac{3}{4"]
)
def test_the_gold_response_is_the_boxed_answer_elsewhere(tmp_path, solution):
    task, example = one(tmp_path, solution=solution)
    assert task.gold(example) == r"\boxed{\frac{3}{4}}"
    assert [d.style for d in task.demonstrations(example)] == ["bare"]


@pytest.mark.parametrize(
    ("values", "difficulty"),
    [
        ({"level": 5}, "level 5"),
        ({"level": "Level 5"}, "level 5"),
        ({"level": "5"}, "level 5"),
        ({"level": "Level ?"}, "level ?"),
        ({"level": 2, "subject": "Algebra"}, "level 2"),
        ({"subject": "Algebra"}, "Algebra"),
        ({"level": None, "subject": "Algebra"}, "Algebra"),
        ({"level": "", "subject": None}, ""),
        ({}, ""),
    ],
)
def test_difficulty_is_the_level_else_the_subject(tmp_path, values, difficulty):
    assert one(tmp_path, **values)[1].difficulty == difficulty


def test_integers_as_aime_gives_them(tmp_path):
    rows = [
        {"problem": "a", "answer": 204},
        {"problem": "b", "answer": "025"},
        {"problem": "c", "answer": 0, "id": 7},
        {"problem": "d", "answer": "73", "id": 8, "solution": None},
    ]
    task = load(tmp_path, *rows)
    a, b, c, d = task.examples("test")
    passing = [(a, "204"), (a, "204.0"), (b, "25"), (b, "025"), (c, "0"), (d, "73")]
    assert [task.score(e, rf"\boxed{{{text}}}").verdict for e, text in passing] == ["pass"] * 6
    failing = [(a, "-204"), (a, "20"), (b, "250"), (b, "0"), (c, "10"), (d, "72")]
    assert [task.score(e, rf"\boxed{{{text}}}").verdict for e, text in failing] == ["wrong"] * 6
    assert (c.id, d.id) == ("7", "8")


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        (r"\boxed{\frac{3}{4}}", "pass"),
        (r"\boxed{3/4}", "pass"),
        (r"\boxed{\tfrac34}", "pass"),
        (r"\boxed{5}. No: \boxed{\frac{3}{4}}", "pass"),
        (r"\boxed{\frac{3}{4}}. No: \boxed{5}", "wrong"),
        (r"\boxed{\frac{4}{3}}", "wrong"),
        (r"\boxed{\frac{3}{5}}", "wrong"),
        (r"\boxed{}", None),
        (r"\boxed{\frac{3}{4}", None),
        (r"\boxed{\frac{3}{4} \text{ or } 5}", None),
        (r"\boxed{\text{the answer}}", None),
        (r"\frac{3}{4}", "format"),
        ("", "format"),
    ],
)
def test_verdict(tmp_path, response, verdict):
    task, example = one(tmp_path)
    score = task.score(example, response)
    assert score.verdict == verdict if verdict else score.value == 0.0


def test_equal_answers_vote_as_one(tmp_path):
    task, _ = one(tmp_path)
    assert task.answer(r"so \boxed{\frac{3}{4}}") == task.answer(r"\boxed{ \dfrac{3}{4} }")
    assert task.answer(r"\boxed{\frac{3}{4}}") != task.answer(r"\boxed{\frac{4}{3}}")
    assert task.answer("no box") is None


def test_the_id_is_the_data_sets_own(tmp_path):
    assert one(tmp_path, unique_id="test/algebra/1.json", id=3)[1].id == "test/algebra/1.json"
    assert one(tmp_path, id="math_3")[1].id == "math_3"
    assert re.fullmatch("[0-9a-f]{16}", one(tmp_path)[1].id)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"answer": "  "}, r"test\.jsonl line 1: the answer '' cannot be read, so nothing"),
        *[({"answer": a}, "cannot be read, so nothing") for a in ("?", "5 6", r"\frac10", "a=b=c", r"x \to 5")],
        ({"answer": 1.5}, r"test\.jsonl line 1: field 'answer' is 1\.5 \(float\), expected int or str"),
        ({"problem": " "}, r"test\.jsonl line 1: the prompt is empty"),
        ({"solution": ["x"]}, r"field 'solution' is .*, expected str"),
        ({"level": [5]}, r"field 'level' is \[5\] \(list\), expected int or str"),
    ],
)
def test_a_row_that_cannot_be_used_stops_the_load(tmp_path, values, message):
    with pytest.raises(ValueError, match=message):
        one(tmp_path, **values)


@needs_published
def test_every_published_gold_answer_passes_and_wrong_ones_do_not():
    task = Math(test=str(PUBLISHED))  # loading checks every gold answer
    examples = task.examples("test")
    assert len(examples) == 500
    assert task.dropped() == ()
    worked = sum(len(task.demonstrations(example)) == 2 for example in examples)
    assert worked >= 495  # the solution's own box is the published answer
    assert {example.difficulty for example in examples} == {f"level {n}" for n in range(1, 6)}
    shown = [(example, d.response) for example in examples for d in task.demonstrations(example)]
    assert all(score.value == 1 for score in task.score_many(shown))
    wrong = []
    for index, example in enumerate(examples):
        answer = example.data["answer"]
        own = task.answer(task.gold(example))  # x = 5 and 5 are one answer
        other = next(e for e in examples[index - 1 :: -1] if task.answer(task.gold(e)) != own)
        changed = re.sub("[0-9]", lambda digit: str((int(digit[0]) + 1) % 10), answer, count=1)
        wrong += [(example, task.gold(other))] + [(example, rf"\boxed{{{changed}}}")] * (changed != answer)
    passed = [pair for pair, score in zip(wrong, task.score_many(wrong), strict=True) if score.value != 0]
    assert len(wrong) > 900
    assert passed == []


def test_math_verify_settles_what_own_means_cannot_tell(tmp_path):
    task = load(tmp_path, row(problem="a", answer=r"\cot x"), row(problem="b", answer="7"))
    cotangent, seven = task.examples("test")
    pairs = [
        (cotangent, r"\boxed{\frac{\cos x}{\sin x}}"),
        (seven, r"\boxed{8}"),
        (cotangent, r"\boxed{\tan x}"),
        (seven, r"\boxed{7}"),
    ]
    expected = ["pass", "wrong", "wrong", "pass"]
    assert [score.verdict for score in task.score_many(pairs)] == expected
    assert [task.score(*pair).verdict for pair in pairs] == expected


def test_the_version_of_math_verify_is_in_the_fingerprint(tmp_path, monkeypatch):
    task, _ = one(tmp_path)
    before = task.fingerprint()
    monkeypatch.setattr("tasks.math.version", lambda name: f"{name} 9.9.9")
    assert task.fingerprint() != before


def test_math_verify_that_cannot_run_is_infra(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise SandboxError("no processes")

    task = load(tmp_path, row(answer=r"\cot x"))
    (example,) = task.examples("test")
    monkeypatch.setattr("tasks.answers.symbolic.process", refuse)
    for score in (*task.score_many([(example, r"\boxed{\tan x}")]), task.score(example, r"\boxed{\tan x}")):
        assert score.verdict == "infra"
        assert math.isnan(score.value)
