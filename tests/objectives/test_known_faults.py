"""Faults that others have had (spec/known-faults.md, first section), for every objective that could have them."""

import typing
from dataclasses import fields, replace
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from torch import Tensor

import objectives
from objectives import Batch, Objective, Step, TokenLoss
from objectives.contract import run
from objectives.reference_engine import Case, far, one_step, random_case
from tests.objectives.made import batch_of, step_of, without

VARIANTS = [
    (name, preset) for name, cls in sorted(objectives.classes().items()) for preset in (None, *sorted(cls.presets))
]
# Weights of a token in rows of 1, 100 and 10 tokens; the first two answer one prompt, the third another; limit 200.
WEIGHTS = {
    "sequence_mean": (1 / 3, 1 / 300, 1 / 30),
    "token_mean": (1 / 111, 1 / 111, 1 / 111),
    "constant": (1 / 600, 1 / 600, 1 / 600),
    "prompt_mean": (1 / 202, 1 / 202, 1 / 20),
}
DECLARED = {
    "sequence_mean": "gmpo grpo gspo gspo_token repo sapo",
    "token_mean": "aspo cispo clip_cov dppo_kl dppo_tv kdrl kl_cov lite_ppo ppo reinforce_pp vespo "
    "reinforce_pp_baseline",
    "constant": "dr_grpo fspo gspo_subsequence kimi luspo opo reg_grpo reinforce remax rloo topr",
    "prompt_mean": "cpgd dapo",
}


def lengths_step() -> Step:
    mask = torch.arange(120) < torch.tensor([1, 100, 10])[:, None]
    zeros = torch.zeros(3, 120, dtype=torch.float64)
    return replace(step_of(zeros, zeros, mask), group=torch.tensor([0, 0, 1]), max_response_tokens=200)


@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule, names in DECLARED.items() for name in names.split()])
def test_tokens_weigh_what_the_objective_declares(rule: str, name: str) -> None:
    """Faults 7, 8, 10, 11: never by the padded width, and by prompt only where that is said."""
    weights = objectives.make(name).aggregation(lengths_step())
    torch.testing.assert_close(weights[:, 0], torch.tensor(WEIGHTS[rule], dtype=torch.float64), rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"norm": "mean"}, "sequence_mean"),
        ({"outer_root": "tokens"}, "sequence_mean"),
        ({"outer_root": "segments"}, "sequence_mean"),
        ({"combine": "mean"}, "constant"),
    ],
    ids=str,
)
def test_normalised_segments_average_over_a_response(settings: dict[str, Any], rule: str) -> None:
    weights = objectives.make("gspo_subsequence", **settings).aggregation(lengths_step())
    torch.testing.assert_close(weights[:, 0], torch.tensor(WEIGHTS[rule], dtype=torch.float64), rtol=1e-14, atol=0)


def test_dapo_by_tokens_is_what_libraries_call_dapo() -> None:
    """Fault 8."""
    weights = objectives.make("dapo", weights="token_mean").aggregation(lengths_step())
    torch.testing.assert_close(weights[:, 0], torch.full((3,), 1 / 111, dtype=torch.float64))


@pytest.mark.parametrize("name", objectives.names())
def test_a_response_that_is_masked_out_is_as_if_it_were_not_there(name: str) -> None:
    """Faults 3, 24, 26, 32: numerator, denominator, group statistics and selections all leave it out."""
    objective = objectives.make(name)
    case = random_case(objective.requires, spread=0.5)
    unknown = 3
    found, expected = one_step(objective, case), one_step(objective, without(case, unknown))
    kept = [i for i in range(12) if i != unknown]
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-12, atol=0)
    for key, value in found.gradients.items():
        torch.testing.assert_close(value[kept], expected.gradients[key], rtol=1e-10, atol=1e-16)
        assert not bool(value[unknown].any())


def choices() -> list[tuple[str, str, Any]]:
    """(name, setting, value) for every value but the default of every setting that has a list of them."""
    found: list[tuple[str, str, Any]] = []
    for name, cls in sorted(objectives.classes().items()):
        hints = typing.get_type_hints(cls)
        for item in fields(cls):  # pyright: ignore
            hint = hints[item.name]
            values = get_args(hint) if get_origin(hint) is Literal else (True, False) if hint is bool else ()
            found += [(name, item.name, value) for value in values if value != item.default]
    return found


# On-policy their token has A / |S_k|, A / K and A / n by construction (spec/objectives.md, 6.5; spec/methods.md, 3).
SCALED = {("gspo_subsequence", "norm"), ("gspo_subsequence", "outer_root"), ("reg_grpo", "reduce")}


@pytest.mark.parametrize(("name", "setting", "value"), choices())
def test_every_named_choice_holds_the_contract(name: str, setting: str, value: object) -> None:
    """Fault 47: a value that is never dispatched."""
    found = {claim for claim, error in run(objectives.make(name, **{setting: value})) if error}
    if (name, setting) in SCALED:
        found -= {"on_policy_gradient_is_reinforce"}
    assert found == set()


class Recorder:
    """An objective that keeps what it returned."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.terms: list[TokenLoss] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.objective, name)

    def token_loss(self, batch: Batch) -> TokenLoss:
        self.terms.append(self.objective.token_loss(batch))
        return self.terms[-1]


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_every_term_has_one_number_a_token(name: str, preset: str | None) -> None:
    """Faults 10 and 45: a column [B, 1] would be weighted or logged by broadcasting."""
    objective: Any = Recorder(objectives.make(name, preset=preset))
    one_step(objective, random_case(objective.requires))
    (terms,) = objective.terms
    shapes = {key: tuple(value.shape) for key, value in vars(terms).items() if isinstance(value, Tensor)}
    assert shapes == dict.fromkeys(shapes, (12, 9))


@pytest.mark.parametrize("name", ["cpgd", "kdrl", "kimi", "kl_cov"])
def test_a_penalty_acts_on_groups_whose_rewards_are_all_alike(name: str) -> None:
    """Fault 30, as documented: no advantage, but a pull; and it is the penalty's alone."""
    objective = objectives.make(name, **({"fraction": 1} if name == "kl_cov" else {}))
    case = random_case(objective.requires, spread=0.5)
    alike = (case.rollout.group == 1)[:, None] & case.rollout.scored
    found, bare = (one_step(objective, case, penalty=given).gradients["logprobs"] for given in (True, False))
    assert bool((found[alike] != 0).all())
    assert bool((bare[alike] == 0).all())


def test_no_other_objective_has_a_penalty() -> None:
    for name in objectives.names():
        objective: Any = Recorder(objectives.make(name))
        one_step(objective, random_case(objective.requires))
        assert (objective.terms[0].penalty is not None) is (name in {"cpgd", "kdrl", "kimi", "kl_cov"})


def test_gspo_token_keeps_the_digits_of_a_small_mean() -> None:
    """Fault 41: added to a log-probability of -50 first, a mean of 3e-4 would lose all but two of its digits."""
    logprobs = torch.tensor([[-50.0, -0.3]])
    batch = Batch(
        logprobs=(logprobs + 3e-4).requires_grad_(),
        old_logprobs=logprobs,
        advantages=torch.ones(1, 2),
        loss_mask=torch.ones(1, 2, dtype=torch.bool),
        response_ids=torch.zeros(1, 2, dtype=torch.int64),
    )
    mean = float((batch.logprobs.detach() - logprobs).double().mean())
    found = -objectives.make("gspo_token", clip_high=1).token_loss(batch).policy.detach().double()
    torch.testing.assert_close(found, torch.full((1, 2), mean, dtype=torch.float64).exp(), rtol=1.2e-7, atol=0)


@pytest.mark.parametrize("name", objectives.names())
def test_mean_log_ratios_of_200_are_finite(name: str) -> None:
    """Fault 39: in float32, upwards and downwards alike."""
    objective = objectives.make(name)
    near = random_case(objective.requires, dtype=torch.float32)
    for distance in (200.0, -200.0):
        logprobs = near.rollout.old_logprobs + distance
        outcome = one_step(objective, Case(near.rollout, {**near.current, "logprobs": logprobs}))
        assert bool(outcome.loss.isfinite())
        assert all(bool(value.isfinite().all()) for value in outcome.gradients.values())


# Fault 45 and U33: what counts as clipped


def test_clipped_by_hand() -> None:
    """U33: two responses of three tokens, A = 1 and -1, bounds .8 and 1.3."""
    ratios = torch.tensor([[1.4, 0.7, 1.2], [1.4, 0.7, 0.9]], dtype=torch.float64)
    advantages = torch.tensor([[1.0] * 3, [-1.0] * 3], dtype=torch.float64)
    expected = {
        "grpo": [[True, False, False], [False, True, False]],
        "gspo": [[False] * 3, [False] * 3],  # geometric means 1.055 and .959
        "gmpo": [[True, False, False], [False, True, False]],
        "cispo": [[True, True, False], [True, True, False]],
        "aspo": [
            [True, True, False],
            [False, True, False],
        ],  # good tokens: dropped above 1.3, 1 / .7 beyond the cap 1.4
        "cpgd": [[True, False, False], [False, True, False]],
        "clip_cov": [[True, False, True], [False, True, False]],
        "fspo": [[True] * 3, [True] * 3],  # whole ratios 1.18 and .88, bound 1.05
        "luspo": [[False] * 3, [False] * 3],
        "dppo_tv": [[True, False, True], [False, True, True]],  # 0.5 * (.4, -.3, .2) and (.4, -.3, -.1), bound .04
    }
    usual = {"clip_low": 0.2, "clip_high": 0.3}
    bounds: dict[str, dict[str, float]] = {
        "aspo": {**usual, "cap": 1.4},
        "dppo_tv": {"tv_low": 0.04, "tv_high": 0.04},
        "fspo": {},
        "gmpo": {"log_clip_low": 0.3, "log_clip_high": 0.3},
    }
    silent = torch.tensor([[False, False, True], [False, False, False]])
    for name, marks in expected.items():
        batch = replace(batch_of(ratios, advantages, probability=0.5), extras={"silent": silent})
        terms = objectives.make(name, **bounds.get(name, usual)).token_loss(batch)
        assert terms.stats["clipped"].tolist() == marks, name
    terms = objectives.make("gspo", clip_low=0.01, clip_high=0.01).token_loss(batch_of(ratios, advantages))
    assert terms.stats["clipped"].tolist() == [[True] * 3, [True] * 3]


# These clip or drop by the weight alone, whatever the advantage.
BLIND_TO_SIGN = {"cispo", "clip_cov", "gspo_subsequence", "sapo", "vespo"}


def test_a_token_without_advantage_is_not_clipped() -> None:
    """Fault 45: TRL and verl count A > 0 above and A < 0 below; where A = 0 the minimum is at no bound."""
    offenders = []
    for name in objectives.names():
        objective = objectives.make(name)
        case = far(random_case(objective.requires), 3.0, every=2)
        outcome = one_step(objective, case)
        idle = outcome.targets.loss_mask & (outcome.targets.advantages == 0)
        marked = outcome.stats.get("clipped")
        if name not in BLIND_TO_SIGN and marked is not None and bool(marked[idle].any()):
            offenders.append(name)
    assert offenders == []
