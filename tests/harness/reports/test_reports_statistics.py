"""Statistics against scipy, numerical integration and cases worked by hand."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from harness.reports import statistics
from harness.reports.resampling import interquartile_mean, probability_of_improvement, stratified_bootstrap
from harness.reports.statistics import (
    area_under_curve,
    carry_forward,
    holm,
    mean_interval,
    minimum_detectable_difference,
    paired_difference,
    paired_power,
    sign_flip,
)

SCORES = [0.41, 0.47, 0.39, 0.52, 0.44]


def test_mean_interval_is_scipys_t_interval():
    interval = mean_interval(SCORES)
    expected = stats.t.interval(0.95, 4, loc=np.mean(SCORES), scale=stats.sem(SCORES))
    assert (interval.low, interval.high) == pytest.approx(expected, rel=1e-12)
    assert (interval.num, interval.df) == (5, 4)


def test_mean_interval_by_hand_for_three():
    # mean 2, sd 1, t(0.975, 2) = 4.30265; 4.30265 / sqrt(3) = 2.48414
    assert mean_interval([1, 2, 3]).half_width == pytest.approx(2.48414, abs=1e-5)


def test_one_run_has_a_mean_and_no_interval():
    interval = mean_interval([0.4])
    assert interval.mean == 0.4
    assert math.isnan(interval.half_width)
    assert math.isnan(interval.low)


def test_no_run_has_no_mean():
    assert math.isnan(mean_interval([]).mean)


@pytest.mark.parametrize("function", [mean_interval, sign_flip, interquartile_mean])
def test_a_missing_value_is_refused_rather_than_averaged(function):
    with pytest.raises(ValueError, match="finite"):
        function([0.1, math.nan])


def test_paired_difference_drops_and_counts_unfinished_pairs():
    test = paired_difference([0.5, 0.7, math.nan, 0.6], [0.4, 0.4, 0.4, math.nan])
    assert test.differences == pytest.approx([0.1, 0.3])
    assert test.interval.mean == pytest.approx(0.2)
    assert test.num_dropped == 2
    assert test.sd == pytest.approx(math.sqrt(0.02))


def test_paired_interval_is_scipys():
    first, second = np.array(SCORES), np.array([0.40, 0.41, 0.40, 0.45, 0.40])
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    interval = paired_difference(first, second).interval
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_paired_p_is_scipys_and_missing_without_spread():
    first, second = np.array(SCORES), np.array([0.40, 0.41, 0.40, 0.45, 0.40])
    assert paired_difference(first, second).p == pytest.approx(stats.ttest_rel(first, second).pvalue, rel=1e-12)
    assert math.isnan(paired_difference([1.0, 2.0], [0.0, 1.0]).p)
    assert math.isnan(paired_difference([1.0], [0.0]).p)


def test_paired_difference_refuses_unequal_lengths():
    with pytest.raises(ValueError, match="shapes"):
        paired_difference([1, 2], [1, 2, 3])


def test_sign_flip_equals_scipys_exact_permutation_test():
    differences = np.array([0.3, -0.1, 0.25, 0.07, 0.02, -0.04])
    expected = stats.permutation_test(
        (differences,), lambda x, axis: np.mean(x, axis=axis), permutation_type="samples", n_resamples=np.inf
    )
    test = sign_flip(differences)
    assert test.exact
    assert test.p == pytest.approx(expected.pvalue, abs=1e-12)


def test_sign_flip_by_hand():
    # |3 - 1| = 2: of (+-3 +-1), all of 4, 2, -2, -4 reach 2
    assert sign_flip([3, -1]).p == 1.0
    # 1 + 2 + 3 = 6 is reached by +++ and --- only
    assert sign_flip([1, 2, 3]).p == 2 / 8
    # the same differences in floating point, where 0.1 + 0.2 is not 0.3: sums 0.6, 0, 0, ... ; -0.3 flips tie at 0
    assert sign_flip([0.1, 0.2, -0.3]).p == 1.0


@pytest.mark.parametrize("num", [1, 2, 3, 5, 8])
def test_sign_flip_reaches_its_minimum_when_all_signs_agree(num):
    test = sign_flip(np.linspace(0.1, 0.2, num))
    assert test.p == test.minimum == 2 / 2**num


def test_ties_raise_the_attainable_minimum():
    assert sign_flip([0.1, 0.2, 0.0]).minimum == 0.5
    assert sign_flip([0.0, 0.0]).p == 1.0


def test_sampled_sign_flip_is_near_the_exact_one_and_repeats():
    differences = np.array([0.3, -0.1, 0.25, 0.07, 0.02, -0.04, 0.1, 0.12, -0.2, 0.05, 0.01, 0.08, -0.03, 0.06, 0.15])
    first, second = (sign_flip(differences, np.random.default_rng(3)) for _ in range(2))
    bits = (np.arange(2**15)[:, None] >> np.arange(15)) & 1
    exact = np.mean(np.abs((1 - 2.0 * bits) @ differences) >= differences.sum() - 1e-12)
    assert not first.exact
    assert first == second
    assert first.p == pytest.approx(exact, abs=0.006)


def test_sampling_without_a_generator_is_refused():
    with pytest.raises(ValueError, match="Generator"):
        sign_flip(np.ones(15))


@pytest.mark.parametrize(("difference", "num"), [(0.5, 34), (2.0, 3), (8.0, 2), (1.0, 10)])
def test_power_equals_numerical_integration_over_the_variance(difference, num):
    df, shift = num - 1, difference * math.sqrt(num)
    critical = stats.t.ppf(0.975, df)

    def density(s):
        beyond = stats.norm.cdf(shift - critical * s / math.sqrt(df))
        return stats.chi.pdf(s, df) * (beyond + stats.norm.cdf(-shift - critical * s / math.sqrt(df)))

    expected = integrate.quad(density, 0, math.sqrt(df) + 12, points=[math.sqrt(df)])[0]
    assert paired_power(difference, 1.0, num) == pytest.approx(expected, abs=1e-8)


def test_power_of_the_textbook_case():
    # G*Power's matched-pairs example: dz = 0.5, n = 34, two-sided 0.05 -> power 0.8078
    assert paired_power(0.5, 1.0, 34) == pytest.approx(0.8078, abs=5e-5)


@pytest.mark.parametrize("num", [2, 3, 10, 34])
def test_detectable_difference_has_the_power_it_claims_and_scales_with_sd(num):
    found = minimum_detectable_difference(0.02, num)
    assert paired_power(found, 0.02, num) == pytest.approx(0.8, abs=1e-7)
    assert minimum_detectable_difference(0.04, num) == pytest.approx(2 * found)


def test_detectable_difference_needs_two_pairs():
    assert math.isnan(minimum_detectable_difference(0.1, 1))
    assert math.isnan(minimum_detectable_difference(math.nan, 3))


def test_holm_by_hand():
    # sorted 0.01 * 4, 0.02 * 3, 0.03 * 2, 0.5 * 1 -> 0.04, 0.06, 0.06, 0.5
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


def test_holm_keeps_and_does_not_count_missing_tests():
    # two tests made: 0.01 * 2, 0.2 * 1
    assert holm([0.01, math.nan, 0.2]) == pytest.approx([0.02, math.nan, 0.2], nan_ok=True)


def test_holm_caps_at_one():
    assert holm([0.6, 0.7]).tolist() == [1.0, 1.0]


def test_area_by_hand():
    # (0 + 1) / 2 * 0.5 + (1 + 1) / 2 * 0.5 = 0.75, whatever the unit of x
    assert area_under_curve([0, 0.5, 1], [0, 1, 1]) == pytest.approx(0.75)
    assert area_under_curve([0, 5e11, 1e12], [0, 1, 1]) == pytest.approx(0.75)


def test_area_needs_an_increasing_axis():
    with pytest.raises(ValueError, match="increasing"):
        area_under_curve([0, 0], [1, 1])
    with pytest.raises(ValueError, match="two or more"):
        area_under_curve([0], [1])


def test_carry_forward_never_looks_ahead():
    assert carry_forward([10, 20, 20, 30], [1, 2, 3, 4], [9, 10, 19.9, 20, 35]) == pytest.approx(
        [math.nan, 1, 1, 3, 4], nan_ok=True
    )


def test_carry_forward_refuses_a_falling_axis():
    with pytest.raises(ValueError, match="not decreasing"):
        carry_forward([2, 1], [0, 0], [1])


@pytest.mark.parametrize("num", [1, 3, 4, 6, 11, 24])
def test_interquartile_mean_is_scipys_trimmed_mean(num):
    values = np.random.default_rng(num).normal(size=num)
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_probability_of_improvement_is_mann_whitneys_u():
    first, second = np.array([1.0, 2, 2, 5]), np.array([2.0, 0, 3])
    expected = stats.mannwhitneyu(first, second).statistic / 12
    assert probability_of_improvement([first], [second]) == pytest.approx(expected)
    # the mean of two tasks: (expected + 1) / 2
    assert probability_of_improvement([first, [9]], [second, [1]]) == pytest.approx((expected + 1) / 2)


def test_bootstrap_equals_the_exhaustive_quantiles_of_two_runs():
    # one stratum {0, 1}: means 0, 1/2, 1 with chances 1/4, 1/2, 1/4, so the 95% interval is [0, 1] and the 40% one 1/2
    def mean(strata):
        return np.mean(strata[0], axis=-1)

    assert stratified_bootstrap([[0, 1]], mean, np.random.default_rng(0)) == (0.0, 1.0)
    assert stratified_bootstrap([[0, 1]], mean, np.random.default_rng(0), level=0.4) == (0.5, 0.5)


def test_bootstrap_resamples_inside_strata():
    # constant strata stay what they are: resampling across them would mix 0 and 1
    ends = stratified_bootstrap([[0, 0], [1, 1]], lambda x: x[1].mean(-1) - x[0].mean(-1), np.random.default_rng(0))
    assert ends == (1.0, 1.0)


def test_bootstrap_of_single_runs_is_missing():
    ends = stratified_bootstrap([[0.1, 0.2], [0.3]], lambda x: np.zeros(len(x[0])), np.random.default_rng(0))
    assert all(math.isnan(end) for end in ends)


def test_no_statistic_touches_the_global_generator():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    sign_flip(np.ones(20), np.random.default_rng(0), samples=50)
    stratified_bootstrap([[0, 1]], lambda x: np.zeros(len(x[0])), np.random.default_rng(0), samples=5)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert statistics.EXACT_LIMIT == 14
