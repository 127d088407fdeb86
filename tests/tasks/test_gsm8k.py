"""GSM8K: prompts, the two forms of an answer, demonstrations, and every published item of the test set."""

import json
import re
import time
from pathlib import Path

import pytest

import tasks
from tasks import contract
from tasks.gsm8k import Gsm8k

PUBLISHED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "gsm8k-test.jsonl"
needs_published = pytest.mark.skipif(not PUBLISHED.exists(), reason="the published data are not at hand")

QUESTION = "A box holds 1,200 pens. Half of them are sold for $2 each. How much is that?"
ANSWER = "Half are 1200/2=<<1200/2=600>>600 pens.\nThey bring 600*2=$<<600*2=1200.00>>1,200.\n#### 1,200"


def load(tmp_path, *rows, **settings):
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Gsm8k(test=str(tmp_path / "test.jsonl"), **settings)


def one(tmp_path, answer=ANSWER, **settings):
    task = load(tmp_path, {"question": QUESTION, "answer": answer}, **settings)
    return task, task.examples("test")[0]


def test_the_prompt_is_the_question_and_the_form_of_the_answer(tmp_path):
    task, example = one(tmp_path)
    assert task.prompt(example).startswith(f"{QUESTION}\n\n")
    assert task.prompt(example).endswith("####")
    boxed, example = one(tmp_path, form="boxed")
    assert boxed.prompt(example).endswith(r"\boxed{}")
    assert task.fingerprint() != boxed.fingerprint()


def test_the_gold_response_is_the_published_answer(tmp_path):
    task, example = one(tmp_path)
    assert task.gold(example) == ANSWER
    boxed, example = one(tmp_path, form="boxed")
    assert boxed.gold(example) == ANSWER.replace("#### 1,200", r"\boxed{1,200}")


def test_demonstrations_have_no_calculator_annotations(tmp_path):
    task, example = one(tmp_path)
    careful, bare = task.demonstrations(example)
    assert careful.response == "Half are 1200/2=600 pens.\nThey bring 600*2=$1,200.\n#### 1,200"
    assert bare.response == "#### 1,200"
    boxed, example = one(tmp_path, form="boxed")
    careful, bare = boxed.demonstrations(example)
    assert careful.response == "Half are 1200/2=600 pens.\nThey bring 600*2=$1,200.\n\\boxed{1,200}"
    assert bare.response == r"\boxed{1,200}"


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("#### 1,200", "pass"),
        ("#### 1200", "pass"),
        ("####1200", "pass"),
        ("600*2=1200\n#### 1200\n", "pass"),
        ("#### 1200.0", "pass"),
        ("#### $1200", "pass"),
        ("#### 5\n#### 1200", "pass"),  # the last marker counts
        ("#### 1200\n#### 5", "wrong"),
        ("**#### 1200**", "pass"),
        ("#### **1200**", "pass"),
        ("#### `1200`", "pass"),
        ("#### 1201", "wrong"),
        ("#### 2400/2", "wrong"),
        ("#### 1200...", None),
        ("#### 120", "wrong"),
        ("#### -1200", "wrong"),
        ("#### 1,2000", None),
        ("#### 1200 or 1300", None),
        ("#### 5 1200", None),
        ("#### 1200 5", None),
        ("####", None),
        ("####\n1200", None),
        ("#### 9**9**9**9", None),
        ("1200", "format"),
        (r"\boxed{1200}", "format"),
        ("", "format"),
        ("# 1200", "format"),
    ],
)
def test_the_marker_form(tmp_path, response, verdict):
    task, example = one(tmp_path)
    score = task.score(example, response)
    assert score.verdict == verdict if verdict else score.value == 0.0


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        (r"so \boxed{1200}", "pass"),
        (r"\boxed{1,200}", "pass"),
        (r"\boxed{5} no, \boxed{1200}.", "pass"),
        (r"\boxed{1200} no, \boxed{5}.", "wrong"),
        (r"\boxed{}", None),
        (r"\boxed{1200", None),
        ("#### 1200", "format"),
        ("", "format"),
    ],
)
def test_the_boxed_form(tmp_path, response, verdict):
    task, example = one(tmp_path, form="boxed")
    score = task.score(example, response)
    assert score.verdict == verdict if verdict else score.value == 0.0


def test_equal_answers_vote_as_one(tmp_path):
    task, _ = one(tmp_path)
    votes = {task.answer(response) for response in ("#### 1,200", "a\n#### 1200", "#### 1200.0", "#### $1200")}
    assert len(votes) == 1
    assert None not in votes
    assert task.answer("#### 1201") not in votes
    assert task.answer("no marker") is None


def test_steps_are_lines(tmp_path):
    task, _ = one(tmp_path)
    response = "ab\n\n  \ncd\n#### 5\n"
    assert [response[start:][:2] for start in task.step_starts(response)] == ["ab", "cd", "##"]
    assert list(task.step_starts("")) == [0]
    assert list(task.step_starts("\n\nx")) == [0, 2]


def test_difficulty_counts_the_lines_before_the_answer(tmp_path):
    answers = ["#### 1", "a\n#### 2", "a\nb\n#### 3", "a\n" * 8 + "#### 4", "a\n" * 11 + "#### 5"]
    task = load(tmp_path, *({"question": f"{n}?", "answer": answer} for n, answer in enumerate(answers)))
    found = [example.difficulty for example in task.examples("test")]
    assert found == ["0 steps", "1 step", "2 steps", "8 or more steps", "8 or more steps"]


@pytest.mark.parametrize(
    "answer", ["1,200", "####", "The answer is 1200.\n#### ", "#### x", "#### five", "#### 5 6", "#### 2+3"]
)
def test_an_item_without_a_marked_answer_stops_the_load(tmp_path, answer):
    task = load(tmp_path, {"question": QUESTION, "answer": answer})
    with pytest.raises(ValueError, match=r"test\.jsonl line 1: the answer has no last line #### and a number"):
        task.examples("test")


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="setting 'form' is 'box', expected \"marker\" or \"boxed\""):
        tasks.make("gsm8k", form="box")


def test_the_boxed_form_keeps_the_contract():
    contract.check(tasks.make("gsm8k", source="sample", form="boxed"))


@needs_published
@pytest.mark.parametrize("form", ["marker", "boxed"])
def test_every_published_gold_answer_passes_and_wrong_ones_do_not(form):
    task = Gsm8k(test=str(PUBLISHED), form=form)  # loading checks every gold answer
    examples = task.examples("test")
    assert len(examples) == 1319
    assert task.dropped() == ()
    assert all(d.value == 1 for e in examples for d in task.score_many((e, x.response) for x in task.demonstrations(e)))
    for index, example in enumerate(examples):
        answer = example.data["answer"]
        other = next(e for e in examples[index - 1 :: -1] if e.data["answer"] != answer)
        changed = re.sub("[0-9]", lambda digit: str((int(digit[0]) + 1) % 10), answer, count=1)
        before, _, after = task.gold(example).rpartition(answer)
        for response in (task.gold(other), f"{before}{after}", f"{before}{changed}{after}"):
            assert task.score(example, response).value == 0, (example.id, response)


@needs_published
def test_scoring_takes_less_than_50_microseconds():
    task = Gsm8k(test=str(PUBLISHED))
    pairs = [(example, task.gold(example)) for example in task.examples("test")]
    best = min(_seconds(task, pairs) for _ in range(5))
    assert best / len(pairs) < 50e-6  # 20,000 items a second


def _seconds(task, pairs):
    start = time.perf_counter()
    task.score_many(pairs)
    return time.perf_counter() - start
