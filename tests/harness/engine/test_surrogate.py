import dataclasses
import math
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from tiny_engine import free_run, make_config, plugin

import objectives
from harness.engine.surrogate import RATIOS, RESPONSE_TOKENS, surrogate_shape

# Trapezoids over a grid of 0.01 cut a jump of the weight off within half a step of it.
BEND = 0.02


def shape(tiny_run):
    columns = surrogate_shape(tiny_run)
    return {
        (advantage, ratio): (loss, weight)
        for ratio, advantage, loss, weight in zip(
            columns["ratio"], columns["advantage"], columns["loss"], columns["weight"], strict=True
        )
    }


def run(name, **settings):
    return free_run(make_config(objective={"name": name, **settings}))


def test_grpo_by_hand(tiny):
    found = shape(run("grpo", clip_low=0.2, clip_high=0.2))
    for (advantage, ratio), expected in {
        (1.0, 1.0): (-1.0, 1.0),
        (1.0, 1.1): (-1.1, 1.1),
        (1.0, 1.3): (-1.2, 0.0),
        (1.0, 0.6): (-0.6, 0.6),  # on the side that leads back: never clipped
        (-1.0, 1.0): (1.0, -1.0),
        (-1.0, 0.7): (0.8, 0.0),
        (-1.0, 1.4): (1.4, -1.4),
    }.items():
        assert found[advantage, ratio][0] == pytest.approx(expected[0], abs=BEND)
        assert found[advantage, ratio][1] == pytest.approx(expected[1], abs=1e-12)


def test_gspo_by_hand(tiny):
    found = shape(run("gspo", clip_low=0.1, clip_high=0.1))
    assert found[1.0, 1.0] == pytest.approx((-1.0, 1.0), abs=1e-12)
    assert found[-1.0, 1.0] == pytest.approx((1.0, -1.0), abs=1e-12)
    assert found[1.0, 1.05] == pytest.approx((-1.05, 1.05), abs=1e-5)
    assert found[1.0, 1.2] == pytest.approx((-1.1, 0.0), abs=BEND)
    assert found[-1.0, 0.8] == pytest.approx((0.9, 0.0), abs=BEND)


def test_literal_subsequence_products_by_hand(tiny):
    found = shape(run("gspo_subsequence", num_segments=4, clip_low=0.2, clip_high=0.2))
    # two tokens a segment: at ratio 1.05 a segment's ratio is 1.1025 and the product 1.05 ** 8, over T_max = 8
    # the function with that weight: 1 at ratio 1, (ratio ** 8 - 1) / 8 more at another
    assert found[1.0, 1.05] == pytest.approx((-(1 + (1.05**8 - 1) / 8), 1.05**8), abs=1e-3)
    assert found[1.0, 1.2] == pytest.approx((-(1 + (1.2**4 - 1) / 8), 0.0), abs=BEND)
    assert found[1.0, 0.8] == pytest.approx((-(1 + (0.8**4 - 1) / 8), 0.0), abs=BEND)  # clipped on the wrong side too


def test_a_detached_weight_is_drawn_by_what_it_drives(tiny):
    literal = shape(run("gspo_subsequence"))
    detached = shape(run("gspo_subsequence", preset="detached"))
    assert detached[1.0, 1.05] == pytest.approx(literal[1.0, 1.05], abs=1e-12)
    assert detached[1.0, 1.3][1] == pytest.approx(1.2**4, abs=1e-9)
    assert detached[1.0, 1.3][0] < literal[1.0, 1.3][0]


@pytest.mark.parametrize("name", objectives.names())
def test_every_objective_weighs_by_the_advantage_at_the_old_policy(tiny, name):
    found = shape(run(name))
    assert found[1.0, 1.0][1] == pytest.approx(1.0, abs=1e-9)
    assert found[-1.0, 1.0][1] == pytest.approx(-1.0, abs=1e-9)
    assert len(found) == 2 * len(RATIOS) == 202


def test_statistics_of_the_step_are_given(tiny):
    found = shape(free_run(make_config(objective=plugin("Prepared"))))
    assert len(found) == 202
    assert RESPONSE_TOKENS == 8


CHOICES = [
    (name, item.name, choice)
    for name, cls in objectives.classes().items()
    for item in dataclasses.fields(cls)
    if get_origin(get_type_hints(cls)[item.name]) is Literal
    for choice in get_args(get_type_hints(cls)[item.name])
]


@pytest.mark.parametrize(("name", "setting", "choice"), CHOICES)
def test_every_choice_has_a_shape(tiny, name, setting, choice):
    found = surrogate_shape(
        free_run(make_config(objective={"name": name, setting: choice}, task={"name": "arithmetic"}))
    )
    assert all(map(math.isfinite, found["weight"]))
