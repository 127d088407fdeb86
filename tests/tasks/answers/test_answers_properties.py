"""Properties of reading and comparing, over arbitrary text and over generated expressions."""

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tasks.answers import after_marker, canonical, grade, last_boxed, readable
from tasks.answers.algebra import Algebra
from tasks.answers.evaluate import evaluate
from tasks.answers.parser import parse
from tasks.answers.tokens import tokenise
from tasks.base import VERDICTS

COMMANDS = r"""
\frac \dfrac \sqrt \boxed \text{ \text{or} \left( \right) \left[ \right] \{ \} { } ( ) [ ] | ^ _ , ; . = < \le \in \cup
\pm \cdot \times \pi \infty \sin \log \overline \begin{pmatrix} \end{pmatrix} \\ & \! \, \% $ % + - * / ! ' 0 1 2 5 12
1,000 0.5 .5 x y ab f(x) e i cm km eggs or and even (C) \mathrm{m} ^\circ \binom
"""
PIECES = st.sampled_from([*COMMANDS.split(), " ", "\n", "\u2212", "\u0665", "\u200b", "\u00e9", "\ud800"])
LATEX = st.lists(PIECES, max_size=14).map("".join)
ANY_TEXT = st.one_of(st.text(), LATEX, st.lists(PIECES, max_size=14).map(" ".join))


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_no_text_raises(gold, answer, question):
    score = grade(gold, answer, question)
    assert score.verdict in VERDICTS
    assert (score.value == 1) == (score.verdict == "pass")
    assert math.isnan(score.value) == (score.verdict == "infra") == (not readable(gold))
    assert not score.reason or (score.reason.isascii() and score.reason.isprintable())
    assert canonical(answer, question).encode("utf-8") is not None
    assert canonical(answer).encode("utf-8") is not None
    last_boxed(answer)
    after_marker(answer, "####")


@given(ANY_TEXT, ANY_TEXT)
def test_a_readable_answer_is_its_own_gold(gold, question):
    if readable(gold):
        assert grade(gold, gold, question).value == 1
        if "$" not in gold and not gold.strip().endswith("\\"):
            assert grade(gold, f" ${gold}$ ", question).value == 1


@given(st.text(alphabet=st.characters(categories=["Nd", "No", "Nl"], exclude_characters="0123456789"), min_size=1))
def test_digits_of_other_scripts_are_no_number(digits):
    for gold in ("5", "12", "0", r"\frac12", "x^2"):
        assert grade(gold, digits).value == 0


@given(st.integers(), st.integers())
def test_whole_numbers_pass_only_if_equal(gold, answer):
    for form in (f"{answer}", f"{answer:,}", f"{answer}.0", f"$x = {answer}$"):
        assert grade(f"{gold}", form).value == (gold == answer)
        assert grade(f"{answer}", form).value == 1
    assert grade(f"{gold}", rf"\frac{{{answer * 2}}}{{2}}").value == 0
    assert grade(f"{answer}", rf"\frac{{{answer * 2}}}{{2}}").value == 0  # a division left undone


@given(st.fractions(max_denominator=1000), st.fractions(max_denominator=1000))
def test_fractions_pass_only_if_equal(gold, answer):
    forms = [f"{answer.numerator}/{answer.denominator}", rf"\frac{{{answer.numerator}}}{{{answer.denominator}}}"]
    written_out = answer.denominator > 1  # 6/1 is a division left undone
    for form in forms:
        assert grade(f"{gold}", form).value == (gold == answer and written_out)
        assert grade(f"{answer}", form).value == written_out


VALUES = {"x": 0.7310585, "y": 1.6180339, r"\pi": math.pi}
LEAVES = st.one_of(
    st.integers(0, 20).map(lambda n: (f"{n}", float(n))),
    st.sampled_from(sorted(VALUES)).map(lambda name: (f"{name} ", VALUES[name])),
    st.integers(2, 50).map(lambda n: (rf"\sqrt{{{n}}}", math.sqrt(n))),
    st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda p: (rf"\frac{p[0]}{p[1]}", p[0] / p[1])),
    st.integers(2, 50).map(lambda n: (rf"\sqrt[3]{{{n}}}", n ** (1 / 3))),
)


def compound(parts):
    pair = st.tuples(parts, parts)
    return st.one_of(
        pair.map(lambda p: (f"({p[0][0]}+{p[1][0]})", p[0][1] + p[1][1])),
        pair.map(lambda p: (f"({p[0][0]}-({p[1][0]}))", p[0][1] - p[1][1])),
        pair.map(lambda p: (rf"({p[0][0]})({p[1][0]})", p[0][1] * p[1][1])),
        pair.map(lambda p: (rf"{p[0][0]}\cdot {p[1][0]}", p[0][1] * p[1][1])),
        pair.filter(lambda p: abs(p[1][1]) > 1e-6).map(
            lambda p: (rf"\frac{{{p[0][0]}}}{{{p[1][0]}}}", p[0][1] / p[1][1])
        ),
        st.tuples(parts, st.integers(1, 3)).map(lambda p: (f"({p[0][0]})^{p[1]}", p[0][1] ** p[1])),
        parts.map(lambda p: (f"(-{p[0]})", -p[1])),
    )


EXPRESSIONS = st.recursive(LEAVES, compound, max_leaves=6)


def in_figures(terms):
    total = 0.0
    for powers, factor in terms.items():
        value = float(factor)
        for name, power in powers:
            base = float(name[1:]) if name[0] == "#" else VALUES[name]
            value *= base ** float(power)
        total += value
    return total


@given(EXPRESSIONS)
def test_an_expression_is_worked_out_right(expression):
    text, value = expression
    found = evaluate(parse(tokenise(text)), Algebra(work=100_000))
    below = in_figures(found.below)
    if abs(below) > 1e-6 and abs(value) < 1e9:
        assert math.isclose(in_figures(found.above) / below, value, rel_tol=1e-6, abs_tol=1e-6)


@given(EXPRESSIONS, EXPRESSIONS)
def test_expressions_pass_only_if_their_figures_agree(first, second):
    if grade(first[0], second[0]).value == 1:
        assert math.isclose(first[1], second[1], rel_tol=1e-6, abs_tol=1e-6)


@given(st.fractions(0, 50, max_denominator=20), st.integers(1, 9))
def test_mixed_numbers(value, whole):
    part = value % 1
    if part:
        gold = f"{part + whole}"
        assert grade(gold, rf"{whole}\frac{{{part.numerator}}}{{{part.denominator}}}").value == 1
        assert grade(gold, f"{whole} {part.numerator}/{part.denominator}").value == 1
        assert grade(gold, f"{whole}{part.numerator}/{part.denominator}").value == (
            Fraction(f"{whole}{part.numerator}/{part.denominator}") == part + whole
        )
