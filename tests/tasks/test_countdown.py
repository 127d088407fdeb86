"""Countdown: the grammar, the rule of the numbers, and the verdict on every kind of response."""

import itertools
import re
import time
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tasks
from tasks.base import Example
from tasks.countdown import Countdown, evaluate

TASK = Countdown()
ANY = Countdown(use_all=False)


def problem(*numbers, target):
    prompt = f"{' '.join(map(str, numbers))} -> {target}:"
    return Example("test-0", "test", "", {"prompt": prompt, "numbers": list(numbers), "target": target})


EXAMPLE = problem(3, 4, 7, target=17)


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("#3*7-4", "pass"),
        ("#7*3-4", "pass"),
        ("3*7=21;21-4=17;#3*7-4", "pass"),
        ("# 3 * 7 - 4", "pass"),
        ("#((3*7))-(4)", "pass"),
        ("#3*7-4\n", "pass"),
        ("#3*7-4 \t\r\n", "pass"),
        ("#3+4+7;#3*7-4", "pass"),  # the last marker counts
        ("#3*7-4;#3+4+7", "wrong"),
        ("\ud800#3*7-4", "pass"),
        ("#3*4+7", "wrong"),
        ("#17", "wrong"),  # the target is not among the numbers
        ("#10+7", "wrong"),
        ("#3+7*4-4*3-2", "wrong"),
        ("#3*7-4+7-7", "wrong"),
        ("#3*7-4*1", "wrong"),
        ("#(3*7-4)/(4-4)", "wrong"),
        ("#37-4*5", "wrong"),
        ("", "format"),
        ("3*7-4", "format"),
        ("#", "format"),
        ("#3*7-4#", "format"),
        ("#3*7-4=17", "format"),
        ("#17=3*7-4", "format"),
        ("#3*7-4 or 3+4+7", "format"),
        ("#3*7-4,3+4+7", "format"),
        ("#3*7-4;", "format"),
        ("#3*7-4.", "format"),
        ("#3*7-4\n3", "format"),
        ("#3*7\n-4", "format"),
        ("#-4+3*7", "format"),  # no sign
        ("#+3*7-4", "format"),
        ("#3*7+(-4)", "format"),
        ("#3*7--4", "format"),
        ("#3*7-04", "format"),
        ("#3*7-4.0", "format"),
        ("#3 7 4", "format"),
        ("#(3)(7)-4", "format"),
        ("#3(7)-4", "format"),
        ("#3*7-4)", "format"),
        ("#(3*7-4", "format"),
        ("#()3*7-4", "format"),
        ("#3*7%4", "format"),
        ("#3*7-4_", "format"),
        ("#3*7-x", "format"),
        ("#max(3,7)*4", "format"),
        ("#__import__('os')", "format"),
        ("#3\u00d77-4", "format"),
        ("#3*7\u22124", "format"),
        ("#\u0663*\u0667-\u0664", "format"),  # Arabic-Indic digits: int() would take them
        ("#\uff13*\uff17-\uff14", "format"),
        ("#3*7-4\u00a0", "format"),
        ("#3*7-4\x00", "format"),
        ("#3*7-4\ud800", "format"),
        ("#1e1+7", "format"),
        ("#3 4 7 -> 17:", "format"),
    ],
)
def test_verdict(response, verdict):
    score = TASK.score(EXAMPLE, response)
    assert score.verdict == verdict
    assert score.value == (verdict == "pass")


@pytest.mark.parametrize(
    ("numbers", "target", "response"),
    [
        ((1, 2, 5), 3, "#1.5*2"),  # TinyZero pays this: its multiset check reads 1, 5, 2
        ((2, 2, 3), 8, "#2**3"),
        ((2, 3, 5), 8, "#2**3"),
        ((2, 5, 7), 3, "#7//2"),
        ((9, 9, 9), 9, "#9**9**9"),
        ((1, 2, 3), 24, "#12*(3-1)"),  # 1 and 2 glued together
        ((1, 2, 3), 36, "#1 2*3"),
        ((1, 2, 3), 36, "#12*3"),
        ((3, 4, 7), 84, "#(3,4,7)"),
        ((4, 4, 5), 19, "#4!-5"),
        ((7, 7, 8), 8, "#7/7*8*1"),
    ],
)
def test_what_others_have_paid_earns_nothing(numbers, target, response):
    for task in (TASK, ANY):
        assert task.score(problem(*numbers, target=target), response).value == 0


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "(" * 5000 + "1" + ")" * 5000,
        "(" * 90 + "3*7-4" + ")" * 90,
        "9**9**9",
        "9" * 10_000,
        "0" * 10_000 + "3*7-4",
        "-" * 10_000 + "3",
        "3*" * 5000 + "7",
        "3+" * 90 + "7",
        "999999999*" * 19 + "9",
        "3" + " " * 10_000 + "*7-4x",
        "10**10**10",
        "#" * 10_000,
    ],
)
def test_bombs_earn_nothing_at_once(text):
    start = time.perf_counter()
    for task in (TASK, ANY):
        score = task.score(EXAMPLE, "#" + text)
        assert score.value == 0
        assert score.verdict in ("format", "wrong")
        assert len(score.reason) < 300
        task.answer("#" + text)
    assert time.perf_counter() - start < 0.1


def test_fractions_are_exact():
    assert TASK.score(problem(3, 3, 8, 8, target=24), "#8/(3-8/3)").verdict == "pass"
    assert TASK.score(problem(1, 3, 3, target=1), "#1/3*3").verdict == "pass"
    # 0.1 + 0.2 style: 7/10 + 1/10 is 8/10 exactly, floats say 0.7999999999999999
    assert evaluate("7/10+1/10")[0] == Fraction(8, 10)
    # within 1e-5 of the target is not the target (TinyZero's tolerance)
    assert TASK.score(problem(1, 3, 999999, target=3), "#3+1/999999").verdict == "wrong"


def test_operators_bind_and_associate_as_in_arithmetic():
    assert evaluate("9-4-3") == (2, (3, 4, 9))
    assert evaluate("9-(4-3)")[0] == 8
    assert evaluate("16/4/2")[0] == 2
    assert evaluate("2+3*4-6/2*5")[0] == -1
    assert evaluate("16/4*2")[0] == 8


def test_the_rule_of_use():
    once = problem(1, 3, 7, target=21)
    assert TASK.score(once, "#3*7").verdict == "wrong"
    assert ANY.score(once, "#3*7").verdict == "pass"
    assert TASK.score(once, "#3*7*1").verdict == "pass"
    for task in (TASK, ANY):
        assert task.score(once, "#3*7*1*1").verdict == "wrong"
        assert task.score(problem(3, 4, 7, target=9), "#3*3").verdict == "wrong"
        assert task.score(problem(3, 3, 7, target=16), "#3*3+7").verdict == "pass"
    assert "each exactly once" in TASK.score(once, "#3*7").reason


def test_demonstrations_show_each_step():
    data = {
        "prompt": "3 4 7 -> 17:",
        "numbers": [3, 4, 7],
        "target": 17,
        "steps": "7*3=21;21-4=17;",
        "solution": "7*3-4",
    }
    careful, bare = TASK.demonstrations(Example("test-0", "test", "", data))
    assert (careful.response, careful.style) == ("7*3=21;21-4=17;#7*3-4", "careful")
    assert (bare.response, bare.style) == ("#7*3-4", "bare")
    assert TASK.step_starts("7*3=21;21-4=17;#7*3-4") == [0, 7, 15]


@given(st.text())
def test_any_text_gets_a_verdict_without_an_exception(response):
    assert TASK.score(EXAMPLE, response).value == 0


@given(st.text("0123456789+-*/() ", max_size=30))
def test_values_are_those_of_python_on_what_both_read(text):
    try:
        value, numbers = evaluate(text)
    except (ValueError, ZeroDivisionError):
        return
    exact = re.sub(r"[0-9]+", lambda match: f"Fraction({match[0]})", text.strip())
    assert value == eval(exact, {"Fraction": Fraction})
    assert list(numbers) == sorted(map(int, re.findall("[0-9]+", text)))


def test_answers_with_equal_verdicts_vote_together():
    assert TASK.answer("#3*7-4") == TASK.answer("so #7*3 - 4\n") == "17 of 3 4 7"
    assert TASK.answer("#4/3*7") == "28/3 of 3 4 7"
    assert TASK.answer("#17") == "17 of 17"
    for nothing in ("", "3*7-4", "#", "#3*7-4=17", "#3/(4-4)", "#" + "9" * 10_000):
        assert TASK.answer(nothing) is None


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_careful_steps_are_true_and_end_in_the_target(split):
    for example in TASK.examples(split)[:2000]:
        numbers, target = TASK.prompt(example).removesuffix(":").split(" -> ")
        assert sorted(map(int, numbers.split())) == example.data["numbers"]
        pool = Counter(example.data["numbers"])
        for step in example.data["steps"].removesuffix(";").split(";"):
            left, sign, right, value = re.fullmatch(r"([0-9]+)([-+*/])([0-9]+)=([0-9]+)", step).groups()
            assert evaluate(f"{left}{sign}{right}")[0] == int(value) > 0
            pool.subtract((int(left), int(right)))
            assert min(pool.values()) >= 0
            pool[int(value)] += 1
        assert +pool == Counter([int(target)])
        assert evaluate(example.data["solution"]) == (int(target), tuple(example.data["numbers"]))


def test_no_target_is_a_number_or_one_operation_away():
    for example in TASK.examples("test"):
        numbers, target = example.data["numbers"], example.data["target"]
        reachable = set(numbers)
        for a, b in itertools.permutations(numbers, 2):
            reachable |= {a + b, a - b, a * b, Fraction(a, b)}
        assert target not in reachable
        assert 1 <= target <= 99
        assert example.difficulty == f"{len(numbers)} operands"


def test_both_rules_share_their_problems_and_both_sizes_occur():
    train = TASK.examples("train")
    assert [TASK.prompt(e) for e in train] == [ANY.prompt(e) for e in ANY.examples("train")]
    assert len(train) == 20_000
    counts = Counter(example.difficulty for example in train)
    assert set(counts) == {"3 operands", "4 operands"}
    assert min(counts.values()) > 7000
    assert max(len(TASK.demonstrations(e)[0].response) for e in train) <= 60


def test_the_order_of_the_numbers_makes_no_second_problem():
    seen = [(tuple(e.data["numbers"]), e.data["target"]) for split in tasks.SPLITS for e in TASK.examples(split)]
    assert len(seen) == len(set(seen))
    assert all(list(numbers) == sorted(numbers) for numbers, _ in seen)


def test_twenty_thousand_problems_take_seconds():
    start = time.perf_counter()
    assert len(Countdown(seed=77).examples("train")) == 20_000
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize(
    "settings",
    [{"operands": ()}, {"operands": (2,)}, {"operands": (3, 5)}, {"max_number": 4}, {"max_target": 0}]
    + [{"max_number": 10**6}, {"max_target": 10**6}]
    + [{f"{split}_size": size} for split in tasks.SPLITS for size in (0, -1)],
)
def test_settings_out_of_range_are_refused_with_an_example(settings):
    with pytest.raises(ValueError, match=r"expected .*e\.g\.") as refusal:
        Countdown(**settings)
    assert next(iter(settings)) in str(refusal.value)


def test_a_small_space_gives_what_it_has():
    # three numbers up to 5 and targets up to 5: a handful of problems, none twice
    task = Countdown(operands=(3,), max_number=5, max_target=5)
    prompts = [task.prompt(e) for split in tasks.SPLITS for e in task.examples(split)]
    assert 10 < len(prompts) == len(set(prompts)) < 35 * 5
