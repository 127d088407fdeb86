import json
import math

import pytest
from tiny_engine import make_config, plugin

from harness.config.errors import UserError
from harness.engine.estimate import estimate_cell


def config(**tables):
    budget = {"axis": "flops", "amount": 1e12, **tables.pop("budget", {})}
    return make_config(budget=budget, **tables)


def test_the_budget_is_what_is_spent(tiny):
    estimate = estimate_cell(config())
    assert estimate.flops == pytest.approx(1e12)
    assert estimate.updates == pytest.approx(2 * estimate.iterations)


def test_costs_grow_with_what_the_objective_and_the_region_ask_for(tiny):
    def iteration(objective="grpo", region="none", **tables):
        chosen = objective if isinstance(objective, dict) else {"name": objective}
        estimate = estimate_cell(config(objective=chosen, trust_region={"name": region}, **tables))
        return estimate.flops / estimate.iterations

    plain = iteration()
    assert iteration("gspo") == plain
    assert iteration(plugin("Prepared")) > plain
    assert iteration(region="reference_penalty") > iteration(region="dual") > plain
    assert iteration("ppo") > 1.5 * plain
    assert iteration(update={"epochs": 2}) > 1.3 * plain
    assert iteration(rollout={"max_resamples": 2}) > plain


def test_a_budget_below_the_smallest_update_is_refused(tiny):
    smallest = estimate_cell(config()).smallest_update_flops
    estimate_cell(config(budget={"amount": smallest}))
    with pytest.raises(UserError, match=r"budget.amount = .* flops is too small for one update, which takes at least"):
        estimate_cell(config(budget={"amount": smallest - 1}))
    with pytest.raises(UserError, match="at least 16 with 4 prompts x 4 responses"):
        estimate_cell(config(budget={"axis": "tokens", "amount": 15}))


def test_seconds_cannot_be_estimated(tiny):
    estimate = estimate_cell(config(budget={"axis": "seconds", "amount": 5}))
    assert math.isnan(estimate.flops)
    assert math.isnan(estimate.iterations)


def test_a_folder_with_a_configuration_is_enough(tiny, tmp_path):
    from tiny_engine import TINY

    (tmp_path / "config.json").write_text(json.dumps({**TINY, "vocab_size": 98}))
    named = config(policy={"name": str(tmp_path)})
    assert estimate_cell(named).smallest_update_flops < estimate_cell(config()).smallest_update_flops


@pytest.mark.parametrize("content", [None, "{", '{"n_embd": 3}'], ids=["missing", "torn", "foreign"])
def test_a_policy_without_a_readable_configuration_is_named(tiny, tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError) as caught:
        estimate_cell(config(policy={"name": str(tmp_path)}))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
