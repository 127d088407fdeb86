"""Metrics on a hand-computed 2 x 3 batch (spec U33), and what must not change them."""

import dataclasses
import math

import pytest
import torch

from harness.engine.accumulators import Histogram, Mean, Ratios
from harness.engine.metrics import LOG_RATIO_EDGES, WEIGHT_EDGES, StepMetrics, Tokens

NAN = math.nan
# Weights are those of sequence_mean: 1 / (2 rows * tokens of the row).
BATCH = Tokens(
    mask=torch.tensor([[True, True, True], [True, True, False]]),
    log_ratio=torch.tensor([[0.2, -0.3, 0.4], [-0.5, 0.1, NAN]]),
    advantages=torch.tensor([[1.0, 1.0, -2.0], [-2.0, 0.0, NAN]]),
    policy_gradient=torch.tensor([[-0.2, 0.0, 1 / 3], [0.0, 0.0, NAN]]),
    gradient=torch.tensor([[-0.2, 0.0, 1 / 3], [0.15, -0.25, NAN]]),
    weights=torch.tensor([[1 / 6, 1 / 6, 1 / 6], [1 / 4, 1 / 4, NAN]]),
    clipped=torch.tensor([[True, True, True], [True, False, True]]),
    segment=torch.tensor([[0, 1, 1], [0, 0, 2]]),
)
EMPTY = dataclasses.replace(BATCH, mask=torch.zeros(2, 3, dtype=torch.bool))


def changed(batch=BATCH, **fields):
    return dataclasses.replace(batch, **fields)


def each(change, batch=BATCH):
    """Return ``batch`` with ``change`` made to every tensor."""
    values = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch)}
    return Tokens(**{name: None if value is None else change(value) for name, value in values.items()})


def logged(*batches):
    metrics = StepMetrics()
    for batch in batches:
        metrics.add_tokens(batch)
    return metrics.summary()


def places(histogram):
    assert len(histogram["counts"]) == len(histogram["edges"]) - 1
    return {i: n for i, n in enumerate(histogram["counts"]) if n}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, float):
            assert found[name] == pytest.approx(value, rel=1e-14, abs=0), name
        else:
            assert found[name] == value, name


def test_clip_fractions_by_hand():
    found = logged(BATCH)
    # clipped: (A, log ratio) = (1, 0.2), (1, -0.3), (-2, 0.4) and (-2, -0.5); 5 tokens
    assert found["clip_frac"] == 4 / 5
    for side in ("pos_high", "pos_low", "neg_high", "neg_low"):
        assert found[f"clip_{side}_frac"] == 1 / 5


def test_clip_fractions_by_response_by_hand():
    found = logged(BATCH)
    # summed log-ratios: 0.3 (high), -0.4 (low); clipped 3 of 3 tokens (2 with A > 0), and 1 of 2 (A < 0)
    assert found["clip_seq_frac"] == pytest.approx((1 + 1 / 2) / 2)
    assert found["clip_seq_pos_high_frac"] == pytest.approx((2 / 3 + 0) / 2)
    assert found["clip_seq_neg_high_frac"] == pytest.approx((1 / 3 + 0) / 2)
    assert found["clip_seq_neg_low_frac"] == pytest.approx((0 + 1 / 2) / 2)
    assert found["clip_seq_pos_low_frac"] == 0


def test_a_clipped_token_with_ratio_one_or_without_an_advantage_is_on_no_side():
    found = logged(
        changed(
            log_ratio=torch.tensor([[0.0, -0.3, 0.3], [-0.5, 0.6, NAN]]), clipped=torch.ones(2, 3, dtype=torch.bool)
        )
    )
    # (0, 0) has ratio 1, (1, 1) no advantage
    assert found["clip_frac"] == 1
    assert [found[f"clip_{s}_frac"] for s in ("pos_high", "pos_low", "neg_high", "neg_low")] == [0, 0.2, 0.2, 0.2]
    # row 0: -0.3 + 0.3 is 0; row 1: 0.1, (1, 0) with A < 0 is half of it
    assert found["clip_seq_frac"] == 1
    sides = [found[f"clip_seq_{s}_frac"] for s in ("pos_high", "pos_low", "neg_high", "neg_low")]
    assert sides == [0, 0, 1 / 4, 0]


def test_alive_and_dead_by_hand():
    found = logged(BATCH)
    assert found["alive_frac"] == 2 / 5  # of all tokens: (0, 0) and (0, 2); a penalty does not count
    assert found["dead_frac"] == 2 / 4  # of the four with an advantage: (0, 1) and (1, 0)


def test_effective_token_weights_by_hand():
    found = logged(BATCH)
    # c = -gradient / weight: 1.2, 0, -2 and -0.6, 1
    assert found["c_abs_mean"] == pytest.approx((1.2 + 0 + 2 + 0.6 + 1) / 5, rel=1e-6)
    # c / A: 1.2, 0, 1, 0.3 and none for the token without an advantage; bins of 0.1 from -1.05
    assert places(found["c_per_advantage_hist"]) == {22: 1, 10: 1, 20: 1, 13: 1}
    assert len(WEIGHT_EDGES) == 42


def test_the_outer_bins_of_the_weights_hold_the_rest():
    found = logged(changed(gradient=torch.tensor([[-9.0, 9.0, 1 / 3], [1 / 2, 0.0, NAN]])))
    assert places(found["c_per_advantage_hist"]) == {0: 1, 20: 2, 40: 1}


def test_a_token_without_an_aggregation_weight_has_no_effective_weight():
    found = logged(changed(weights=torch.tensor([[1 / 6, 1 / 6, 0.0], [1 / 4, 1 / 4, NAN]])))
    assert found["c_abs_mean"] == pytest.approx((1.2 + 0 + 0.6 + 1) / 4, rel=1e-6)
    assert sum(found["c_per_advantage_hist"]["counts"]) == 3
    assert logged(changed(weights=torch.zeros(2, 3)))["c_abs_mean"] is None


def test_extremes_of_ratios_by_hand():
    found = logged(BATCH)
    extremes = {
        "ratio": (-0.5, 0.4),
        "ratio_segment": (-0.4, 0.2),  # 0.2; -0.3 + 0.4; -0.5 + 0.1
        "ratio_seq": (-0.4, 0.3),  # 0.2 - 0.3 + 0.4; -0.5 + 0.1
    }
    for name, (low, high) in extremes.items():
        assert found[f"{name}_min"] == pytest.approx(math.exp(low), rel=1e-6)
        assert found[f"{name}_max"] == pytest.approx(math.exp(high), rel=1e-6)


def test_effective_sample_sizes_by_hand():
    ratios = torch.tensor([[2.0, 0.5, 3.0], [0.25, 4.0, NAN]])
    found = logged(changed(log_ratio=ratios.log()))
    # tokens 2, 0.5, 3, 0.25, 4: 9.75^2 / (5 * 29.3125)
    assert found["ess_token_frac"] == pytest.approx(95.0625 / 146.5625, rel=1e-6)
    # segments 2, 1.5, 1: 4.5^2 / (3 * 7.25)
    assert found["ess_segment_frac"] == pytest.approx(20.25 / 21.75, rel=1e-6)
    # responses 3, 1: 4^2 / (2 * 10)
    assert found["ess_seq_frac"] == pytest.approx(0.8, rel=1e-6)


def test_an_objective_without_segments_gets_pieces_of_16_tokens():
    log_ratio = torch.zeros(1, 20)
    log_ratio[0, [3, 17]] = torch.tensor([3.0, 0.5]).log()
    one = {"mask": torch.ones(1, 20, dtype=torch.bool), "log_ratio": log_ratio, "segment": None}
    rest = {name: torch.ones(1, 20) for name in ("advantages", "policy_gradient", "gradient", "weights")}
    found = logged(Tokens(**one, **rest))
    assert found["ratio_segment_max"] == pytest.approx(3)
    assert found["ratio_segment_min"] == pytest.approx(0.5)
    assert found["ess_segment_frac"] == pytest.approx(3.5**2 / (2 * 9.25))
    assert found["ratio_seq_min"] == found["ratio_seq_max"] == pytest.approx(1.5)


def test_ratios_far_out_stay_finite():
    found = logged(changed(log_ratio=torch.tensor([[20.0, 20.0, 20.0], [-20.0, -20.0, NAN]])))
    assert found["ratio_seq_max"] == found["ratio_segment_max"] == pytest.approx(math.exp(20))
    assert found["ratio_seq_min"] == pytest.approx(math.exp(-20))
    assert found["ess_seq_frac"] == pytest.approx(1 / 2)  # one response has all the weight


def test_equal_ratios_have_the_whole_sample_size():
    found = logged(*[changed(log_ratio=torch.full((2, 3), 0.1))] * 3)
    assert found["ess_token_frac"] == pytest.approx(1, rel=1e-14)
    assert found["ess_token_frac"] <= 1


def test_the_histogram_of_ratios_by_hand():
    counts = logged(changed(log_ratio=torch.tensor([[0.02, -0.31, 9.0], [-2.0, 0.0, NAN]])))["ratio_hist"]
    # bins of 0.05 from -1: -2 lies below, 9 above; -0.31 in (-0.35, -0.30], 0 in (-0.05, 0], 0.02 in (0, 0.05]
    assert places(counts) == {0: 1, 13: 1, 19: 1, 20: 1, 39: 1}
    assert len(LOG_RATIO_EDGES) == 41


@pytest.mark.parametrize("fill", [NAN, math.inf, 0.0])
def test_padding_changes_nothing(fill):
    def pad(tensor):
        value = fill if tensor.is_floating_point() else 0 if tensor.dtype == torch.bool else 4
        return torch.nn.functional.pad(tensor, (0, 5), value=value)

    def add_row(tensor):
        return torch.cat([tensor, torch.full_like(tensor[:1], fill if tensor.is_floating_point() else 0)])

    assert_same(logged(each(pad)), logged(BATCH))
    assert_same(logged(each(add_row)), logged(BATCH))


def test_neither_the_cut_into_micro_batches_nor_the_order_of_rows_matters():
    other = changed(log_ratio=BATCH.log_ratio * 3, clipped=~BATCH.clipped, segment=torch.zeros_like(BATCH.segment))
    rows = [each(lambda x, i=i: x[i : i + 1], batch) for batch in (BATCH, other) for i in (1, 0)]
    assert_same(logged(*rows), logged(BATCH, other))
    assert_same(logged(other, BATCH), logged(BATCH, other))
    assert_same(logged(each(lambda x: x.flip(0)), EMPTY, other), logged(BATCH, other))
    both = each(lambda x: torch.cat([x, x]), BATCH)
    assert_same(logged(both), logged(BATCH, BATCH))


def test_a_micro_batch_weighs_by_its_tokens_and_responses():
    first, second = (each(lambda x, i=i: x[i : i + 1]) for i in (0, 1))
    assert [logged(part)["clip_frac"] for part in (first, second)] == [1, 1 / 2]
    assert logged(first, second)["clip_frac"] == 4 / 5
    assert logged(first, second)["clip_seq_frac"] == pytest.approx(3 / 4)


def test_an_objective_that_reports_no_clip_has_no_clip_fraction():
    found = logged(changed(clipped=None))
    names = [name for name in found if name.startswith("clip_") and not name.endswith("_hist")]
    assert len(names) == 11
    assert all(found[name] is None for name in names)
    assert found["alive_frac"] == 2 / 5


def test_what_was_never_seen_is_missing():
    found = logged(EMPTY)
    assert_same(found, StepMetrics().summary())
    counts = {name: found.pop(name) for name in list(found) if name.endswith("_hist")}
    assert not any(places(counts[name]) for name in ("ratio_hist", "c_per_advantage_hist"))
    assert all(value is None for value in found.values())
    assert {"ratio_min", "ratio_seq_max", "ess_segment_frac", "clip_frac", "alive_frac", "value_loss"} < found.keys()


def test_without_an_advantage_nothing_is_dead_and_no_weight_is_shown():
    found = logged(changed(advantages=torch.zeros(2, 3)))
    assert found["dead_frac"] is None
    assert not places(found["c_per_advantage_hist"])
    assert found["c_abs_mean"] is not None


def test_means_are_weighted():
    mean = Mean()
    assert mean.value() is None
    mean.add(6.0, 3)
    mean.add(0.0, 1)
    assert mean.value() == 1.5
    mean.add(NAN)
    assert mean.value() is None


def test_a_histogram_counts_everything_once():
    histogram = Histogram((0.0, 1.0, 2.0, 3.0))
    histogram.add(torch.tensor([-5.0, 0.5, 1.0, 1.5, 2.5, 99.0], dtype=torch.float64))
    histogram.add(torch.tensor([], dtype=torch.float64))
    assert histogram.value() == {"edges": [0.0, 1.0, 2.0, 3.0], "counts": [3, 1, 2]}


def test_ratios_of_nothing_are_missing():
    ratios = Ratios()
    ratios.add(torch.tensor([], dtype=torch.float64))
    assert ratios.value() == (None, None, None)
