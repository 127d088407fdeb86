"""Metrics on a hand-computed 2 x 3 batch."""

import math

import pytest
import torch

from harness.engine.metrics import LOG_RATIO_EDGES, Mean, StepMetrics

MASK = torch.tensor([[True, True, True], [True, False, False]])
LOG_RATIO = torch.tensor([[0.02, -0.31, 0.5], [-2.0, 9.0, 9.0]])
ADVANTAGES = torch.tensor([[1.0, 1.0, 1.0], [0.0, 5.0, 5.0]])
GRADIENT = torch.tensor([[0.3, 0.0, 0.0], [0.0, 0.0, 0.0]])
CLIPPED = torch.tensor([[False, True, True], [True, True, True]])


def filled(width=3):
    def pad(tensor):
        return torch.nn.functional.pad(tensor, (0, width - 3), value=float("nan") if tensor.is_floating_point() else 0)

    metrics = StepMetrics()
    metrics.add_tokens(pad(MASK), pad(LOG_RATIO), pad(ADVANTAGES), pad(GRADIENT), pad(CLIPPED))
    return metrics


def test_a_batch_by_hand():
    summary = filled().summary()
    assert summary["clip_frac"] == 3 / 4
    assert summary["dead_frac"] == 2 / 3  # of the three tokens whose advantage is not 0
    assert summary["ratio_min"] == pytest.approx(math.exp(-2.0))
    assert summary["ratio_max"] == pytest.approx(math.exp(0.5))


def test_the_histogram_by_hand():
    counts = filled().summary()["ratio_hist"]["counts"]
    assert len(counts) == len(LOG_RATIO_EDGES) - 1 == 40
    places = {i: n for i, n in enumerate(counts) if n}
    # bins of 0.05 from -1: -2 lies below and goes to the first; -0.31 in [-0.35, -0.30); 0.02 in [0, 0.05); 0.5
    # is an edge, which float32 may write on either side
    assert places.pop(0) == 1
    assert places.pop(13) == 1
    assert places.pop(20) == 1
    assert sum(places.values()) == 1
    assert places.keys() <= {29, 30}


def test_a_padded_batch_gives_the_same_numbers():
    assert filled(7).summary() == filled().summary()


def test_the_cut_into_micro_batches_does_not_matter():
    parts = StepMetrics()
    for row in (slice(0, 1), slice(1, 2)):
        parts.add_tokens(MASK[row], LOG_RATIO[row], ADVANTAGES[row], GRADIENT[row], CLIPPED[row])
    assert parts.summary() == filled().summary()


def test_an_objective_that_reports_no_clip_has_no_clip_fraction():
    metrics = StepMetrics()
    metrics.add_tokens(MASK, LOG_RATIO, ADVANTAGES, GRADIENT, None)
    assert "clip_frac" not in metrics.summary()


def test_what_was_never_seen_is_missing():
    metrics = StepMetrics()
    metrics.add_tokens(torch.zeros_like(MASK), LOG_RATIO, ADVANTAGES, GRADIENT, CLIPPED)
    summary = metrics.summary()
    assert summary["ratio_min"] is summary["ratio_max"] is None
    assert "clip_frac" not in summary
    metrics.add_tokens(MASK, LOG_RATIO, torch.zeros_like(ADVANTAGES), GRADIENT, CLIPPED)
    assert metrics.summary()["dead_frac"] is None


def test_means_are_weighted():
    mean = Mean()
    assert mean.value() is None
    mean.add(6.0, 3)
    mean.add(0.0, 1)
    assert mean.value() == 1.5
    mean.add(math.nan)
    assert mean.value() is None
