"""When the symbolic comparison is asked, what votes share, which gold answers are readable, and hostile input."""

import ast
import math
import sys
from pathlib import Path

import pytest

import tasks.answers
from tasks.answers import canonical, grade, readable
from tasks.base import VERDICTS

PACKAGE = Path(tasks.answers.__file__).parent


class Asked:
    """A symbolic comparison that keeps what it was asked."""

    def __init__(self, verdict="pass"):
        self.verdict = verdict
        self.pairs = []

    def __call__(self, gold, answer):
        self.pairs.append((gold, answer))
        return self.verdict


def test_undecided_without_a_symbolic_comparison_is_wrong_and_says_so():
    score = grade(r"\cot x", r"\frac{\cos x}{\sin x}")
    assert (score.value, score.verdict) == (0, "wrong")
    assert score.reason.endswith("not equal as far as can be told")


def test_symbolic_is_asked_with_cleaned_answers():
    asked = Asked()
    assert grade(r"\cot x", r"$\frac{\cos x}{\sin x}$.", symbolic=asked).value == 1
    assert asked.pairs == [(r"\cot x", r"\frac{\cos x}{\sin x}")]


@pytest.mark.parametrize("verdict", [verdict for verdict in VERDICTS if verdict != "pass"])
def test_a_verdict_of_symbolic_is_passed_on(verdict):
    score = grade(r"\cot x", r"\tan x", symbolic=Asked(verdict))
    assert score.verdict == verdict
    assert math.isnan(score.value) if verdict == "infra" else score.value == 0
    assert "symbolic" in score.reason


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\sin x", r"x \sin x / x + \cos 0"),
        (r"(\sin x, 2)", r"(\cos x, 2)"),
        (r"\begin{pmatrix} \sin x \\ 2 \end{pmatrix}", r"\begin{pmatrix} \cos x \\ 2 \end{pmatrix}"),
        (r"\sin x, 2", r"2, \cos x"),
        (r"y = \sin x", r"y = \cos x"),
        (r"\int_0^1 x dx", "x^2+1"),  # beyond own means
        ("x^2+1", "x^{9^{9^9}}"),
    ],
)
def test_symbolic_is_asked_where_expressions_may_be_equal(gold, answer):
    asked = Asked()
    assert grade(gold, answer, symbolic=asked).value == 1
    assert len(asked.pairs) == 1


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5", "6"),
        ("5", "5 or 7"),
        ("5", "2+3"),
        ("5", r"\sqrt{25}"),
        ("5", r"\int_0^5 1 dx"),
        ("x^2+1", r"\int_0^1 x dx"),
        ("5", "9^{9^{9^9}}"),
        ("5", ""),
        ("x = 5", r"\int_0^5 1 dx"),
        (r"\frac{1}{2}", "0.333"),
        (r"5 \text{ m}", "5 km"),
        ("18\\%", r"\sin x"),
        (r"\text{even}", r"\sin x"),
        (r"\text{(C)}", r"\int_0^5 1 dx"),
        ("52_8", r"\int_0^5 1 dx"),
        (r"\sin x", r"\sin x, \cos x"),
        (r"\sin x", r"\cos x \text{ or } \int x"),
        (r"\int x", r"\cos x \text{ or } \int x"),
        (r"\int x", "5, 7"),
        (r"\sin x", r"\text{even}"),
        (r"(\sin x, 2)", r"(\cos x, 3)"),
        (r"(\sin x, 2)", r"(\sin x, 2]"),
        (r"3\sqrt{13}", r"\sqrt{118}"),  # decided: different
        ("x^2", "x^3"),
    ],
)
def test_symbolic_is_not_asked_where_own_means_decide(gold, answer):
    asked = Asked()
    assert grade(gold, answer, symbolic=asked).value == 0
    assert asked.pairs == []


@pytest.mark.parametrize(
    "same",
    [
        ["1/2", "0.5", ".5", r"\frac12", r"\dfrac{1}{2}", "x = 0.5", r"\frac{2}{4}", "$1/2$"],
        ["1000", "1,000", "1000.0", r"1{,}000", r"1\,000", "10^3", " 1000.", "+1000"],
        ["-5", "\u22125", "- 5", "-5.0"],
        [r"11\sqrt2", r"11 \sqrt{2}", r"\sqrt{242}"],
        ["2k+2", "2(k+1)"],
        ["3, 5, 7", "7, 5, 3"],
        [r"\{1, 2\}", r"\{2, 1, 2\}"],
        ["(1, 2)", r"\left( 1, 2 \right)", r"(x, y) = (1, 2)"],
        [r"(1,2) \cup (3,4)", r"(3,4) \cup (1,2)"],
        [r"\text{even}", "Even", "even."],
        [r"\text{(C)}", "(C)", "C", r"\textbf{(C)}"],
        ["52_8", "52_{8}"],
        [r"90^\circ", r"90 \text{ degrees}"],
        [r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{bmatrix} 1.0 \\ 2.0 \end{bmatrix}"],
        ["[2,5]", r"x \in [2,5]", r"2 \le x \le 5"],
        ["5 7", " 5  7 "],  # no answer, but one vote
    ],
)
def test_equal_answers_share_a_canonical_form(same):
    assert len({canonical(answer) for answer in same}) == 1


def test_canonical_forms():
    assert [canonical(a) for a in ("0.5", "1,000", "-0", "", "(((")] == ["1/2", "1000", "0", "", "((("]


@pytest.mark.parametrize(
    "different",
    [
        ["5", "-5", "50", "5, 7", "(5, 7)", "x", "five", "5_8", "x > 5"],
        ["(1,2)", "[1,2]", "(1,2]", "1,2", "(2,1)"],
        ["2x", "y = 2x", "2 = x"],
        ["1/3", "0.333"],
        ["c", "C"],
    ],
)
def test_different_answers_have_different_forms(different):
    assert len({canonical(answer) for answer in different}) == len(different)


def test_canonical_drops_a_unit_that_the_question_fixes():
    assert canonical("18 eggs", "How many eggs are there?") == "18"
    assert canonical("18%", "What percent is it?") == "18"
    assert canonical("18 ducks", "How many eggs are there?") != "18"
    assert canonical("18%", "How many eggs are there?") != "18"
    assert canonical("18 km", "How many eggs are there?") != "18"


@pytest.mark.parametrize("gold", ["5", r"\frac43", r"\text{even}", "x^2", r"\int_0^1 x dx", "52_8", "(3,4]"])
def test_readable(gold):
    assert readable(gold)
    assert grade(gold, gold).value == 1


@pytest.mark.parametrize("gold", ["", " ", "(5", "5}", "9" * 1001, "\u0665", "5\x00", "(" * 40 + "5" + ")" * 40])
def test_an_unreadable_gold_answer_is_never_a_verdict_on_the_response(gold):
    assert not readable(gold)
    score = grade(gold, "5")
    assert score.verdict == "infra"
    assert math.isnan(score.value)
    assert score.reason.startswith("the gold answer cannot be read: ")


GOLDS = [
    "5",
    "0.5",
    r"3\sqrt{13}",
    "x^2+1",
    "3, 5, 7",
    r"\{1,2\}",
    "(2,3)",
    "y=2x+3",
    r"5\text{ m}",
    "52_8",
    r"\text{east}",
    r"\begin{pmatrix}1\\2\end{pmatrix}",
    r"(1,2)\cup(3,4)",
    r"\sin x",
]
HOSTILE = {
    "deep brackets": "(" * 29 + "7" + ")" * 29,
    "deep fractions": r"\frac{1}{" * 28 + "2" + "}" * 28,
    "deep roots": r"\sqrt{x+" * 29 + "2" + "}" * 29,
    "deep sines": r"\sin(" * 13 + "(x+y)^9" + ")^9" * 13,
    "deep mixed numbers": r"1\frac{" * 29 + "1" + "}{2}" * 29,
    "deep sets": r"\{" * 29 + "7" + r"\}" * 29,
    "many digits": "7" * 999,
    "many powers": "+".join(["(1+x)^{60}"] * 80),
    "product of powers": "(1+x)^{60}" * 60,
    "many terms": "+".join(["(a+b+c+d)^9"] * 70),
    "large numbers": "*".join(["9^{400}"] * 110),
    "large denominators": "+".join(["1/9^{399}", "1/7^{399}", "1/11^{399}"] * 25),
    "large radicands": "+".join(rf"\sqrt{{9^{{60}}+{k}}}" for k in range(45)),
    "many radicals": "*".join(rf"(1+\sqrt{{{p}}})" for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)),
    "many denominators": "".join(rf"\frac{{1}}{{x+{k}}}+" for k in range(60)) + "1",
    "many factorials": "*".join(["60!"] * 190),
    "a large factorial": "999999999!",
    "many answers": ",".join(["7"] * 490),
    "many signs": ",".join([r"\pm x"] * 150),
    "many units": "7" + r"\text{ m.}" * 90,
    "many slashes": "7 " + "/m" * 400,
    "many names": "x=" * 400 + "7",
    "many columns": r"\begin{pmatrix}" + "1&" * 200 + r"7\end{pmatrix}",
    "a long period": r"0.\overline{" + "7" * 900 + "}",
    "many thousands": "7" + ",000" * 240,
    "many dollars": "$" * 900,
    "many backslashes": "\\" * 900,
    "many underscores": "_" * 900,
    "many accents": "e" + "\u0301" * 900,
    "many words": "ab " * 300,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_costs_little_work_and_earns_nothing(name):
    question = "How many meters? Factor it."
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    for gold in GOLDS:
        calls = 0
        sys.setprofile(count)
        try:
            score = grade(gold, HOSTILE[name], question)
            canonical(HOSTILE[name], question)
        finally:
            sys.setprofile(None)
        assert score.value == 0, (gold, score)
        assert calls < 200_000, (gold, calls)


def test_an_answer_is_judged_on_a_nearly_exhausted_stack():
    def deep(levels):
        return grade("x", HOSTILE["deep brackets"]) if levels == 0 else deep(levels - 1)

    assert deep(500).verdict == "wrong"


def test_nothing_evaluates_model_text():
    for file in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), file.name
            assert not (isinstance(node, ast.Attribute) and node.attr == "literal_eval"), file.name


def test_words_that_a_symbolic_comparison_would_drop_keep_it_from_being_asked():
    asked = []

    def says_yes(gold, answer):
        asked.append(answer)
        return "pass"

    for gold, answer in ((r"(5,\infty)", r"(5,\infty)\text{ km}"), ("11-10i", r"11-10i\mathrm{ or } 3")):
        assert grade(gold, answer, symbolic=says_yes).value == 0
    assert not asked


def test_a_power_of_many_digits_is_no_number_written_out():
    assert canonical("2^{99999}") == "2^{99999}"
    assert grade("5", "2^{99999}").verdict == "wrong"
