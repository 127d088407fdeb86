"""HumanEval: completions and whole functions, tests outside the program."""

import json
import sys
from pathlib import Path

import pytest

import tasks

sys.path.insert(0, str(Path(__file__).parent))
import published

from tasks.code_task import fenced


@pytest.fixture(scope="module")
def task():
    return tasks.make("humaneval", test=published.file("HumanEval.jsonl.gz"))


def test_every_published_solution_passes_as_completion_and_as_a_whole(task):
    examples = task.examples("test")
    assert len(examples) == 164
    whole = [fenced(example.data["prompt"] + example.data["solution"]) for example in examples]
    assert {score.verdict for score in task.score_many(zip(examples, whole, strict=True))} == {"pass"}


@pytest.mark.parametrize("how", ["another item's", "emptied", "another value"])
def test_nothing_made_wrong_of_a_solution_passes(task, how):
    examples = task.examples("test")

    def wrong(index, data):
        code = data["prompt"] + data["solution"]
        if how == "another item's":
            return examples[index - 1].data["prompt"] + examples[index - 1].data["solution"]
        return published.emptied(code) if how == "emptied" else published.off_by_one(code, data["entry"])

    pairs = [(example, fenced(wrong(index, example.data))) for index, example in enumerate(examples)]
    scores = task.score_many(pairs)
    assert [(e.id, s) for (e, _), s in zip(pairs, scores, strict=True) if s.verdict in ("pass", "infra")] == []


def test_there_is_nothing_to_train_on(task):
    with pytest.raises(ValueError, match=r"humaneval has no train items: give train="):
        task.examples("train")


def test_a_helper_of_the_prompt_cannot_be_bent_to_agree(task):
    """decode(encode(x)) == x holds of two identities; the tests encode on their own side."""
    example = next(e for e in task.examples("test") if e.data["entry"] == "decode_cyclic")
    bent = "def encode_cyclic(s):\n    return s\n\ndef decode_cyclic(s):\n    return s\n"
    assert task.score(example, bent).verdict == "wrong"


@pytest.fixture
def sample():
    return tasks.make("humaneval", source="sample", timeout_seconds=1.0)


def test_a_completion_ends_where_the_function_does(sample):
    example = sample.examples("test")[0]
    for more in (
        "\nprint(undefined)",
        "\ndef another(): pass",
        "\n# the end",
        "\nif __name__ == '__main__':\n    1 / 0",
    ):
        assert sample.score(example, example.data["solution"].rstrip() + more).verdict == "pass"


def test_a_completion_without_indentation_is_no_python(sample):
    assert sample.score(sample.examples("test")[0], "return 1").verdict == "format"


def write(tmp_path, **change):
    row = {
        "task_id": "x/0",
        "prompt": "def f(x):\n",
        "canonical_solution": "    return x + 1\n",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        "entry_point": "f",
    }
    (tmp_path / "x.jsonl").write_text(json.dumps({**row, **change}) + "\n")
    return tasks.make("humaneval", test=str(tmp_path / "x.jsonl"))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"entry_point": "g"}, "do not define 'g'"),
        ({"test": "def chek(candidate): pass"}, "test must define check"),
        ({"test": "def check(candidate)"}, "test is no Python"),
        ({"test": "def check(candidate):\n    assert candidate(1) == 3\n"}, "does not pass"),
        ({"canonical_solution": "    return y\n"}, "does not pass"),
    ],
)
def test_a_faulty_item_is_named_with_its_place(tmp_path, change, cause):
    with pytest.raises(ValueError, match=cause) as refusal:
        write(tmp_path, **change).examples("test")
    assert "x.jsonl line 1" in str(refusal.value)


@pytest.mark.parametrize(
    "test",
    [
        "def check(candidate):\n    assert candidate(1) == 2\n    assert True\n",
        "METADATA = {}\ndef check(candidate):\n    '''Doc.'''\n    assert candidate(1) == 2, 'message'\n",
        "def check(candidate):\n    for x in range(5):\n        assert candidate(x) == x + 1\n",
        "def check(f):\n    import math\n    assert math.isclose(f(1), 2)\n",
        "def near(a, b): return abs(a - b) < 1e-9\ndef check(candidate):\n    assert near(candidate(1), 2)\n",
        "def check(candidate):\n    assert all(candidate(x) == x + 1 for x in range(3))\n",
        "def check(candidate):\n    values = [1, 2]\n    assert list(map(candidate, values)) == [2, 3]\n",
        "def check(candidate):\n    try:\n        candidate()\n    except Exception:\n        pass\n"
        "    assert candidate(1) == 2\n",
    ],
)
def test_tests_of_every_shape_are_judged(tmp_path, test):
    task = write(tmp_path, test=test)
    (example,) = task.examples("test")
    assert task.score(example, "    return x + 1\n").verdict == "pass"
    assert task.score(example, "    return x\n").verdict == "wrong"
    assert task.score(example, "    return\n").value == 0
