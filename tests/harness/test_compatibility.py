"""Runs whose parts contradict each other are refused in one line; what a run needs follows from its parts."""

import pytest

from harness.compatibility import check_run, exact_fields, requirements
from harness.config.errors import UserError
from harness.config.loading import apply_overrides, resolve_run
from harness.engine.identity import identity

BASE = {"budget": {"axis": "updates", "amount": 4}}


def config(**tables):
    return resolve_run(apply_overrides(BASE, tables))


REFUSED = [
    ({"objective": {"name": "grpo"}, "update": {"minibatches": 1}}, "wants several updates a rollout"),
    ({"objective": {"name": "opo"}}, "wants one updates a rollout"),
    ({"objective": {"name": "dapo"}}, "say how often with rollout.max_resamples"),
    ({"objective": {"name": "reg_grpo"}, "rollout": {"group_size": 2}}, "needs rollout.group_size >= 3"),
    ({"objective": {"name": "kdrl"}}, "learns from a teacher: name one with teacher.name"),
    ({"trust_region": {"name": "mask_segment", "segments": "objective"}}, "reads segment of the objective"),
    ({"objective": {"name": "remax"}, "shaping": {"name": "bingo"}}, "compares with greedy rewards"),
    (
        {"objective": {"name": "opo"}, "update": {"minibatches": 1}, "replay": {"strategy": "all"}},
        "valid on-policy only",
    ),
    ({"objective": {"name": "cispo", "dual_clip": 3.0}}, "has no setting 'dual_clip'"),
    ({"objective": {"name": "gspo", "weights": "token_mean"}}, "has no setting 'weights'"),
    ({"trust_region": {"name": "dual", "estimator": "k1"}}, "can be negative"),
    ({"objective": {"name": "gspo_subsequence", "combine": "mean", "outer_high": 0.5}}, "is about a product"),
    ({"objective": {"name": "gspo_subsequence", "dual_clip": 2.0}}, "dual_clip is for clip_mode = 'one_sided'"),
]


@pytest.mark.parametrize(("tables", "reason"), REFUSED)
def test_contradictions_are_refused_with_the_reason(tables, reason):
    with pytest.raises(UserError) as refusal:
        check_run(config(**tables))
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_segments_of_an_objective_that_cuts_them_are_allowed():
    region = {"name": "mask_segment", "segments": "objective"}
    assert check_run(config(objective={"name": "gspo_subsequence"}, trust_region=region))["delta_unit"] == ""


@pytest.mark.parametrize(
    ("region", "unit"),
    [
        ({"name": "dual"}, "per_sequence"),
        ({"name": "early_stop"}, "per_token"),
        ({"name": "backtrack", "direction": "reverse"}, ""),
        ({"name": "adaptive", "anchor": "reference"}, ""),
        ({"name": "mask_sequence"}, ""),
        ({"name": "projection"}, ""),
    ],
)
def test_a_bound_has_a_unit_only_where_it_bounds_the_divergence_that_is_drawn(region, unit):
    assert check_run(config(trust_region=region))["delta_unit"] == unit


def test_what_is_made_from_the_reference_needs_it():
    exact = {"name": "fixed_penalty", "estimator": "exact", "anchor": "reference", "direction": "reverse"}
    assert requirements(config(trust_region=exact)) == {"exact_kl_new_ref", "ref_logprobs"}
    assert requirements(config(shaping={"name": "bingo"})) == {"ref_logprobs"}
    assert exact_fields(requirements(config(trust_region={"name": "projection"}))) == ["projection_gap"]


def test_tables_that_a_run_does_not_use_are_not_in_its_identity():
    plain = identity(config())
    for tables in (
        {"teacher": {"name": "tiny"}},
        {"replay": {"num_replays": 3}},
        {"correction": {"high": 5.0}},
        {"shaping": {"right_coef": 1.0}},
    ):
        assert identity(config(**tables)) == plain
    assert identity(config(replay={"strategy": "all"})) != plain
    assert identity(config(correction={"level": "token"})) != plain
