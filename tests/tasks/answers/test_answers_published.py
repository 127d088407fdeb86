"""The published answers of MATH-500 and GSM8K: all gold ones pass, wrong ones made from them do not."""

import functools
import json
import re
from pathlib import Path

import pytest

from tasks.answers import after_marker, canonical, grade, last_boxed, readable

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the published data are not at hand")

# Pairs of different MATH answers that are equal: a value under a name, a unit or a base that the question fixes.
EQUAL = {
    frozenset(pair)
    for pair in [
        ("5", "x=5"),
        ("120", r"120^\circ"),
        ("90", r"90^\circ"),
        ("30", r"30^\circ"),
        ("36", r"36^\circ"),
        ("36", r"\$36"),
        ("15", r"15\mbox{ cm}^2"),
        ("40", "40_9"),
        (r"\frac14", r"\frac{1}{4}"),
        ("10080", r"10,\!080"),
        ("1,-2", "-2,1"),
        (r"2\sqrt{5}", r"2 \sqrt{5}"),
    ]
}


@functools.cache
def rows(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def math500():
    return [(row["problem"], row["answer"], row["solution"]) for row in rows("math500.jsonl")]


def gsm8k(name):
    return [(row["question"], row["answer"].split("####")[1].strip(), row["answer"]) for row in rows(name)]


def digit_changed(answer):
    for match in re.finditer("[0-9]", answer):
        for digit in {"0", "1", "5", "9"} - {match[0]}:
            yield answer[: match.start()] + digit + answer[match.end() :]


def sign_flipped(answer):
    if answer != "0":
        yield answer[1:] if answer.startswith("-") else f"-{answer}"
        for match in re.finditer("[-+]", answer):
            yield answer[: match.start()] + {"+": "-", "-": "+"}[match[0]] + answer[match.end() :]


def test_math_gold_answers_pass():
    for problem, answer, solution in math500():
        assert readable(answer)
        for response in (solution, rf"so \boxed{{{answer}}}.", rf"$\boxed{{{answer}}}$"):
            found = last_boxed(response)
            assert found is not None
            assert grade(answer, found, problem).value == 1
            assert grade(answer, found).value == 1
            assert canonical(found, problem) == canonical(answer, problem)


def test_math_answers_rewritten_pass():
    rewritten = [
        lambda a: a.replace(r"\frac", r"\dfrac"),
        lambda a: a.replace(r"\frac", r"\tfrac").replace(" ", "" if r"\cot" not in a else " "),
        lambda a: a.replace("(", r"\left(").replace(")", r"\right)") if r"\left" not in a and r"\text" not in a else a,
        lambda a: (
            a.replace("+", " + ").replace("-", " - ").replace(",", ", ") if r"\!" not in a and "58" not in a else a
        ),
        lambda a: rf"\[ {a} \]",
        lambda a: f"${a}$.",
        lambda a: re.sub(r"\\sqrt\{(\d)\}", r"\\sqrt\1", a),
        lambda a: re.sub(r"\\frac\{(\d)\}\{(\d)\}", r"\\frac\1\2", a),
        lambda a: re.sub(r"^(-?)\\d?frac\{(\d+)\}\{(\d+)\}$", r"\1\2/\3", a),
        lambda a: re.sub(r"^-?\d+$", lambda m: f"{int(m[0]):,}", a),
        lambda a: re.sub(r"^-?\d+$", lambda m: f"{m[0]}.0", a),
        lambda a: re.sub(r"^-?\d+$", lambda m: f"n = {m[0]}", a),
        lambda a: a.replace(r"^\circ", r"^{\circ}"),
        lambda a: a.replace("pmatrix", "bmatrix"),
        lambda a: re.sub(r"\\[mt]\w+\{\(?([A-Z])\)?\}", r"\1", a),
    ]
    changed = 0
    for problem, answer, _ in math500():
        for rewrite in rewritten:
            text = rewrite(answer)
            changed += text != answer
            assert grade(answer, text, problem).value == 1, (answer, text)
    assert changed > 2000


def test_math_answers_of_other_items_do_not_pass():
    items = math500()
    for problem, answer, _ in items[::7]:
        for _, other, _ in items:
            passes = answer == other or frozenset({answer, other}) in EQUAL
            assert passes or grade(answer, other, problem).value == 0, (answer, other)


def test_math_answers_with_a_digit_or_sign_changed_do_not_pass():
    for problem, answer, _ in math500():
        for wrong in [*digit_changed(answer), *sign_flipped(answer)]:
            assert grade(answer, wrong, problem).value == 0, (answer, wrong)


@pytest.mark.parametrize(("name", "count"), [("gsm8k-test.jsonl", 1319), ("gsm8k-train.jsonl", 7473)])
def test_gsm8k_gold_answers_pass(name, count):
    items = gsm8k(name)
    assert len(items) == count
    for question, answer, response in items:
        found = after_marker(response, "####")
        assert found is not None
        assert grade(answer, found, question).value == 1
        for text in (f"{answer}.0", f"{int(answer.replace(',', '')):,}", answer.replace(",", "")):
            assert grade(answer, text, question).value == 1


def test_gsm8k_wrong_answers_do_not_pass():
    items = gsm8k("gsm8k-test.jsonl")
    for (question, answer, _), (_, other, _) in zip(items, items[1:] + items[:1], strict=True):
        if answer.replace(",", "") != other.replace(",", ""):
            assert grade(answer, other, question).value == 0
        hedges = [f"{answer} or 7", f"{answer}, 7", f"7 or {answer}", f"{answer}.5", rf"{answer} \text{{ or }} 7"]
        for wrong in [*digit_changed(answer), *sign_flipped(answer), *hedges]:
            assert grade(answer, wrong, question).value == 0, (answer, wrong)
