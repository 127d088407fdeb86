"""What each objective asks of its settings and of the engine. A new number among the settings needs a row here."""

import math
from dataclasses import fields
from typing import Any

import pytest

import objectives

INF = math.inf
# field: (values to refuse, values at the very ends of what is allowed)
RANGES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "alpha": ((-0.1,), (0,)),
    "band_high": ((-0.1,), (0, INF)),
    "band_low": ((-0.1,), (0, INF)),
    "beta_decay": ((-0.1,), (0,)),
    "beta_end": ((-0.1,), (0,)),
    "beta_start": ((-0.1,), (0,)),
    "cap": ((0.9,), (1, INF)),
    "clip_filter_max": ((0.9, INF), (1,)),
    "clip_high": ((-0.1,), (0, INF)),
    "clip_low": ((-0.1, 1.1), (0, 1)),
    "cov_high": ((0.9,), (1, INF)),  # cov_low is 1
    "cov_low": ((5.1,), (5, -INF)),  # cov_high is 5
    "drift_max": ((-0.1,), (0, INF)),
    "dual_clip": ((0.9, 0, -1), (3.0,)),
    "entropy_coef": ((-0.1,), (0,)),
    "entropy_threshold": ((-0.1,), (0,)),
    "fraction": ((-0.1, 1.1), (0, 1)),
    "gamma": ((-0.1, 1.1), (0, 1)),
    "k_negative": ((-0.1,), (0,)),
    "k_positive": ((-0.1,), (0,)),
    "kl_coef": ((-0.1,), (0,)),
    "kl_high": ((-0.1,), (0, INF)),
    "kl_low": ((-0.1,), (0, INF)),
    "lam": ((-0.1, 1.1), (0, 1)),
    "lam_negative": ((-0.1,), (0,)),
    "lam_positive": ((-0.1,), (0,)),
    "log_clip_high": ((-0.1,), (0, INF)),
    "log_clip_low": ((-0.1,), (0, INF)),
    "max_segment_tokens": ((0,), (1,)),
    "min_segment_tokens": ((0,), (1,)),
    "num_segments": ((0,), (1,)),
    "outer_high": ((-0.1,), (0, INF)),
    "outer_low": ((-0.1, 1.1), (0, 1)),
    "overlong_buffer": ((-0.1, 1.1), (0, 1)),
    "replay_coef": ((-0.1,), (0,)),
    "segment_tokens": ((0,), (1,)),
    "std_eps": ((-0.1,), (0,)),
    "tau": ((-0.1,), (0,)),
    "tau_negative": ((0, -1, INF), (0.1,)),
    "tau_positive": ((0, -1, INF), (0.1,)),
    "tv_high": ((-0.1,), (0, INF)),
    "tv_low": ((-0.1,), (0, INF)),
    "value_clip": ((0, -1, INF), (0.1,)),
}
OF_ONE: dict[tuple[str, str], tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    ("reg_grpo", "std_eps"): ((0, -0.1, INF), (1e-9,)),
    ("topr", "baseline"): ((-1.1, 1.1), (-1, 1)),
    ("ppo", "dual_clip"): ((0.9, 0, -1, INF), (1.1,)),
}
WITH: dict[tuple[str, str], dict[str, Any]] = {
    ("gspo_subsequence", "dual_clip"): {"clip_mode": "one_sided"},
    ("gspo_subsequence", "segment_tokens"): {"segment_rule": "fixed_length"},
    ("gspo_subsequence", "entropy_threshold"): {"segment_rule": "entropy"},
    ("gspo_subsequence", "min_segment_tokens"): {"segment_rule": "delimiter"},
    ("gspo_subsequence", "max_segment_tokens"): {"segment_rule": "oracle"},
}
NUMBERS = [
    (name, item.name)
    for name, cls in sorted(objectives.classes().items())
    for item in fields(cls)  # pyright: ignore
    if any(kind in str(item.type) for kind in ("float", "int"))
]


@pytest.mark.parametrize(("name", "field"), NUMBERS)
def test_a_number_out_of_range_is_refused_and_one_at_the_end_is_not(name: str, field: str) -> None:
    refused, allowed = OF_ONE.get((name, field)) or RANGES[field]
    given = WITH.get((name, field), {})
    for value in (*refused, *((math.nan,) if all(isinstance(x, float | int) for x in allowed) else ())):
        with pytest.raises(ValueError, match=rf"objective '{name}'.*\b(cov_high|{field})\b"):
            objectives.make(name, **given, **{field: value})
    for value in allowed:
        assert getattr(objectives.make(name, **given, **{field: value}), field) == value


NOTHING: frozenset[str] = frozenset()
# name: (updates_per_rollout, min_group_size, requires)
ASKED: dict[str, tuple[str, int, frozenset[str]]] = {
    "aspo": ("several", 2, NOTHING),
    "cispo": ("several", 2, NOTHING),
    "clip_cov": ("several", 2, frozenset({"step_logprobs", "step_uniforms"})),
    "cpgd": ("several", 2, NOTHING),
    "dapo": ("several", 2, NOTHING),
    "dppo_kl": ("several", 2, NOTHING),
    "dppo_tv": ("several", 2, NOTHING),
    "dr_grpo": ("several", 2, NOTHING),
    "fspo": ("several", 2, NOTHING),
    "gmpo": ("several", 2, NOTHING),
    "grpo": ("several", 2, NOTHING),
    "gspo": ("several", 2, NOTHING),
    "gspo_subsequence": ("several", 2, NOTHING),
    "gspo_token": ("several", 2, NOTHING),
    "kdrl": ("any", 2, frozenset({"teacher_logprobs", "correct"})),
    "kimi": ("several", 2, NOTHING),
    "kl_cov": ("several", 2, frozenset({"step_logprobs"})),
    "lite_ppo": ("several", 2, NOTHING),
    "luspo": ("several", 2, NOTHING),
    "opo": ("one", 2, NOTHING),
    "ppo": ("several", 1, frozenset({"values", "old_values", "entropy"})),
    "reg_grpo": ("several", 3, frozenset({"step_logprobs"})),
    "reinforce": ("any", 1, NOTHING),
    "reinforce_pp": ("several", 1, frozenset({"ref_logprobs"})),
    "reinforce_pp_baseline": ("several", 2, NOTHING),
    "remax": ("any", 1, frozenset({"greedy_rewards"})),
    "repo": ("several", 2, frozenset({"prompt"})),
    "rloo": ("any", 2, NOTHING),
    "sapo": ("several", 2, NOTHING),
    "topr": ("any", 1, NOTHING),
    "tppo": ("several", 1, frozenset({"values", "old_values", "window_mask"})),
    "vespo": ("several", 2, NOTHING),
}


def test_what_each_objective_asks_of_the_engine() -> None:
    found = {name: objectives.make(name) for name in objectives.names()}
    assert {name: (one.updates_per_rollout, one.min_group_size, one.requires) for name, one in found.items()} == ASKED


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"segment_tokens": 8}, "segment_tokens = 8 is not read with segment_rule = 'fixed_k'"),
        ({"segment_rule": "fixed_length", "num_segments": 2}, "num_segments = 2 is not read"),
        ({"segment_rule": "fixed_length", "min_segment_tokens": 2}, "min_segment_tokens = 2 is not read"),
        ({"segment_rule": "random", "entropy_threshold": 2.0}, "entropy_threshold = 2.0 is not read"),
        ({"advantages": "rloo", "std_eps": 0.1}, "std_eps = 0.1 is not read with advantages = 'rloo'"),
    ],
)
def test_a_setting_that_nothing_would_read_is_refused(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        objectives.make("gspo_subsequence", **settings)
