"""What the tasks over programs share: reading a program, limits, partial credit; and rows of each that they read."""

import json
import math
from dataclasses import dataclass

import pytest

import tasks
from tasks.base import Example, Score
from tasks.code_task import read_program
from tasks.programs import Programs
from tasks.sandbox import Result

PASS = Result("pass")


def test_the_language_of_a_block_may_be_in_capitals():
    assert read_program("```Python\nx = 1\n```") == "x = 1\n"
    assert isinstance(read_program("```Ruby\nx = 1\n```"), Score)


def test_a_long_response_is_refused_unread():
    assert read_program("#" * 100_000) == "#" * 100_000
    assert read_program("#" * 100_001) == Score(0.0, "format", "100001 characters, at most 100000")


def test_the_settings_are_the_limits_of_a_program():
    limits = tasks.make("programs", source="sample", timeout_seconds=2.0, memory_bytes=50_000_000).limits
    assert (limits.seconds, limits.wall_seconds, limits.memory_bytes) == (1.0, 2.0, 50_000_000)


def judged(results, total, **settings):
    """Return the score of a program whose tests had these results."""

    @dataclass(frozen=True)
    class Judged(Programs):
        def judge(self, programs):
            return [(results, total)]

    return Judged(source="sample", **settings).score(Example("a", "test"), "x = 1")


def test_tests_that_were_not_judged_are_not_passed():
    assert judged([PASS, PASS], 2).verdict == "pass"
    assert judged([PASS], 2) == Score(0.0, "error", "1 of 2 tests were judged")
    assert judged([], 2) == Score(0.0, "error", "0 of 2 tests were judged")


def test_infra_is_never_0():
    score = judged([PASS, Result("infra", "no sandbox")], 2, partial_credit=True)
    assert (score.verdict, score.reason) == ("infra", "no sandbox")
    assert math.isnan(score.value)


def test_partial_credit_is_the_share_of_all_tests():
    results = [PASS, Result("timeout", "late")]
    assert judged(results, 4, partial_credit=True) == Score(0.25, "timeout", "late (1 of 4 tests)")
    assert judged(results, 4) == Score(0.0, "timeout", "late")


def mbpp(tmp_path, **change):
    row = {"task_id": 700, "text": "Write f.", "code": "def f(x): return x", "test_list": ["assert f(1) == 1"]}
    (tmp_path / "mbpp.jsonl").write_text(json.dumps({**row, **change}))
    return tasks.make("mbpp", source=str(tmp_path / "mbpp.jsonl"), timeout_seconds=1.0)


PUBLISHED = {"train": (1, 10, 601, 974), "test": (11, 510), "validation": (511, 600)}


@pytest.mark.parametrize(("number", "split"), [(number, split) for split in PUBLISHED for number in PUBLISHED[split]])
def test_mbpp_in_one_file_is_parted_as_published(tmp_path, number, split):
    task = mbpp(tmp_path, task_id=number)
    assert [example.id for example in task.examples(split)] == [str(number)]


def test_challenge_tests_count(tmp_path):
    task = mbpp(tmp_path, challenge_test_list=["assert f(2) == 2"])
    (example,) = task.examples("train")
    assert task.score(example, "def f(x): return x").verdict == "pass"
    assert task.score(example, "def f(x): return 1").verdict == "wrong"


def test_the_set_up_runs_and_a_function_may_be_called_like_a_builtin(tmp_path):
    more = {
        "code": "def sum(a, b): return a + b",
        "test_list": ["assert sum(1, two) == 3"],
        "test_setup_code": "two = 2",
    }
    task = mbpp(tmp_path, **more)
    (example,) = task.examples("train")
    assert task.score(example, "def sum(a, b): return b + a").verdict == "pass"
    assert task.score(example, "def sum(a, b): return a - b").verdict == "wrong"


def humaneval(tmp_path, **change):
    (tmp_path / "humaneval.jsonl").write_text(json.dumps({"task_id": "x/0", **change}))
    task = tasks.make("humaneval", test=str(tmp_path / "humaneval.jsonl"), timeout_seconds=1.0)
    return task, task.examples("test")[0]


def test_a_helper_of_the_prompt_cannot_be_bent_to_agree(tmp_path):
    task, example = humaneval(
        tmp_path,
        prompt='def encode(s):\n    return s[1:] + s[:1]\n\n\ndef decode(s):\n    """Decode."""\n',
        canonical_solution="    return s[-1:] + s[:-1]\n",
        test="def check(candidate):\n    assert candidate(encode('abc')) == 'abc'\n",
        entry_point="decode",
    )
    assert task.score(example, "def encode(s): return s\n\ndef decode(s): return s\n").verdict == "wrong"


def test_a_whole_function_has_the_imports_of_the_prompt(tmp_path):
    task, example = humaneval(
        tmp_path,
        prompt='import math\n\n\ndef f(x):\n    """Round down."""\n',
        canonical_solution="    return math.floor(x)\n",
        test="def check(candidate):\n    assert candidate(1.5) == 1\n",
        entry_point="f",
    )
    assert task.score(example, "def f(x):\n    return math.floor(x)\n").verdict == "pass"


def test_a_case_that_fails_leaves_the_later_ones_their_credit(tmp_path):
    cases = [{"input": str(n), "output": str(n)} for n in range(4)]
    row = {"prompt": "Print the line.", "tests": cases, "solution": "print(input())"}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row))
    task = tasks.make("programs", test=str(tmp_path / "mine.jsonl"), timeout_seconds=1.0, partial_credit=True)
    assert task.score(task.examples("test")[0], "print(max(1, int(input())))").value == 0.75
