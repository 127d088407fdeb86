"""Units in words, as GSM8K's problems ask for them, and what equal answers share as a vote."""

import pytest

from tasks.answers import canonical, grade

PASS = [
    ("11 cups of flour", "A cake needs cups of flour and of sugar. How many cups of flour does she need?"),
    ("5 sandwiches left", "He ate three sandwiches. How many sandwiches are left?"),
    ("5 sandwiches left", "He ate three. How many sandwiches did he have left?"),
    ("8 years old", "Ann is twice as old as Bo. How old is Bo?"),
    ("8 years", "Ann is twice as old as Bo. How old is Bo?"),
    ("14 in total", "How many eggs are there in total?"),
    ("14 eggs in total", "How many eggs are there?"),
    ("$18 per day", "She sells eggs for $2 each. How much in dollars does she make every day?"),
    ("18 dollars per day", "She sells eggs for $2 each. How much in dollars does she make every day?"),
    ("60 miles per hour", "He drives 120 miles in 2 hours. How fast is he in miles per hour?"),
    ("60 miles per hour", "He drives 120 miles in 2 hours. What is his average speed?"),
    ("60 mph", "What is his speed in miles per hour?"),
    ("\u20ac18", "A pen costs \u20ac3. How much do 6 cost?"),
    ("\u00a318", "A pen costs \u00a33. How much do 6 cost?"),
    ("18 \u20ac", "A pen costs \u20ac3. How much do 6 cost?"),
    ("12 red apples", "There are red apples and green ones. How many red apples are there?"),
    ("18\\mathrm{~dollars}", "How many dollars is it?"),
    ("12\\text{\\%}", "What percent of it is left?"),
]
WRONG = [
    ("11 cups of sugar", "How many cups of flour does she need?"),
    ("5 sandwiches wrong", "How many sandwiches are left?"),
    ("5 less", "She has less than Bo. How many eggs are left?"),
    ("2 dozen eggs", "A dozen eggs cost $3. How many eggs are there?"),
    ("3 thousand people", "A thousand people came. How many people stay?"),
    ("5 km", "A road is 3 km long. How many meters are left?"),
    ("5 hours", "He works 3 hours a day. How many minutes is that?"),
    ("5 cents", "A pen costs 20 cents. How many dollars is it?"),
    ("60 miles per hour", "He drives 60 miles per hour for 3 hours. How many miles does he drive?"),
    ("\u20ac18", "A pen costs $3. How much do 6 cost?"),
    ("\u20ac18", "How many pens are there?"),
    ("8 years old", "How many years are left?"),
    ("18 not eggs", "She does not count the eggs. How many eggs are there?"),
    ("18 at least", "At least some eggs broke. How many eggs are there?"),
    ("5 hours per day", "How many hours does it take?"),
    ("5 miles kilometers", "How many miles and how many kilometers are left?"),
    ("5 hours left", "He works 3 hours. How many minutes are left?"),
    ("5x", "How many x are there?"),
    ("5 mod", "What is x mod 7?"),
    ("5 an", "An egg is left. How many are in it?"),
    ("5 in", "An egg is left. How many are in it?"),
]


@pytest.mark.parametrize(("answer", "question"), PASS)
def test_a_unit_in_the_words_of_the_question_passes(answer, question):
    number = next(word for word in answer.replace("\\", " ").replace("$", " ").split() if word.strip("\u20ac\u00a3"))
    gold = "".join(c for c in number if c.isdigit())
    assert grade(gold, answer, question).verdict == "pass", grade(gold, answer, question)


@pytest.mark.parametrize(("answer", "question"), WRONG)
def test_other_units_do_not(answer, question):
    gold = "".join(c for c in answer if c.isdigit())
    assert grade(gold, answer, question).value == 0


@pytest.mark.parametrize(
    ("same", "vote"),
    [
        (["18", r"\$18", "18 dollars", "18%", r"18^\circ", "18 eggs", "x = 18", "\u20ac18", "**18**", "18.0"], "18"),
        ([r"\sqrt2", r"x=\sqrt2", r"\sqrt{2} \text{ cm}"], canonical(r"\sqrt{2}")),
        ([r"\text{(C)}", "(C)", "(c)", "C", r"\text{c}"], "C"),
        (["1/2", r"\frac{2}{4}", "0.5"], "1/2"),
    ],
)
def test_what_votes_share(same, vote):
    assert {canonical(answer) for answer in same} == {vote}


def test_what_is_not_written_out_is_no_vote_for_a_number():
    votes = [canonical(answer) for answer in ("5", "2+3", "10/2", r"\sqrt{25}", "5!", r"2 \cdot 3 - 1")]
    assert len(set(votes)) == len(votes)
    assert canonical("2 + 3") == canonical("2+3")
    assert canonical("-10/2") != canonical("-5")


@pytest.mark.parametrize("answer", ["\ud800", "5 \udfff", r"\text{\ud800}", "(\ud800"])
def test_a_vote_can_be_written(answer):
    assert canonical(answer).encode("utf-8")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1+2i", r"1+2\text{i}"),
        ("1+2i", r"1+2\mathrm{i}"),
        (r"\frac12", r"{1 \over 2}"),
        (r"(-\infty,2) \cup (3,\infty)", r"x<2 \text{ or } x>3"),
        (r"x<2 \text{ or } x>3", r"(-\infty,2) \cup (3,\infty)"),
        ("52_8", "52_{(8)}"),
        ("52_8", "(52)_8"),
        ("-13x+3", r"\left(-1\right) 13 x + 3"),
        ("6+9i", "(1+2i)6-3i"),
        ("52_8", r"52_{\text{8}}"),
    ],
)
def test_other_spellings(gold, answer):
    assert grade(gold, answer).verdict == "pass", grade(gold, answer)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"(-\infty,2) \cup (3,\infty)", r"x<2 \text{ and } x>3"),
        (r"(-\infty,2) \cup (3,\infty)", r"x<2 \text{ or } y>3"),
        (r"(-\infty,2) \cup (3,\infty)", r"x<2 , x>3"),
        (r"[2,5]", r"x<2 \text{ or } x>5"),
    ],
)
def test_only_or_of_one_name_makes_a_union(gold, answer):
    assert grade(gold, answer).value == 0


@pytest.mark.parametrize(("gold", "answer"), [("2-i", "(1+2i)6-3i"), ("2x", "x(x) 2"), ("15", "(5)3"), ("52", "(5)2")])
def test_a_number_behind_a_bracket_is_a_factor(gold, answer):
    assert grade(gold, answer, symbolic=lambda *_: "pass").verdict == "wrong"
