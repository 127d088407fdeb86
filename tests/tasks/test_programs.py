"""Problems of one's own: assertions, inputs and outputs, checkers, faults of the file."""

import json

import pytest

import tasks

DOUBLE = {"prompt": "Write f, which doubles.", "tests": ["assert f(2) == 4"], "solution": "def f(x): return 2 * x"}
ECHO = {"prompt": "Print the line.", "tests": [{"input": "a\n", "output": "a"}], "solution": "print(input())"}


def make(tmp_path, *rows, **settings):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps({"id": number, **row}) + "\n" for number, row in enumerate(rows)))
    return tasks.make("programs", test=str(path), timeout_seconds=1.0, **settings)


def test_assertions_and_outputs_stand_in_one_file(tmp_path):
    task = make(tmp_path, DOUBLE, ECHO)
    double, echo = task.examples("test")
    responses = [
        (double, "def f(x): return x + x"),
        (echo, "print(input())"),
        (double, "print(input())"),
        (echo, "print(1)"),
    ]
    assert [score.verdict for score in task.score_many(responses)] == ["pass", "pass", "error", "wrong"]


def test_setup_runs_with_the_program_and_support_with_the_judge(tmp_path):
    row = {
        **DOUBLE,
        "tests": ["assert near(f(two), secret())"],
        "setup": "two = 2",
        "support": "def near(a, b): return abs(a - b) < 1e-6\ndef secret(): return 4",
    }
    (example,) = (task := make(tmp_path, row)).examples("test")
    assert task.score(example, "def f(x): return 2 * x").verdict == "pass"
    assert task.score(example, "def near(a, b): return True\ndef f(x): return 0").verdict == "wrong"
    assert task.score(example, "def f(x): return secret()").verdict == "error"


def test_a_checker_of_ones_own_takes_any_right_answer(tmp_path):
    checker = "def check(input, expected, output):\n    return int(output) > int(input)"
    row = {**ECHO, "tests": [{"input": "3", "output": ""}], "solution": "print(int(input()) + 1)", "checker": checker}
    (example,) = (task := make(tmp_path, row)).examples("test")
    assert task.score(example, "print(99)").verdict == "pass"
    assert task.score(example, "print(3)").verdict == "wrong"


def test_a_response_that_breaks_a_checker_is_wrong_and_never_masked(tmp_path):
    checker = "def check(input, expected, output):\n    return int(output) > int(input)"
    row = {**ECHO, "tests": [{"input": "3", "output": ""}], "solution": "print(int(input()) + 1)", "checker": checker}
    (example,) = (task := make(tmp_path, row)).examples("test")
    assert task.score(example, "print('many')").verdict == "wrong"


def test_partial_credit_counts_cases(tmp_path):
    cases = [{"input": str(n), "output": str(n)} for n in range(4)]
    task = make(tmp_path, {**ECHO, "tests": cases}, partial_credit=True)
    (example,) = task.examples("test")
    assert task.score(example, "print(min(int(input()), 2))").value == 0.75
    assert task.score(example, "print(input())").value == 1


def test_an_answer_of_another_order_is_wrong(tmp_path):
    row = {**ECHO, "tests": [{"input": "", "output": "YES\nNO\nYES"}], "solution": "print('YES\\nNO\\nYES')"}
    (example,) = (task := make(tmp_path, row)).examples("test")
    assert task.score(example, "print('NO\\nYES\\nYES')").verdict == "wrong"


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"tests": []}, "tests is empty"),
        ({"tests": ["assert f(1) == 2", {"input": "", "output": ""}]}, "tests must be assertions, or objects"),
        ({"tests": [{"input": ""}]}, "tests must be assertions, or objects"),
        ({"tests": [3]}, "tests must be assertions, or objects"),
        ({"tests": ["f(1) =="]}, "is no Python"),
        ({"checker": "fuzzy"}, "expected lines, exact, tokens, numbers"),
        ({"solution": "def f(x): return x"}, "does not pass"),
        ({"solution": None}, "field 'solution' is null"),
        ({"support": "def ("}, "support is no Python"),
    ],
)
def test_a_faulty_item_is_named_with_its_place(tmp_path, change, cause):
    with pytest.raises(ValueError, match=cause) as refusal:
        make(tmp_path, {**DOUBLE, **change}).examples("test")
    assert "mine.jsonl line 1" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_there_is_no_published_data_set(tmp_path):
    with pytest.raises(ValueError, match="give source="):
        tasks.make("programs").examples("test")
