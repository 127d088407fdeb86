"""Studentised bootstrap, performance profiles, thresholds, falls and sigmoid fits against independent references."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from harness.reports.resampling import performance_profile, studentised_interval
from harness.reports.sigmoid import KNEE, fit_sigmoid, sigmoid
from harness.reports.trajectories import endings, first_reached, largest_fall, median_with_misses


def _brute_force(values, level=0.95):
    """List all n^n resamples and read the quantiles of t off the sorted list."""
    values = np.asarray(values)
    num = len(values)
    draws = np.array(list(itertools.product(values, repeat=num)))
    with np.errstate(divide="ignore"):
        t = np.sort((draws.mean(1) - values.mean()) / stats.sem(draws, axis=1))
    low, high = (t[math.ceil(round(tail * len(t), 6)) - 1] for tail in ((1 - level) / 2, (1 + level) / 2))
    error = stats.sem(values)
    return values.mean() - high * error, values.mean() - low * error


@pytest.mark.parametrize("values", [[0.41, 0.47, 0.39, 0.52, 0.44], [0.1, 0.11, 0.13, 0.9], [1, 2, 4, 8, 16, 32.0]])
def test_studentised_interval_equals_the_list_of_all_resamples(values):
    assert studentised_interval(values) == pytest.approx(_brute_force(values), rel=1e-9)


def test_studentised_interval_follows_the_skew():
    low, high = studentised_interval([0.1, 0.11, 0.13, 0.12, 0.3])
    mean = np.mean([0.1, 0.11, 0.13, 0.12, 0.3])
    assert high - mean > 2 * (mean - low) > 0


def test_studentised_interval_is_equivariant_and_repeats():
    values = np.random.default_rng(2).normal(size=12)
    low, high = studentised_interval(values)
    assert studentised_interval(3 - 2 * values) == pytest.approx((3 - 2 * high, 3 - 2 * low), rel=0.05)
    assert studentised_interval(5 + 2 * values) == pytest.approx((5 + 2 * low, 5 + 2 * high))


@pytest.mark.parametrize("values", [[], [0.4], [0.1, 0.2, 0.3], [0.4] * 6, [0.5, 0.5, 0.5, 0.6, 0.7]])
def test_studentised_interval_is_missing_where_resamples_have_no_spread(values):
    assert all(math.isnan(end) for end in studentised_interval(values))


def test_performance_profile_by_hand():
    # above 0.3: 1/2 and 2/2 of the runs; above 0.5 (a score of just 0.5 is not): 0 and 1/2
    strata = [np.array([0.2, 0.4]), np.array([0.5, 0.9])]
    assert performance_profile(strata, [0.0, 0.3, 0.5, 0.9]).tolist() == [1.0, 0.75, 0.25, 0.0]


def test_performance_profile_integrates_to_the_mean():
    """The area under the share of runs above t, t from 0 to 1, is the mean of scores in [0, 1]."""
    scores = np.random.default_rng(0).uniform(size=9)
    grid = np.linspace(0, 1, 20_001)
    assert np.trapezoid(performance_profile([scores], grid), grid) == pytest.approx(scores.mean(), abs=1e-4)


def test_compute_to_threshold_by_hand():
    assert first_reached([0, 10, 20, 30], [0.2, 0.45, 0.4, 0.6], 0.45) == 10
    assert first_reached([0, 10, 20, 30], [0.2, 0.45, 0.4, 0.6], 0.46) == 30
    assert first_reached([0, 10], [0.2, 0.3], 0.46) == math.inf


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0, 1.0, 2.0], 2.0), ([1.0, 2.0], 1.5), ([1.0, math.inf], math.inf), ([1.0, 2.0, math.inf], 2.0)],
)
def test_a_miss_is_infinite_in_the_median(values, expected):
    assert median_with_misses(values) == expected


def test_largest_fall_by_hand():
    # means of two: 0.2, 0.5, 0.4, 0.1, 0.5: the highest is 0.5, the lowest after it 0.1
    assert largest_fall([0.1, 0.3, 0.7, 0.1, 0.1, 0.9], 2) == pytest.approx(0.4)
    assert largest_fall([0.1, 0.2, math.nan, 0.3], 3) == 0.0
    assert largest_fall([0.9, 0.1], 3) == 0.0
    assert math.isnan(largest_fall([math.nan], 3))


def test_areas_by_hand():
    import pandas as pd

    points = [("a", "validation", f, s) for f, s in [(0.0, 0.2), (0.25, 0.4), (0.5, 0.6), (1.0, 0.8)]]
    points += [("a", "test", 0.0, 0.25), ("a", "test", 1.0, 0.75), ("b", "validation", 0.0, 0.2)]
    points += [("b", "validation", 0.5, 0.4), ("b", "validation", 0.75, math.nan), ("b", "test", 0.0, 0.3)]
    found = endings(pd.DataFrame(points, columns=["cell", "split", "fraction", "score"]))
    assert [found["a"][name] for name in ("start", "final")] == [0.25, 0.75]
    # (0.3 / 4 + 0.5 / 4 + 0.7 / 2) = 0.55; in log2 of the budget the two pieces are of one length: (0.5 + 0.7) / 2
    assert found["a"]["auc"] == pytest.approx(0.55)
    assert found["a"]["log_auc"] == pytest.approx(0.6)
    # stops at half of the budget with 0.4, which is carried on: (0.3 + 0.4) / 2, and 0.4 on the logarithm
    assert math.isnan(found["b"]["auc"])
    assert (found["b"]["last"], found["b"]["last_fraction"]) == (0.4, 0.5)
    assert [found["b"][f"carried_{name}"] for name in ("auc", "log_auc")] == pytest.approx([0.35, 0.4])


COMPUTE = np.concatenate([[0.0], np.linspace(0.1, 1.0, 10)]) * 1e12


def _curves(asymptote, steepness, midpoint, seeds=5, noise=0.01, compute=COMPUTE):
    rng = np.random.default_rng(3)
    curve = sigmoid(compute, 0.2, asymptote, steepness, midpoint)
    return np.array([curve + rng.normal(0, noise, len(compute)) for _ in range(seeds)])


@pytest.mark.parametrize(
    ("asymptote", "steepness", "midpoint"), [(0.75, 2.2, 2e11), (0.6, 1.6, 3e11), (0.9, 3.8, 4e11)]
)
def test_sigmoid_fit_is_scipys(asymptote, steepness, midpoint):
    curves = _curves(asymptote, steepness, midpoint)
    fit = fit_sigmoid(COMPUTE, curves, np.random.default_rng(0), samples=50)
    mean = curves.mean(axis=0)

    def model(compute, a, b, log_mid):
        return mean[0] + (a - mean[0]) / (1 + np.exp(b * (log_mid - np.log(compute))))

    start = (asymptote, steepness, math.log(midpoint))
    expected, _ = optimize.curve_fit(model, COMPUTE[1:], mean[1:], p0=start, xtol=1e-12, ftol=1e-12)
    assert fit.refusal == ""
    assert (fit.asymptote[0], fit.steepness[0]) == pytest.approx(expected[:2], rel=1e-5)
    assert fit.midpoint[0] == pytest.approx(math.exp(expected[2]), rel=1e-5)
    assert fit.error == pytest.approx(np.sqrt(np.mean((model(COMPUTE[1:], *expected) - mean[1:]) ** 2)), rel=1e-6)


def test_sigmoid_fit_finds_an_exact_curve_and_its_intervals_hold_it():
    exact = fit_sigmoid(COMPUTE, _curves(0.7, 2.0, 3e11, noise=0.0), np.random.default_rng(0), samples=50)
    assert (exact.asymptote[0], exact.steepness[0], exact.midpoint[0]) == pytest.approx((0.7, 2.0, 3e11), rel=1e-4)
    noisy = fit_sigmoid(COMPUTE, _curves(0.7, 2.0, 3e11, seeds=10), np.random.default_rng(0))
    for (value, low, high), true in zip(
        (noisy.asymptote, noisy.steepness, noisy.midpoint), (0.7, 2, 3e11), strict=True
    ):
        assert low < value < high
        assert value - 3 * (high - low) < true < value + 3 * (high - low)


def test_the_knee_is_where_the_curve_bends_up_most():
    z = np.linspace(-4, 0, 400_001)
    bend = np.gradient(np.gradient(1 / (1 + np.exp(-z)), z), z)
    assert z[np.argmax(bend)] == pytest.approx(-KNEE, abs=1e-3)


@pytest.mark.parametrize(
    ("curves", "compute", "reason"),
    [
        (_curves(0.7, 2.0, 3e11)[:, :5], COMPUTE[:5], "4 evaluations after the start, 5 needed"),
        (_curves(0.1, 2.0, 3e11), COMPUTE, "does not rise"),
        (_curves(0.9, 3.0, 3e12, noise=0.0), COMPUTE, "outside the evaluated compute"),
        (_curves(0.7, 8.0, 8e11, noise=0.0), COMPUTE, "4 evaluations beyond the lower knee, 5 needed"),
        (np.tile(np.where(COMPUTE > 4.5e11, 0.7, 0.2), (5, 1)), COMPUTE, "no sigmoid"),
    ],
)
def test_a_sigmoid_is_refused_with_a_reason(curves, compute, reason):
    fit = fit_sigmoid(compute, curves, np.random.default_rng(0), samples=20)
    assert reason in fit.refusal
    assert all(math.isnan(value) for value in (*fit.asymptote, *fit.steepness, *fit.midpoint))


def test_two_seeds_have_a_fit_and_no_interval():
    fit = fit_sigmoid(COMPUTE, _curves(0.7, 2.0, 3e11, seeds=2), np.random.default_rng(0), samples=20)
    assert fit.asymptote[0] == pytest.approx(0.7, abs=0.05)
    assert math.isnan(fit.asymptote[1])
