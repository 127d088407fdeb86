"""Intervals and tests do what they claim, on 10,000 simulated studies each (fixed seeds)."""

import numpy as np
import pytest
from scipy import stats

from harness.reports.coverage import EVEN, MEASURED, SIMULATIONS, SIZES, UNEVEN, coverage_note, percentile_coverage
from harness.reports.resampling import improvement, middle_mean, stratified_bootstrap, studentised_intervals
from harness.reports.statistics import mean_interval, paired_difference, sign_flip


def _samples(num, draw="normal"):
    return getattr(np.random.default_rng([num, 1]), draw)(size=(SIMULATIONS, num))


@pytest.mark.parametrize("num", [5, 10])
def test_t_intervals_cover_what_they_claim(num):
    intervals = [mean_interval(row) for row in _samples(num)]
    assert 0.93 <= np.mean([interval.low <= 0 <= interval.high for interval in intervals]) <= 0.97


def _studentised_coverage(samples, mean):
    ends = [studentised_intervals(block) for block in np.split(samples, 20)]
    low, high = (np.concatenate(part) for part in zip(*ends, strict=True))
    assert not np.isnan(low).any()
    return np.mean((low <= mean) & (mean <= high))


@pytest.mark.parametrize("num", [5, 10])
def test_studentised_intervals_cover_what_they_claim(num):
    assert 0.93 <= _studentised_coverage(_samples(num), 0.0) <= 0.97


@pytest.mark.parametrize(("num", "expected"), [(5, 0.93), (10, 0.94)])
def test_of_skewed_scores_studentised_intervals_cover_more_than_t_intervals(num, expected):
    samples = _samples(num, "exponential")
    half = stats.t.ppf(0.975, num - 1) * stats.sem(samples, axis=1)
    plain = np.mean(np.abs(samples.mean(axis=1) - 1) <= half)
    assert _studentised_coverage(samples, 1.0) == pytest.approx(expected, abs=0.01)
    assert _studentised_coverage(samples, 1.0) > plain + 0.03


@pytest.mark.parametrize("num", [5, 8, 10])
def test_the_paired_t_test_rejects_a_true_null_as_often_as_it_says(num):
    rejected = [paired_difference(row, np.zeros(num)).p <= 0.05 for row in _samples(num)]
    assert 0.04 <= np.mean(rejected) <= 0.06


@pytest.mark.parametrize("num", [8, 10, 12])
def test_sign_flips_reject_a_true_null_as_often_as_they_say(num):
    rejected = [sign_flip(row).p <= 0.05 for row in _samples(num)]
    assert 0.04 <= np.mean(rejected) <= 0.06


def test_sign_flips_of_five_cannot_reject():
    assert not any(sign_flip(row).p <= 0.05 for row in _samples(5)[:500])


@pytest.mark.parametrize("num", SIZES)
@pytest.mark.parametrize("what", list(MEASURED))
def test_what_tables_say_of_percentile_intervals_is_measured(what, num):
    assert percentile_coverage(what, num) == pytest.approx(MEASURED[what][num], abs=5e-4)


def test_percentile_intervals_are_as_narrow_as_known():
    """84% at five and 90% at ten."""
    assert MEASURED["mean"][5] == pytest.approx(0.84, abs=0.01)
    assert MEASURED["mean"][10] == pytest.approx(0.90, abs=0.01)
    assert "a mean 75% at n = 3, 84% at n = 5, 90% at n = 10" in coverage_note()


def _pooled(strata):
    return middle_mean(np.concatenate(strata, axis=-1))


def _better(strata):
    return improvement(strata[:2], strata[2:])


@pytest.mark.parametrize(("what", "gain"), [("iqm", 0.0), ("even", 0.0), ("uneven", 1.8124)])
def test_the_measurement_is_of_the_interval_that_tables_print(what, gain):
    """The same through ``stratified_bootstrap`` itself; 600 studies are good for 3 points. 1.8124 = sqrt(2) z(0.9)."""
    rng, hits = np.random.default_rng(7), []
    truth = {"iqm": 0.0, "even": EVEN, "uneven": UNEVEN}[what]
    for _ in range(600):
        strata = [*rng.normal(gain, 1, size=(2, 5)), *([] if what == "iqm" else rng.normal(size=(2, 5)))]
        low, high = stratified_bootstrap(strata, _pooled if what == "iqm" else _better, rng, samples=400)
        hits.append(low <= truth <= high)
    assert np.mean(hits) == pytest.approx(MEASURED[what][5], abs=0.035)
