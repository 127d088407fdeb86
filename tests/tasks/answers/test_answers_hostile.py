"""Answers that look right to a part of the reader: none may pass, and none may take long."""

import sys

import pytest

from tasks.answers import after_marker, grade, is_numeric, is_understood
from tasks.answers.symbolic import verify


def says_yes(gold, answer):
    return "pass"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\sqrt{2}", r"3=4=\sqrt{2}"),
        (r"\sqrt{2}", r"\sqrt{2} $ \sqrt{3}"),
        (r"\sqrt{2}", r"\sqrt{2}$ is wrong"),
        (r"\sqrt{2}", r"3 \boxed{\sqrt2}"),
        (r"\sqrt{2}", r"\sqrt{3} \equiv \sqrt{2}"),
        (r"\sqrt{2}", r"\sqrt{3} \not= \sqrt{3} \not= \sqrt{2}"),
        ("y=2x+3", "y=3x+2 ? y=2x+3"),
        ("x^2+1", r"\int_0^1 x dx"),
    ],
)
def test_what_own_means_cannot_read_is_no_answer(gold, answer):
    assert grade(gold, answer, symbolic=says_yes).verdict == "format"


@pytest.mark.parametrize(
    "answer", [r"\int_0^2 x dx \text{ km}", r"\int_0^1 x dx $ 5", r"\int_0^1 x dx \boxed{5}", r"\int_0^1 x dx \fbox{5}"]
)
def test_words_dollars_and_boxes_are_never_compared_symbolically(answer):
    assert grade(r"\int_0^2 x dx", answer, symbolic=says_yes).value == 0


@pytest.mark.parametrize(
    ("gold", "answer", "question"),
    [
        (r"-\frac{\pi}{6}", r"\arcsin \left(-\frac12\right)", r"Compute $\arcsin \left( -\frac{1}{2} \right).$"),
        (r"-\frac{\pi}{6}", r"\arcsin \left(-\frac12\right)", ""),
        (r"\frac{\sqrt{3}}{2}", r"\sin 60^\circ", "Find the height."),
        (r"(\sqrt{2}, \pi)", r"(\sqrt2 \cos 0, \pi)", ""),
        (r"\tan x", r"\frac{\sin x}{\cos x}", r"Simplify $\frac{\sin x}{\cos x}$."),
        (r"\tan x", r"y = \frac{\sin x}{\cos x}", r"Simplify $\frac{\sin x}{\cos x}$."),
        (r"\sin 10^\circ", "0.173648", ""),
        (r"\sin 10^\circ", r"0.173648 \cos 0", ""),
        (r"\log_2 3", "1.5849625007", ""),
        (r"\sqrt{2}", r"|\sqrt{2}|", ""),
        (r"(0.5, \sin 1)", "(0.5, 0.841471)", ""),
        (r"5\pi!", r"5\pi! + |\pi| - |\pi|", r"$5\pi! + |\pi| - |\pi|$"),
    ],
)
def test_what_is_not_worked_out_never_passes_symbolically(gold, answer, question):
    assert grade(gold, answer, question, symbolic=says_yes).verdict == "wrong"


@pytest.mark.parametrize(("num", "verdict"), [(199, "pass"), (200, "wrong")])
def test_members_of_a_collection_are_compared_400_times_at_most(num, verdict):
    answer = rf"\{{{', '.join(['1'] * num)}, 2\}}"
    score = grade(r"\{1, 2\}", answer)
    assert (score.verdict, "too many answers" in score.reason) == (verdict, verdict == "wrong")


def test_functions_of_variables_are_still_compared_symbolically():
    assert grade(r"\tan x", r"\frac{\sin x}{\cos x}", "Simplify it.", symbolic=says_yes).value == 1
    assert grade(r"\int_0^x t dt", r"\sin x", symbolic=says_yes).value == 1
    assert grade(r"\log_2 8x", r"3+\log_2 x", "Simplify it.", symbolic=says_yes).value == 1


@pytest.mark.parametrize(
    "answer", ["36/2", r"\frac{36}{2}", r"36 \div 2", "x = 36/2", "-36/-2", "18/1", "(36/2)", r"\{36/2\}", "36.0/2"]
)
def test_a_quotient_left_undone_is_no_whole_number(answer):
    assert grade("18", answer).verdict == "wrong"


def test_quotients_that_stay():
    assert grade("36/2", "36/2").value == 1
    assert grade("36/2", r"\frac{36}{2}").value == 1
    assert grade("1.5", r"\frac{3}{2}").value == 1
    assert grade("6000", r"6 \times 10^3").value == 1


@pytest.mark.parametrize(
    "answer",
    [
        r"\pi = 5",
        "pi = 5",
        "e=5",
        "i = 5",
        r"\infty=5",
        r"\sin x=5",
        "sin x = 5",
        r"f(x) \pi = 5",
        r"\text{maybe} = 5",
        r"\text{fewer than} = 5",
        r"\text{at least} = 5",
        r"\text{about} = 5",
        r"\text{it is never} = 5",
        r"5 = \pi",
    ],
)
def test_constants_functions_and_hedges_are_no_names(answer):
    assert grade("5", answer, symbolic=says_yes).value == 0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\text{even}", r"\text{odd} = \text{even}"),
        (r"\text{even}", r"\text{even} = \text{odd}"),
        (r"\text{(B)}", "A = B"),
        ("B", "A = B"),
        ("B", "B = A"),
    ],
)
def test_words_and_choices_have_no_name_before_them(gold, answer):
    assert grade(gold, answer).value == 0


@pytest.mark.parametrize(
    "answer", [r"\text{Least common multiple} = 5", r"\theta = 5", r"f(\pi) = 5", "a_i = 5", "E = 5", "x_{max} = 5"]
)
def test_names(answer):
    assert grade("5", answer).value == 1


@pytest.mark.parametrize("answer", ["17...", "17..", "17 . .", "17. .", "17....."])
def test_more_periods_than_one_are_no_end_of_a_sentence(answer):
    assert grade("17", answer).value == 0


@pytest.mark.parametrize("answer", ["17.", "**17.**", "$17.$", r"\boxed{17.}", "**17**."])
def test_one_period_ends_a_sentence(answer):
    assert grade("17", answer).value == 1


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"2\sin 20^\circ", r"2\sin 20"),
        (r"2\sin 20", r"2\sin 20^\circ"),
        (r"2\sin 20^\circ", r"2 \sin(20)"),
        (r"\sin 20^\circ + x", r"\sin 20 + x"),
    ],
)
def test_degrees_inside_a_function_count(gold, answer):
    assert grade(gold, answer).value == 0
    assert grade(gold, answer, symbolic=verify).value == 0


def test_degrees_are_compared_as_radians():
    assert grade(r"2\sin 20^\circ", r"2\sin 20^{\circ}").value == 1
    assert grade(r"2\sin 20^\circ", r"\sin(20^\circ) \cdot 2").value == 1
    asked = []

    def keeps(gold, answer):
        asked.append((gold, answer))
        return "wrong"

    grade(r"\sin 20^\circ", r"\cos 70\degree", symbolic=keeps)
    assert asked == [(r"\sin \left(\frac{20\pi}{180}\right)", r"\cos \left(\frac{70\pi}{180}\right)")]
    assert grade(r"\sin 20^\circ", r"\cos 70^\circ", symbolic=verify).value == 1


def nest(depth, leaf, counter):
    counter[0] += 1
    inner = leaf(counter[0]) if depth == 0 else ",".join(nest(depth - 1, leaf, counter) for _ in range(2))
    return inner if depth == 0 else rf"\{{{inner}\}}"


SLOW = {
    "nested": nest(7, str, [0]),
    "nested roots": nest(5, lambda n: rf"\sqrt{{{10**15 + 37 + 2 * n}}}", [0]),
    "tuples of sets": "(" + ",".join([nest(3, str, [0])] * 8) + ")",
    "roots": r"\{" + ",".join(f"\u221a{10**13 + 39 + 2 * n}" for n in range(55)) + r"\}",
}


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("gold", [r"\{1,2,3\}", r"\{1\pm\sqrt{5},-2\}", r"\{\{1,2\},\{3,4\}\}", "1,2"])
def test_sets_cost_little_work(gold, name):
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        score = grade(gold, SLOW[name][:1000])
    finally:
        sys.setprofile(None)
    assert score.value == 0
    assert calls < 60_000, calls  # about 20 ms


def test_sets_inside_sets_are_compared_where_the_gold_answer_has_them():
    assert grade(r"\{\{1,2\},\{3\}\}", r"\{\{3\},\{2,1\}\}").value == 1
    assert grade(r"\{1,2\}", r"\{\{1\},\{2\}\}").value == 0
    assert grade(r"\{1,2\}", r"\{1,2,1,2,2\}").value == 1


@pytest.mark.parametrize("gold", ["?", "5 6", r"\frac10", "a=b=c", r"x \to 5", "(5", ""])
def test_gold_answers_that_are_not_understood(gold):
    assert not is_understood(gold)
    assert not is_numeric(gold)


@pytest.mark.parametrize(
    ("gold", "numeric"),
    [
        *[(gold, True) for gold in ("5", "1,200", "-0.5", "$18", r"18 \text{ cm}", "20%", "\u20ac18")],
        *[(gold, False) for gold in ("five", "x", "x = 5", "5, 6", "2+3")],
    ],
)
def test_numeric_gold_answers(gold, numeric):
    assert is_numeric(gold) is numeric
    assert is_understood(gold)


@pytest.mark.parametrize("answer", ["29\u701a", "\u701a = 5", "5 \u701a \u00e9", "\u701a"])
@pytest.mark.parametrize("gold", ["29", "2x", "(1,2)", r"\text{even}"])
def test_reasons_are_printable_ascii(gold, answer):
    reason = grade(gold, answer).reason
    assert reason.isascii()
    assert reason.isprintable()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("**#### 18**", "18"),
        ("`#### 18`", "18"),
        ("a\n__#### 18__\n", "18"),
        ("#### **18**", "**18**"),
        ("**#### 18", "18"),
        ("x ** #### 18**", "18**"),
    ],
)
def test_emphasis_round_the_line_of_the_marker(text, answer):
    assert after_marker(text, "####") == answer


@pytest.mark.parametrize("answer", ["**18**", "`18`", "*18*", "_18_", "__18__", "***18***", "**18.**", "`$18`"])
def test_emphasis_round_an_answer(answer):
    assert grade("18", answer, "How many dollars is it?").value == 1


@pytest.mark.parametrize("answer", ["*2*x*", "**2**x**", "*2x", "2x*"])
def test_signs_that_are_no_emphasis_stay(answer):
    assert grade("2x", answer).value == 0
