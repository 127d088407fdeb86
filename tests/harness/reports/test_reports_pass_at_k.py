"""pass@k and maj@k against every subset written out, and intervals in which a prompt counts once."""

import itertools
import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from harness.reports.pass_at_k import majority_at_k, pass_at_k, rate
from harness.reports.statistics import mean_interval


def subsets(num, k):
    return list(itertools.combinations(range(num), k))


def vote(answers, right, chosen):
    """Return what the vote of the chosen responses is worth, from the words of the docstring."""
    votes = Counter(answers[i] for i in chosen if answers[i] is not None)
    winners = [answer for answer in votes if votes[answer] == max(votes.values())]
    worth = [Fraction(sum(r for a, r in zip(answers, right, strict=True) if a == w), answers.count(w)) for w in winners]
    return sum(worth, Fraction(0)) / len(worth) if worth else Fraction(0)


def test_pass_at_k_is_the_share_of_subsets_with_a_right_response():
    for num in range(1, 9):
        for right, k in itertools.product(range(num + 1), range(1, num + 1)):
            hits = [any(i < right for i in chosen) for chosen in subsets(num, k)]
            assert pass_at_k(num, right, k) == pytest.approx(sum(hits) / len(hits), abs=1e-14)


def test_pass_at_k_of_many_responses_neither_overflows_nor_loses_digits():
    expected = 1 - Fraction(math.comb(9_990, 5_000), math.comb(10_000, 5_000))
    assert pass_at_k(10_000, 10, 5_000) == pytest.approx(float(expected), rel=1e-12)
    assert pass_at_k(10_000, 1, 1) == pytest.approx(1e-4, rel=1e-12)
    assert pass_at_k(1_000_000, 0, 500_000) == 0.0


@pytest.mark.parametrize(("num", "right", "k"), [(2, 0, 5), (4, 4, 5), (0, 0, 1)])
def test_more_than_there_are_cannot_be_drawn(num, right, k):
    """human-eval#35: n = 2, c = 0, k = 5 came out as 1."""
    with pytest.raises(ValueError, match=f"k = {k} of {num} responses do not exist: sample at least {k} a prompt"):
        pass_at_k(num, right, k)
    with pytest.raises(ValueError, match=f"k = {k} of {num} responses do not exist"):
        majority_at_k(["1"] * num, [False] * num, k)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="3 of 2 responses cannot be right"):
        pass_at_k(2, 3, 1)
    with pytest.raises(ValueError, match="k is at least 1"):
        pass_at_k(2, 1, 0)
    with pytest.raises(ValueError, match="2 answers and 1 verdicts"):
        majority_at_k(["1", "2"], [True], 1)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_majority_by_hand(k):
    # Answers 7 (right), 7, 9, none. Subsets of 1: 1, 1, 0, 0. Of 2: 77 -> 1, 79 -> 1/2 twice, 7- -> 1 twice, 9- -> 0.
    # Of 3: 779, 77- -> 1, 79- -> 1/2 twice. Of 4: 1.
    expected = {1: 2 / 4, 2: (1 + 1 / 2 + 1 / 2 + 1 + 1 + 0) / 6, 3: (1 + 1 + 1 / 2 + 1 / 2) / 4, 4: 1}
    found = majority_at_k(["7", "7", "9", None], [True, True, False, False], k)
    assert found == pytest.approx(expected[k], abs=1e-14)


def test_majority_is_the_mean_vote_over_all_subsets():
    """Ties, silence, and equal answers of different verdicts: 300 random cases, every subset."""
    rng = random.Random(0)
    for _ in range(300):
        num = rng.randint(1, 8)
        answers = [rng.choice(["1", "2", "3", "4", None]) for _ in range(num)]
        right = [rng.random() < 0.5 for _ in answers]
        for k in range(1, num + 1):
            worth = [vote(answers, right, chosen) for chosen in subsets(num, k)]
            found = majority_at_k(answers, right, k)
            assert found == pytest.approx(float(sum(worth) / len(worth)), abs=1e-13), (answers, right, k)


def test_nobody_votes_and_nobody_is_right():
    assert majority_at_k([None, None], [True, False], 2) == 0.0
    assert majority_at_k(["1", "2"], [False, False], 2) == 0.0
    assert majority_at_k(["1", "2", "1"], [True, True, True], 3) == 1.0


def test_votes_of_many_responses_have_no_overflow():
    answers = ["7"] * 1_100 + ["9"] * 900
    right = [answer == "7" for answer in answers]
    assert majority_at_k(answers, right, 2_000) == pytest.approx(1.0, abs=1e-9)
    assert majority_at_k(answers, right, 1) == pytest.approx(0.55, rel=1e-9)
    # three voters without a tie: P(at least two of three sevens), hypergeometric
    two = math.comb(1_100, 2) * 900 + math.comb(1_100, 3)
    assert majority_at_k(answers, right, 3) == pytest.approx(two / math.comb(2_000, 3), rel=1e-9)


def test_an_interval_of_prompts_by_hand():
    found = rate([0.0, 0.5, 0.75, 0.5])
    # mean 7/16, deviations -7/16, 1/16, 5/16, 1/16: sum of squares 19/64, variance of the mean 19/768; t(3) = 3.182446
    z, t = 1.959963984540054, 3.182446305284263
    num = (7 / 16) * (9 / 16) / (19 / 768) * (z / t) ** 2
    centre = (7 / 16 + z**2 / num / 2) / (1 + z**2 / num)
    half = math.sqrt((7 / 16) * (9 / 16) * z**2 / num + (z**2 / num) ** 2 / 4) / (1 + z**2 / num)
    assert (found.mean, found.num) == (0.4375, 4)
    assert (found.low, found.high) == (pytest.approx(centre - half, rel=1e-12), pytest.approx(centre + half, rel=1e-12))


def test_many_prompts_away_from_the_ends_have_the_t_interval():
    values = np.random.default_rng(0).beta(2, 2, size=2_000)
    found, expected = rate(values), mean_interval(values)
    assert (found.low, found.high) == (pytest.approx(expected.low, abs=2e-5), pytest.approx(expected.high, abs=2e-5))


def test_an_interval_does_not_collapse_where_one_prompt_differs():
    """Of 50 prompts one is half right: a t interval would be [0.9699, 1]."""
    found = rate([1.0] * 49 + [0.5])
    assert found.mean == pytest.approx(0.99)
    assert (found.low, found.high) == (pytest.approx(0.94328, abs=1e-5), pytest.approx(0.99831, abs=1e-5))
    assert found.high < 1


def test_intervals_near_an_end_cover():
    """50 prompts of 8 responses, of which one prompt in 20 is right half the time and all others always."""
    rng = np.random.default_rng(0)
    covered = by_t = 0
    for _ in range(1_000):
        values = rng.binomial(8, np.where(rng.random(50) < 0.05, 0.5, 1.0)) / 8
        found, other = rate(values), mean_interval(values)
        covered += found.low <= 0.975 <= found.high
        by_t += other.low <= 0.975 <= other.high
    assert covered / 1_000 > 0.93
    assert by_t < covered


def test_one_response_a_prompt_has_wilsons_interval():
    """Wilson 1927: 3 of 4 is [0.3006, 0.9544], 10 of 10 is [0.7225, 1]."""
    found = rate([1, 1, 0, 1])
    assert found.mean == 0.75
    assert (found.low, found.high) == (pytest.approx(0.300642, abs=1e-6), pytest.approx(0.954413, abs=1e-6))
    whole = rate([1.0] * 10)
    assert (whole.low, whole.high) == (pytest.approx(0.722467, abs=1e-6), 1.0)
    assert (rate([0.0] * 10).low, rate([0.0] * 10).high) == (0.0, pytest.approx(1 - 0.722467, abs=1e-6))


def test_what_has_no_interval_says_so():
    for values in ([], [0.5], [0.25, 0.25, 0.25]):
        found = rate(values)
        assert math.isnan(found.low)
        assert math.isnan(found.high)
    assert math.isnan(rate([]).mean)
    with pytest.raises(ValueError, match="lie in"):
        rate([0.5, 1.5])


def test_an_interval_over_prompts_covers_where_one_over_responses_does_not():
    """40 prompts, 16 responses each; a prompt is easy (0.9) or hard (0.1): the mean is 0.5."""
    rng = np.random.default_rng(0)
    clustered = naive = 0
    for _ in range(400):
        chance = rng.choice([0.1, 0.9], size=40)
        right = rng.random((40, 16)) < chance[:, None]
        found = rate(right.mean(1))
        clustered += found.low <= 0.5 <= found.high
        alone = rate(right.reshape(-1).astype(float))
        naive += alone.low <= 0.5 <= alone.high
    assert clustered / 400 > 0.92
    assert naive / 400 < 0.55
