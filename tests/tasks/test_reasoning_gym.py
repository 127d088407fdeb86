"""Tasks over reasoning-gym: verdicts on every kind of response, answers worked out again, splits and settings."""

import dataclasses
import itertools
import re
import subprocess
import sys
import time
from collections import Counter
from importlib import metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tasks
from tasks import reasoning_gym_checks as checks
from tasks.base import SPLITS, Example
from tasks.reasoning_gym import TASKS

PACKAGE = "reasoning_gym"


def small(name, **settings):
    return TASKS[name](**{"train_size": 60, "validation_size": 20, "test_size": 40, **settings})


def verdict(name, right, response):
    example = Example("test-0", "test", "", {"question": "?", "answer": right})
    score = TASKS[name]().score(example, response)
    assert score.value == (score.verdict == "pass")
    assert "\n" not in score.reason
    assert len(score.reason) < 250
    return score.verdict


COUNT = " ".join(map(str, range(1, 100)))
INTEGER_TASKS = ["rg_chain_sum", "rg_basic_arithmetic", "rg_products", "rg_gcd", "rg_lcm", "rg_simple_equations"]
INTEGER_TASKS += ["rg_count_primes", "rg_calendar_arithmetic"]


@pytest.mark.parametrize("name", INTEGER_TASKS)
@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("#### 42", "pass"),
        ("####42", "pass"),
        ("6*7 is 42.\n####\t42 \r\n\n", "pass"),
        ("#### 7\n#### 42", "pass"),  # the last marker counts
        ("\ud800 #### 42", "pass"),
        ("#### 42\n#### 7", "wrong"),
        ("#### -42", "wrong"),
        ("#### 4", "wrong"),
        ("#### 142", "wrong"),
        ("", "format"),
        ("42", "format"),
        ("# 42", "format"),
        ("### 42", "format"),
        ("The answer is 42.", "format"),
        ("####", "format"),
        ("#### 42 ####", "format"),
        ("####\n42", "format"),
        (COUNT, "format"),
        ("#### " + COUNT, "format"),
        ("#### 41 42 43", "format"),
        ("#### 42 or 43", "format"),
        ("#### 42, 43", "format"),
        ("#### 42|43", "format"),
        ("#### 42\n43", "format"),
        ("#### 42.", "format"),
        ("#### 42.0", "format"),
        ("#### 4.2e1", "format"),
        ("#### +42", "format"),
        ("#### 042", "format"),
        ("#### --42", "format"),
        ("#### 4_2", "format"),
        ("#### 4 2", "format"),
        ("#### 0x2a", "format"),
        ("#### $42$", "format"),
        ("#### **42**", "format"),
        ("#### \\boxed{42}", "format"),
        ("#### x = 42", "format"),
        ("#### 42 apples", "format"),
        ("#### 6*7", "format"),
        ("#### answer", "format"),
        ("#### None", "format"),
        ("#### nan", "format"),
        ("#### inf", "format"),
        ("#### \u0664\u0662", "format"),  # Arabic-Indic digits: int() would take them
        ("#### \uff14\uff12", "format"),
        ("#### 42\u00a0", "format"),
        ("#### 42\u200b", "format"),
        ("#### 42\x00", "format"),
        ("#### 42\ud800", "format"),
        ("\uff03\uff03\uff03\uff03 42", "format"),
        ("#### __import__('os')._exit(0)", "format"),
        ("#### lambda: 42", "format"),
    ],
)
def test_integers(name, response, expected):
    assert verdict(name, "42", response) == expected


@pytest.mark.parametrize(
    ("name", "right", "response", "expected"),
    [
        ("rg_chain_sum", "-5", "#### -5", "pass"),
        ("rg_chain_sum", "-5", "#### 5", "wrong"),
        ("rg_chain_sum", "-5", "#### - 5", "format"),
        ("rg_chain_sum", "-5", "#### \u22125", "format"),
        ("rg_chain_sum", "0", "#### 0", "pass"),
        ("rg_chain_sum", "0", "#### -0", "format"),
        ("rg_chain_sum", "0", "#### 00", "format"),
        ("rg_decimal_chain_sum", "7.14", "#### 7.14", "pass"),
        ("rg_decimal_chain_sum", "7.14", "#### 7.1400", "pass"),
        ("rg_decimal_chain_sum", "7", "#### 7.0", "pass"),
        ("rg_decimal_chain_sum", "70", "#### 7", "wrong"),
        ("rg_decimal_chain_sum", "0", "#### -0.0", "pass"),
        ("rg_decimal_chain_sum", "7.14", "#### 7.1400000001", "wrong"),
        ("rg_decimal_chain_sum", "7.14", "#### 7,14", "format"),
        ("rg_decimal_chain_sum", "7.14", "#### 07.14", "format"),
        ("rg_decimal_chain_sum", "0.5", "#### .5", "format"),
        ("rg_decimal_chain_sum", "7", "#### 7.", "format"),
        ("rg_decimal_chain_sum", "7.14", "#### 714/100", "format"),
        ("rg_decimal_chain_sum", "7.14", "#### 714e-2", "format"),
        ("rg_decimal_chain_sum", "7.14", "#### 7.14 7.15", "format"),
        ("rg_decimal_chain_sum", "7.14", "#### 7.\u0661\u0664", "format"),
        ("rg_fraction_simplification", "3/5", "#### 3/5", "pass"),
        ("rg_fraction_simplification", "3/5", "#### 6/10", "wrong"),  # not simplified
        ("rg_fraction_simplification", "3/5", "#### 5/3", "wrong"),
        ("rg_fraction_simplification", "3/5", "#### 0.6", "format"),
        ("rg_fraction_simplification", "3/5", "#### -3/-5", "format"),
        ("rg_fraction_simplification", "3/5", "#### 3/0", "format"),
        ("rg_fraction_simplification", "3/5", "#### 3 / 5", "format"),
        ("rg_fraction_simplification", "3/5", "#### 6/10 = 3/5", "format"),
        ("rg_fraction_simplification", "3/5", "#### 3/5/1", "format"),
        ("rg_fraction_simplification", "3/5", "#### \\frac{3}{5}", "format"),
        ("rg_fraction_simplification", "3/5", "#### 3\u20445", "format"),
        ("rg_dice", "1/2", "#### 1/2", "pass"),
        ("rg_dice", "1/2", "#### 50%", "format"),
        ("rg_dice", "1/2", "#### \u00bd", "format"),
        ("rg_prime_factorization", "2*2*3", "#### 2*2*3", "pass"),
        ("rg_prime_factorization", "2*2*3", "#### 3 * 2 * 2", "pass"),  # any order
        ("rg_prime_factorization", "2*2*3", "#### 2*3", "wrong"),
        ("rg_prime_factorization", "2*2*3", "#### 4*3", "wrong"),
        ("rg_prime_factorization", "2*2*3", "#### 12", "wrong"),
        ("rg_prime_factorization", "2*2*3", "#### 1*2*2*3", "wrong"),
        ("rg_prime_factorization", "2*2*3", "#### 2*2*3*1", "wrong"),
        ("rg_prime_factorization", "2*2*3", "#### 2**2*3", "format"),
        ("rg_prime_factorization", "2*2*3", "#### 2^2*3", "format"),
        ("rg_prime_factorization", "2*2*3", "#### -2*-2*3", "format"),
        ("rg_prime_factorization", "2*2*3", "#### 2*2*", "format"),
        ("rg_prime_factorization", "2*2*3", "#### 2, 2, 3", "format"),
        ("rg_prime_factorization", "2*2*3", "#### 2 \u00d7 2 \u00d7 3", "format"),
        ("rg_prime_factorization", "2*2*3", "#### 12 = 2*2*3", "format"),
        ("rg_prime_factorization", "2*2*3", "#### 2*2*\u0663", "format"),
        ("rg_prime_factorization", "2*2*3", "#### 2*2*0003", "format"),
        ("rg_base_conversion", "1a0", "#### 1a0", "pass"),
        ("rg_base_conversion", "1a0", "#### 1A0", "format"),
        ("rg_base_conversion", "1a0", "#### 01a0", "format"),
        ("rg_base_conversion", "1a0", "#### 0x1a0", "format"),
        ("rg_base_conversion", "1a0", "#### 1a", "wrong"),
        ("rg_base_conversion", "1a0", "#### 1a01", "wrong"),
        ("rg_base_conversion", "1a0", "#### 1a0 1a1", "format"),
        ("rg_base_conversion", "1a0", "#### 1 a 0", "format"),
        ("rg_base_conversion", "1a0", "#### 1a0 (base 16)", "format"),
        ("rg_base_conversion", "11", "#### \u0661\u0661", "format"),
        ("rg_bitwise_arithmetic", "-0x3f", "#### -0x3f", "pass"),
        ("rg_bitwise_arithmetic", "-0x3f", "#### 0x3f", "wrong"),
        ("rg_bitwise_arithmetic", "-0x3f", "#### -63", "format"),
        ("rg_bitwise_arithmetic", "-0x3f", "#### -0x03f", "format"),
        ("rg_bitwise_arithmetic", "-0x3f", "#### -0X3F", "format"),
        ("rg_bitwise_arithmetic", "-0x3f", "#### -3f", "format"),
        ("rg_bitwise_arithmetic", "-0x3f", "#### -(0x3f)", "format"),
        ("rg_bitwise_arithmetic", "-0x3f", "#### 0x1-0x40", "format"),
        ("rg_calendar_arithmetic", "Friday", "#### Friday", "pass"),
        ("rg_calendar_arithmetic", "Friday", "#### Monday", "wrong"),
        ("rg_calendar_arithmetic", "Friday", "#### 5", "wrong"),
        ("rg_calendar_arithmetic", "Friday", "#### Fri", "format"),
        ("rg_calendar_arithmetic", "Friday", "#### friday", "format"),
        ("rg_calendar_arithmetic", "Friday", "#### Friday.", "format"),
        ("rg_calendar_arithmetic", "Friday", "#### Thursday or Friday", "format"),
        ("rg_calendar_arithmetic", "Friday", "#### Monday Tuesday Wednesday Thursday Friday", "format"),
        ("rg_number_sorting", "-3, 2.5, 10", "#### -3, 2.5, 10", "pass"),
        ("rg_number_sorting", "-3, 2.5, 10", "#### -3.0,2.50 , 10", "pass"),
        ("rg_number_sorting", "-3, 2.5, 10", "#### 10, 2.5, -3", "wrong"),
        ("rg_number_sorting", "-3, 2.5, 10", "#### -3, 2.5", "wrong"),
        ("rg_number_sorting", "-3, 2.5, 10", "#### -3, 2.5, 10, 11", "wrong"),
        ("rg_number_sorting", "-3, 2.5, 10", "#### -3, -3, 2.5, 10", "wrong"),
        ("rg_number_sorting", "-3, 2.5, 10", "#### -3, 2.6, 10", "wrong"),  # the package allows an error of 1
        ("rg_number_sorting", "-3, 2.5, 10", "#### -3 2.5 10", "format"),
        ("rg_number_sorting", "-3, 2.5, 10", "#### -3, 2.5, 10,", "format"),
        ("rg_number_sorting", "-3, 2.5, 10", "#### ['-3', '2.5', '10']", "format"),
        ("rg_number_sorting", "-3, 2.5, 10", "#### -3, 2.5, nan", "format"),
        ("rg_number_sorting", "-3, 2.5, 10", "#### -3, 2.5, 1e1", "format"),
        ("rg_number_sorting", "-3, 2.5, 10", "#### -3, 2.5, 10 or 10, 2.5, -3", "format"),
        ("rg_number_filtering", "7", "#### 7", "pass"),
        ("rg_number_filtering", "7", "#### 7, 7", "wrong"),
        ("rg_number_filtering", "7", "#### ", "format"),
        ("rg_number_filtering", "7", "#### []", "format"),
        ("rg_spiral_matrix", "1, 2, 4, 3", "#### 1, 2, 4, 3", "pass"),
        ("rg_spiral_matrix", "1, 2, 4, 3", "#### 1, 2, 3, 4", "wrong"),
        ("rg_spiral_matrix", "1, 2, 4, 3", "#### 1, 2, 4, 3, 1, 2", "wrong"),
        ("rg_spiral_matrix", "1, 2, 4, 3", "#### 1243", "wrong"),
        ("rg_spiral_matrix", "1, 2, 4, 3", "#### 1, 2, 4,\n3", "format"),
        ("rg_word_sorting", "Only, thought", "#### Only,thought", "pass"),
        ("rg_word_sorting", "Only, thought", "#### only, thought", "wrong"),
        ("rg_word_sorting", "Only, thought", "#### thought, Only", "wrong"),
        ("rg_word_sorting", "Only, thought", "#### Only, thought, then", "wrong"),
        ("rg_word_sorting", "Only, thought", "#### Only thought", "format"),
        ("rg_word_sorting", "Only, thought", "#### Only, thought.", "format"),
        ("rg_word_sorting", "Only, thought", "#### Only, th\u03bfught", "format"),  # Greek omicron
        ("rg_spell_backward", "talps", "#### talps", "pass"),
        ("rg_spell_backward", "talps", "#### Talps", "wrong"),
        ("rg_spell_backward", "talps", "#### talp", "wrong"),
        ("rg_spell_backward", "talps", "#### atalpsa", "wrong"),
        ("rg_spell_backward", "talps", "#### t a l p s", "format"),
        ("rg_spell_backward", "talps", "#### 'talps'", "format"),
        ("rg_spell_backward", "talps", "#### talps splat", "format"),
        ("rg_spell_backward", "talps", "#### splat -> talps", "format"),
        ("rg_spell_backward", "talps", "#### t\u0430lps", "format"),  # Cyrillic a
        ("rg_spell_backward", "talps", "talps", "format"),
    ],
)
def test_other_kinds(name, right, response, expected):
    assert verdict(name, right, response) == expected


@pytest.mark.parametrize("name", TASKS)
def test_bombs_earn_nothing_at_once(name):
    bombs = ["9" * 10_000, "-" * 10_000 + "1", "0" * 10_000, "9**9**9**9", "1e999999999", "0x" + "f" * 10_000]
    bombs += ["1/" + "3" * 10_000, "2*" * 5000 + "2", "1, " * 5000 + "1", "7 " * 5000, " *" * 5000, "(" * 5000]
    bombs += ["0." + "1" * 10_000, "####" * 5000, "a" * 10_000, "10**10**10", "5^(5^(5^(5^5)))", "\u0669" * 5000]
    task, start = TASKS[name](), time.perf_counter()
    for bomb in bombs:
        score = task.score(Example("test-0", "test", "", {"question": "?", "answer": "42"}), f"#### {bomb}")
        assert score.value == 0
        assert len(score.reason) < 250
    assert time.perf_counter() - start < 0.5


@given(st.sampled_from(sorted(TASKS)), st.text())
def test_any_text_gets_a_verdict_without_an_exception(name, response):
    assert verdict(name, "no canonical answer", "####" + response) in ("wrong", "format")


def test_equal_answers_vote_together():
    assert TASKS["rg_prime_factorization"]().answer("so #### 3*2 * 2") == "2*2*3"
    assert TASKS["rg_decimal_chain_sum"]().answer("#### 7.140\n") == "7.14"
    assert TASKS["rg_number_sorting"]().answer("#### 1.0,2") == "1, 2"
    assert TASKS["rg_gcd"]().answer("#### 7 or 8") is None
    assert TASKS["rg_gcd"]().answer("7") is None


def item(answer, question="", **data):
    return {"question": question, "answer": answer, "metadata": data}


CALENDAR = {"task": "count_business_days", "start_date": "2022-12-01", "end_date": "2022-12-05"}
MONDAYS = {"task": "count_days", "start_date": "2022-12-01", "end_date": "2022-12-31"}
BELOW = {"original_numbers": ["1", "2.5", "-3"], "filter_value": "2.5"}


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (checks.chain, item("-4", expression="4 - 1 - 7"), item("-3", expression="4 - 1 - 7")),
        (checks.chain, item("7.14", expression="1.42 + 5.720"), item("7.15", expression="1.42 + 5.720")),
        (checks.expression, item("7", expression="-( 2 - 9 ) / 1"), item("-7", expression="-( 2 - 9 ) / 1")),
        (checks.expression, item("4", expression="8 / 2"), item("3", expression="7 / 2")),  # floor division
        (checks.expression, item("-8", expression="-4 * 2"), item("-3", expression="9361 / -4048")),
        (checks.product, item("12", expression="3 * 4"), item("7", expression="3 * 4")),
        (
            checks.bitwise,
            item("-0x3", problem="((0x1 << 0x1) - 0x5)"),
            item("0x3", problem="((0x1 << 0x1) - 0x5)"),
        ),
        (checks.gcd, item("6", numbers=[12, 18]), item("3", numbers=[12, 18])),
        (checks.lcm, item("36", numbers=[12, 18]), item("72", numbers=[12, 18])),
        (
            checks.equation,
            item("13", equation="56 - 98*e = -1218", variable="e"),
            item("12", equation="56 - 98*e = -1218", variable="e"),
        ),
        (checks.equation, item("0", equation="3*x = 0", variable="x"), item("1", equation="0*x = 0", variable="x")),
        (checks.prime_factors, item("", number=20, factors=[2, 2, 5]), item("", number=20, factors=[4, 5])),
        (checks.prime_factors, item("", number=4, factors=[2, 2]), item("", number=7, factors=[7])),
        (checks.prime_factors, item("", number=6, factors=[2, 3]), item("", number=12, factors=[2, 2, 3])),
        (checks.primes, item("4", start=2, end=10), item("5", start=2, end=10)),
        (checks.primes, item("4", start=1, end=7), item("3", start=1, end=7)),
        (
            checks.fraction,
            item("3/5", numerator=6, denominator=10),
            item("6/10", numerator=12, denominator=20),
        ),
        (checks.fraction, item("1/2", numerator=2, denominator=4), item("3/5", numerator=3, denominator=5)),
        (checks.fraction, item("2/3", numerator=4, denominator=6), item("2/1", numerator=4, denominator=2)),
        (
            # two coins with faces 1 and 2: 3 of 4 rolls reach 3
            checks.dice,
            item("3/4", puzzle={"dice_str": "1d2, 1d2", "target": 3}),
            item("1/2", puzzle={"dice_str": "1d2, 1d2", "target": 3}),
        ),
        (
            # a total of 2 or more is certain
            checks.dice,
            item("1/4", puzzle={"dice_str": "1d2, 1d2", "target": 4}),
            item("1/1", puzzle={"dice_str": "1d2, 1d2", "target": 2}),
        ),
        (
            checks.base_conversion,
            item("92", source_repr="115", source_base=11, target_base=15),
            item("93", source_repr="115", source_base=11, target_base=15),
        ),
        (
            checks.sorting,
            item("", original_numbers=["2", "-1.5"], direction="ascending", sorted_numbers=["-1.5", "2"]),
            item("", original_numbers=["2", "-1.5"], direction="descending", sorted_numbers=["-1.5", "2"]),
        ),
        (
            checks.filtering,
            item("", **BELOW, operation="keep_smaller", result=["1", "-3"]),
            item("", **BELOW, operation="remove_larger", result=["1", "-3"]),  # 2.5 is not larger than 2.5
        ),
        (
            checks.filtering,
            item("", **BELOW, operation="remove_smaller", result=["2.5"]),
            item("", **BELOW, operation="keep_larger", result=[]),  # nothing left to say
        ),
        (
            checks.filtering,
            item("", **{**BELOW, "filter_value": "2"}, operation="keep_smaller", result=["1", "-3"]),
            item("", **{**BELOW, "filter_value": "9"}, operation="keep_smaller", result=["1", "2.5", "-3"]),  # all
        ),
        (
            checks.spiral,
            item("", matrix=[[1, 2, 3], [4, 5, 6], [7, 8, 9]], solution=[1, 2, 3, 6, 9, 8, 7, 4, 5]),
            item("", matrix=[[1, 2, 3], [4, 5, 6], [7, 8, 9]], solution=[1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ),
        (checks.spiral, item("", matrix=[[1, 2], [3, 4]], solution=[1, 2, 4, 3]), item("", matrix=[[7]], solution=[7])),
        # 1 December 2022 was a Thursday: 1, 2 and 5 December are business days.
        (checks.calendar, item("3", **CALENDAR), item("5", **CALENDAR)),
        (
            checks.calendar,
            item("4", "How many Mondays are there?", **MONDAYS),
            item("5", "does Monday occur", **MONDAYS),
        ),
        (checks.calendar, item("5", "does Friday occur", **MONDAYS), item("4", "occurrences of Friday", **MONDAYS)),
        (
            checks.calendar,
            item("22", **{**CALENDAR, "end_date": "2022-12-31"}),
            item("23", **{**CALENDAR, "end_date": "2023-01-02"}),  # the question says 2022
        ),
        (
            checks.calendar,
            item("Friday", "October 28, 2022?", task="weekday_of_date", target_date="2022-10-28"),
            item("Friday", "for 10/28/2022.", task="weekday_of_date", target_date="2022-10-28"),
        ),
        (
            checks.calendar,
            item("Monday", task="weekday_offset", start_date="2022-10-28", offset_days=3, target_date="2022-10-31"),
            item("Monday", task="weekday_offset", start_date="2022-10-28", offset_days=-3, target_date="2022-10-25"),
        ),
        (
            checks.calendar,
            item("26", task="recurring_event_day", year=2022, month=12, ordinal="last", weekday="Monday"),
            item("26", task="recurring_event_day", year=2022, month=12, ordinal="first", weekday="Monday"),
        ),
        (
            # 2, 9, 16, 23 and 30 December 2022
            checks.calendar,
            item("30", task="recurring_event_day", year=2022, month=12, ordinal="last", weekday="Friday"),
            item("23", task="recurring_event_day", year=2022, month=12, ordinal="last", weekday="Friday"),
        ),
    ],
)
def test_answers_are_worked_out_again(check, right, wrong):
    assert check(right)
    assert not check(wrong)


def test_is_prime():
    assert [n for n in range(30) if checks.is_prime(n)] == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]


@pytest.mark.parametrize("text", ["__import__('os')", "a", "1.5", "'x'*9", "True", "2**9", "[1]", "1 if 1 else 2"])
def test_only_integer_expressions_are_evaluated(text):
    with pytest.raises(ValueError, match="is no integer expression"):
        checks.exact(text)


def test_at_least_twelve_tasks_are_listed_and_judge_without_the_package():
    assert len(TASKS) >= 12
    assert set(TASKS) <= set(tasks.names())
    program = (
        "import sys; sys.modules['reasoning_gym'] = None\n"
        "from tasks.base import Example\n"
        "from tasks.reasoning_gym import TASKS\n"
        "e = Example('test-0', 'test', '', {'question': '?', 'answer': '42'})\n"
        "assert [cls().score(e, '#### 42').value for cls in TASKS.values()].count(1.0) >= 10\n"
        "assert 'sympy' not in sys.modules and 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    remedy = r"pip install 'evengrad\[reasoning-gym\]'"
    with pytest.raises(ValueError, match=remedy):
        TASKS["rg_lcm"](max_value=12_345).examples("test")
    with pytest.raises(ValueError, match=remedy):
        TASKS["rg_lcm"](max_value=12_346).fingerprint()


@pytest.mark.parametrize(
    ("name", "settings"),
    [(name, {f"{split}_size": 0}) for name in ("rg_gcd", "rg_dice") for split in SPLITS]
    + [
        (name, {setting: end})
        for name, cls in TASKS.items()
        for setting, (least, largest) in cls.generator.ranges.items()
        for end in (least - 1, largest + 1)
    ],
)
def test_settings_out_of_range_are_refused_with_an_example(name, settings):
    with pytest.raises(ValueError, match=r"expected .*e\.g\.") as refusal:
        TASKS[name](**settings)
    assert next(iter(settings)) in str(refusal.value)


@pytest.fixture
def package():
    return pytest.importorskip(PACKAGE)


@pytest.mark.parametrize("name", TASKS)
def test_the_ends_of_every_range_give_problems(package, name):
    ranges = TASKS[name].generator.ranges
    for ends in itertools.product(*ranges.values()):
        task = small(name, **dict(zip(ranges, ends, strict=True)))
        for split in SPLITS:
            examples = task.examples(split)
            assert examples
            assert all(task.score(e, task.gold(e)).value == 1 for e in examples)


@pytest.mark.parametrize("name", TASKS)
def test_no_answer_fits_one_problem_in_ten_and_none_stands_in_its_question(package, name):
    task = TASKS[name]()
    test = task.examples("test")
    assert len(test) == 512
    answers = Counter(example.data["answer"] for example in test)
    assert answers.most_common(1)[0][1] <= 51
    for example in test:
        assert f" {example.data['answer']} " not in f" {example.data['question']} "
        for response in (task.prompt(example), f"#### {example.data['question']}", f"#### {COUNT}"):
            assert task.score(example, response).value == 0


@pytest.mark.parametrize("name", TASKS)
def test_the_package_never_sees_a_response(package, name, monkeypatch):
    def refuse(*_):
        raise AssertionError("a scorer of the package was called")

    for cls, _ in package.factory.DATASETS.values():
        monkeypatch.setattr(cls, "score_answer", refuse)
    task = small(name, seed=5)
    for example in task.examples("test"):
        assert task.score(example, task.gold(example)).value == 1
        assert task.score(example, "#### __import__('os').abort()").value == 0


def test_what_is_asked_decides_the_split_and_not_its_wording(package):
    task = TASKS["rg_calendar_arithmetic"]()
    train, test = (
        {
            re.search("([A-Z][a-z]+ [0-9]+), 2022", example.data["question"])[1]
            for example in task.examples(split)
            if example.difficulty == "weekday_of_date"
        }
        for split in ("train", "test")
    )
    assert len(train) > 100
    assert len(test) > 30
    assert not train & test


def test_calendar_questions_stay_within_what_they_name(package):
    task = TASKS["rg_calendar_arithmetic"](train_size=1500)
    kinds = Counter(example.difficulty for example in task.examples("train"))
    assert set(kinds) == {
        "weekday_offset",
        "weekday_of_date",
        "recurring_event_day",
        "count_days",
        "count_business_days",
    }
    assert all("leap" not in e.data["question"] and "2023" not in e.data["question"] for e in task.examples("train"))


def test_answers_of_the_divisor_task_are_spread(package):
    answers = Counter(int(e.data["answer"]) for e in TASKS["rg_gcd"]().examples("train"))
    assert answers[1] < 0.08 * 2000  # three of five pairs have 1
    assert len(answers) > 50


def test_neighbouring_seeds_share_next_to_nothing(package):
    first, second = (
        {e.data["question"] for e in small("rg_basic_arithmetic", seed=seed, test_size=200).examples("test")}
        for seed in (42, 43)
    )
    assert len(first & second) < 10  # the package's own seeds 42 and 43 share all but one item


def test_the_version_of_the_package_is_in_the_fingerprint(package, monkeypatch):
    task = small("rg_lcm")
    before = task.fingerprint()
    monkeypatch.setattr(metadata, "version", lambda name: f"{name} 9.9.9")
    assert task.fingerprint() != before


def test_fields_are_the_generators_ranges():
    common = {"train_size", "validation_size", "test_size", "seed"}
    for cls in TASKS.values():
        assert {field.name for field in dataclasses.fields(cls)} - common == set(cls.generator.ranges)


@pytest.mark.parametrize(
    ("name", "first", "second", "third"),
    [
        ("rg_products", {"expression": "3 * 41"}, {"expression": "41 * 3"}, {"expression": "4 * 31"}),
        ("rg_gcd", {"numbers": [12, 18]}, {"numbers": [18, 12]}, {"numbers": [12, 81]}),
        ("rg_lcm", {"numbers": [12, 18]}, {"numbers": [18, 12]}, {"numbers": [12, 81]}),
    ],
)
def test_the_order_of_the_numbers_makes_no_second_problem(name, first, second, third):
    key = TASKS[name].generator.key
    assert key(item("", "a", **first)) == key(item("", "b", **second)) != key(item("", "c", **third))
