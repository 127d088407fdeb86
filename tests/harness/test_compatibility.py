"""Runs whose parts contradict each other are refused in one line; what a run needs follows from its parts."""

import pytest

from harness.compatibility import check_run, exact_fields, requirements
from harness.config.errors import UserError
from harness.config.loading import apply_overrides, resolve_run
from harness.engine.identity import identity

BASE = {"budget": {"axis": "updates", "amount": 4}}


def config(**tables):
    return resolve_run(apply_overrides(BASE, tables))


ROUTED = {"policy": {"name": "tiny-moe"}, "engine": {"routing_replay": True}}
REFUSED = [
    ({"objective": {"name": "grpo"}, "update": {"minibatches": 1}}, "wants several updates a rollout"),
    ({"objective": {"name": "opo"}}, "wants one updates a rollout"),
    ({"objective": {"name": "dapo"}}, "say how often with rollout.max_resamples"),
    ({"objective": {"name": "reg_grpo"}, "rollout": {"group_size": 2}}, "needs rollout.group_size >= 3"),
    ({"objective": {"name": "kdrl"}}, "learns from a teacher: name one with teacher.name"),
    ({"trust_region": {"name": "mask_segment", "segments": "objective"}}, "reads segment of the objective"),
    ({"objective": {"name": "remax"}, "shaping": {"name": "bingo"}}, "greedy rewards, which shaping.name leaves"),
    (
        {"objective": {"name": "remax"}, "shaping": {"length_penalty": "kimi", "length_coef": 1.0}},
        "greedy rewards, which shaping.length_penalty = 'kimi' leaves",
    ),
    (
        {"objective": {"name": "dapo"}, "rollout": {"max_resamples": 1}, "shaping": {"overlong_buffer": 0.1}},
        "set objective.overlong_buffer or shaping.overlong_buffer to 0",
    ),
    (
        {
            "objective": {"name": "tppo"},
            "rollout": {"window_tokens": 13},
            "shaping": {"length_penalty": "kimi", "length_coef": 1.0},
        },
        "set rollout.window_tokens to 0, or take 'per_token'",
    ),
    (
        {"objective": {"name": "tppo"}, "rollout": {"window_tokens": 13}, "prompts": {"max_pass_rate": 0.9}},
        "need groups that end together: set rollout.window_tokens to 0",
    ),
    (
        {"prompts": {"order": "easy_to_hard"}, "budget": {"axis": "seconds"}},
        "a clock would choose the prompts: take flops, tokens or updates",
    ),
    ({"prompts": {"difficulties": ["9 operands"]}}, "the labels are '2 operands', '3 operands', '4 operands'"),
    (
        {"prompts": {"order": "easy_to_hard", "difficulty_order": ["4 operands", "2 operands"]}},
        "leaves out '3 operands'",
    ),
    (
        {"prompts": {"order": "easy_to_hard"}, "task": {"name": "arithmetic", "operands": [3]}},
        "the prompts have only '3 operands'",
    ),
    (
        {"objective": {"name": "opo"}, "update": {"minibatches": 1}, "replay": {"strategy": "all"}},
        "valid on-policy only",
    ),
    ({"objective": {"name": "cispo", "dual_clip": 3.0}}, "has no setting 'dual_clip'"),
    ({"objective": {"name": "gspo", "weights": "token_mean"}}, "has no setting 'weights'"),
    ({"trust_region": {"name": "dual", "estimator": "k1"}}, "can be negative"),
    ({"objective": {"name": "gspo_subsequence", "combine": "mean", "outer_high": 0.5}}, "is about a product"),
    ({"objective": {"name": "gspo_subsequence", "dual_clip": 2.0}}, "dual_clip is for clip_mode = 'one_sided'"),
    ({"engine": {"routing_replay": True}}, "is for mixtures of experts; policy 'tiny' is dense"),
    ({**ROUTED, "replay": {"strategy": "all"}}, "set replay.strategy to none, or engine.routing_replay to false"),
    (
        {**ROUTED, "objective": {"name": "tppo"}, "rollout": {"window_tokens": 13}},
        "set rollout.window_tokens to 0, or engine.routing_replay to false",
    ),
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


@pytest.mark.parametrize(
    "tables",
    [
        {"shaping": {"format_coef": 1.0, "length_penalty": "kimi", "length_coef": 0.5, "overlong_buffer": 0.2}},
        {"shaping": {"name": "bingo", "format_coef": 1.0, "overlong_filter": True}},
        {"shaping": {"overlong_buffer": 0.2}, "objective": {"name": "remax"}},
        {
            "shaping": {"overlong_buffer": 0.2},
            "objective": {"name": "dapo", "overlong_buffer": 0.0},
            "rollout": {"max_resamples": 1},
        },
        {
            "shaping": {"length_penalty": "per_token", "length_coef": 0.1, "overlong_filter": True},
            "objective": {"name": "tppo"},
            "rollout": {"window_tokens": 13},
        },
        {"prompts": {"difficulties": ["2 operands"], "max_pass_rate": 0.9}, "budget": {"axis": "seconds"}},
        {"prompts": {"order": "easy_to_hard", "difficulties": ["4 operands", "2 operands"], "min_pass_rate": 0.1}},
        {**ROUTED, "objective": {"name": "ppo"}, "teacher": {"name": "tiny"}},
    ],
)
def test_parts_that_go_together_are_allowed(tables):
    assert check_run(config(**tables))["objective"]


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
        {"shaping": {"length_coef": 1.0, "free_tokens": 3, "overlong_coef": 2.0}},
        {"prompts": {"difficulty_order": ["2 operands"], "pacing": "linear", "start_share": 0.5, "revisit": 9}},
        {"rollout": {"max_infra_frac": 0.5}},
    ):
        assert identity(config(**tables)) == plain
    assert plain["config"]["shaping"] == {"name": "none"}
    assert "prompts" not in plain["config"]
    assert identity(config(replay={"strategy": "all"})) != plain
    assert identity(config(correction={"level": "token"})) != plain
    for tables in (
        {"shaping": {"format_coef": 1.0}},
        {"shaping": {"overlong_filter": True}},
        {"shaping": {"overlong_buffer": 0.1}},
        {"prompts": {"difficulties": ["2 operands"]}},
        {"prompts": {"max_pass_rate": 0.9}},
    ):
        assert identity(config(**tables)) != plain
    free = identity(config(**{**ROUTED, "engine": {"routing_replay": False}}))
    assert "routing_replay" not in free["config"]["engine"]
    assert identity(config(**ROUTED))["config"]["engine"] == {**free["config"]["engine"], "routing_replay": True}


@pytest.mark.parametrize(
    ("table", "base", "change"),
    [
        ("shaping", {"length_penalty": "per_token", "length_coef": 0.1}, {"free_tokens": 3}),
        ("shaping", {"overlong_buffer": 0.1}, {"overlong_coef": 2.0}),
        ("shaping", {"name": "bingo"}, {"threshold": 0.25}),
        ("prompts", {"order": "easy_to_hard"}, {"pacing": "linear"}),
        ("prompts", {"order": "easy_to_hard"}, {"open_at": 0.5}),
        ("prompts", {"max_pass_rate": 0.9}, {"revisit": 2}),
    ],
)
def test_settings_of_a_part_that_is_used_are_in_the_identity(table, base, change):
    assert identity(config(**{table: base})) != identity(config(**{table: {**base, **change}}))
