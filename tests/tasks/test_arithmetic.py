"""Chains of sums and differences: prompts, steps, and the verdict on every kind of response; draws and splits."""

import dataclasses
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tasks
from tasks.arithmetic import Arithmetic
from tasks.base import Example
from tasks.splits import Draws, fingerprint, generate

TASK = Arithmetic()
EXAMPLE = Example("test-0", "test", "3 operands", {"prompt": "37+8-21=", "terms": [37, 8, -21], "answer": 24})
NEGATIVE = Example("test-1", "test", "2 operands", {"prompt": "3-8=", "terms": [3, -8], "answer": -5})


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("#24", "pass"),
        ("37+8=45;45-21=24;#24", "pass"),
        ("no sense at all#24", "pass"),
        ("#24\n", "pass"),
        ("#24 \t\r\n", "pass"),
        ("#5;#24", "pass"),  # the last marker counts
        ("#24;#5", "wrong"),
        ("#-24", "wrong"),
        ("#240", "wrong"),
        ("#2", "wrong"),
        ("", "format"),
        ("24", "format"),
        ("#", "format"),
        ("#24#", "format"),
        ("##", "format"),
        ("# 24", "format"),
        ("#24 25", "format"),
        ("#24,25", "format"),
        ("#24 or 25", "format"),
        ("#24\n25", "format"),
        ("#24.", "format"),
        ("#24.0", "format"),
        ("#+24", "format"),
        ("#024", "format"),
        ("#2_4", "format"),
        ("#0x18", "format"),
        ("#24e0", "format"),
        ("#45-21", "format"),
        ("#\u0662\u0664", "format"),  # Arabic-Indic digits: int() would take them
        ("#\uff12\uff14", "format"),
        ("#2\u0664", "format"),
        ("#24\u00a0", "format"),
        ("#24\x00", "format"),
        ("\ud800#24", "pass"),
        ("#24\ud800", "format"),
        ("#" + "9" * 5000, "format"),  # int() raises beyond 4300 digits
        ("#" + "0" * 5000 + "24", "format"),
        ("#__import__('os')", "format"),
    ],
)
def test_verdict(response, verdict):
    assert TASK.score(EXAMPLE, response).verdict == verdict


def test_negative_answers_are_read():
    assert TASK.score(NEGATIVE, "#-5").verdict == "pass"
    assert TASK.score(NEGATIVE, "#5").verdict == "wrong"
    assert TASK.score(NEGATIVE, "#--5").verdict == "format"


def test_minus_zero_is_no_integer():
    zero = Example("test-2", "test", "", {"prompt": "", "terms": [], "answer": 0})
    assert TASK.score(zero, "#-0").verdict == "format"
    assert TASK.score(zero, "#0").verdict == "pass"


def test_demonstrations_show_each_step():
    careful, bare = TASK.demonstrations(EXAMPLE)
    assert (careful.response, careful.style) == ("37+8=45;45-21=24;#24", "careful")
    assert (bare.response, bare.style) == ("#24", "bare")
    assert TASK.demonstrations(NEGATIVE)[0].response == "3-8=-5;#-5"


@given(st.text())
def test_any_text_gets_a_verdict_without_an_exception(response):
    score = TASK.score(EXAMPLE, response)
    assert (score.verdict == "pass") == bool(re.search(r"#24[ \t\r\n]*\Z", response))


def test_answers_are_the_sums_of_the_prompts():
    for example in TASK.examples("validation"):
        terms = re.findall(r"[+-]?[0-9]+", TASK.prompt(example))
        assert sum(map(int, terms)) == example.data["answer"]
        assert example.difficulty == f"{len(terms)} operands"


def test_difficulties_are_mixed_as_asked_and_careful_responses_fit_40_characters():
    train = TASK.examples("train")
    shares = {d: sum(e.difficulty == d for e in train) / len(train) for d in {e.difficulty for e in train}}
    # two of five draws each; distinct problems of two operands run out (99 x 99 x 2, a part of them in train)
    assert sorted(shares) == ["2 operands", "3 operands", "4 operands"]
    assert 0.38 < shares["3 operands"] < 0.44
    assert 0.38 < shares["4 operands"] < 0.44
    assert max(len(TASK.demonstrations(e)[0].response) for e in train) <= 40


def test_copying_an_operand_never_pays():
    for example in TASK.examples("test"):
        assert all(example.data["answer"] != abs(term) for term in example.data["terms"])


def test_a_small_space_gives_what_it_has():
    task = Arithmetic(operands=(2,), max_operand=3)
    prompts = [task.prompt(e) for split in tasks.SPLITS for e in task.examples(split)]
    # 3 * 3 * 2 = 18 problems, less 2-1=1, whose answer is one of its operands.
    expected = {f"{a}{s}{b}=" for a in (1, 2, 3) for b in (1, 2, 3) for s in "+-"} - {"2-1="}
    assert set(prompts) == expected
    assert len(prompts) == len(expected)


def test_sizes_are_kept_and_a_larger_split_holds_the_smaller():
    small = {e.id for e in Arithmetic(test_size=50).examples("test")}
    large = {e.id for e in Arithmetic(test_size=80).examples("test")}
    assert (len(small), len(large)) == (50, 80)
    assert small < large


@pytest.mark.parametrize(
    "settings",
    [{"operands": ()}, {"operands": (1,)}, {"operands": (13,)}, {"max_operand": 1}, {"max_operand": 10**9}]
    + [{f"{split}_size": size} for split in tasks.SPLITS for size in (0, -1)],
)
def test_settings_out_of_range_are_refused_with_an_example(settings):
    with pytest.raises(ValueError, match=r"expected .*e\.g\.") as refusal:
        Arithmetic(**settings)
    assert next(iter(settings)) in str(refusal.value)


def test_only_a_plain_integer_votes():
    assert TASK.answer("37+8=45;#24\n") == "24"
    assert [TASK.answer(text) for text in ("24", "#", "#24 or 25", "#024", "# 24")] == [None] * 5


def test_a_step_begins_behind_the_separator():
    assert TASK.step_starts("37+8=45;45-21=24;#24") == [0, 8, 17]


def test_draws_are_the_words_of_a_hash_of_the_key():
    digests = [hashlib.blake2b(repr(("key", 7, block)).encode(), digest_size=64).digest() for block in (0, 1)]
    words = [int.from_bytes(digest[end - 8 : end]) for digest in digests for end in range(64, 0, -8)]
    stream = Draws("key", 7)
    assert [stream.below(2**64) for _ in range(16)] == words


def test_draws_reach_both_ends_and_subsets_hold_nothing_twice():
    assert {Draws("ends", n).between(1, 3) for n in range(40)} == {1, 2, 3}
    assert Draws("all").subset(range(5), 5) == (0, 1, 2, 3, 4)
    assert all(len(set(Draws("some", n).subset(range(5), 3))) == 3 for n in range(40))
    with pytest.raises(ValueError, match="6 entries asked of 5; ask for fewer"):
        Draws("many").subset(range(5), 6)


def number(stream):
    value = stream.below(10**9)
    return str(value), value


def test_neighbouring_seeds_share_nothing():
    first, second = ({text for _, text, _ in generate("t", seed, "test", 100, number)} for seed in (42, 43))
    assert len(first) == len(second) == 100
    assert not first & second


def test_problems_come_in_the_order_of_their_ids_and_only_usable_ones():
    found = generate("t", 0, "test", 50, number, usable=lambda value: value % 2 == 0)
    assert [key for key, _, _ in found] == sorted(key for key, _, _ in found)
    assert all(value % 2 == 0 for _, _, value in found)


def test_a_split_that_no_problem_falls_into_is_refused():
    with pytest.raises(ValueError, match="no problem of t falls into test: the settings leave too few"):
        generate("t", 0, "test", 5, number, usable=lambda _: False)


def test_the_shares_of_the_splits():
    whole = Arithmetic(operands=(2,), validation_size=20_000, test_size=20_000)
    sizes = {split: len(whole.examples(split)) for split in tasks.SPLITS}
    total = sum(sizes.values())
    # binomial, about four standard deviations of 19,000 problems
    assert abs(sizes["train"] / total - 0.6) < 0.015
    assert abs(sizes["validation"] / total - 0.2) < 0.015


def test_rules_settings_and_examples_are_in_the_fingerprint():
    base = ("t", 1, {"a": 1}, ["x"])
    others = [("u", *base[1:]), ("t", 2, *base[2:]), ("t", 1, {"a": 2}, ["x"]), ("t", 1, {"a": 1}, ["y"])]
    assert len({fingerprint(*each) for each in (base, *others)}) == 5

    @dataclasses.dataclass(frozen=True)
    class Next(Arithmetic):
        version = 2

    assert Next().fingerprint() != TASK.fingerprint()
