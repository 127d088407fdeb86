import pytest
import torch
from tiny_engine import free_run, make_config, roll, update

from harness.engine.checkpoint import policy_weights, restore_run, save_run


def trained(objective, steps=1):
    run = free_run(make_config(objective={"name": objective}, trust_region={"name": "dual"}))
    for _ in range(steps):
        parts = roll(run)
        update(run, parts)
        run.iteration += 1
        run.cursor = parts[0].cursor
    run.coef = 0.1 + 0.2
    return run


@pytest.mark.parametrize("objective", ["grpo", "ppo"])
def test_a_restored_run_goes_on_exactly_as_the_one_that_was_saved(tiny, objective):
    run = trained(objective)
    payload = save_run(run, {"metrics": 17})
    other = free_run(run.config)
    assert restore_run(other, payload) == {"metrics": 17}
    assert (other.iteration, other.cursor, other.updates) == (1, 4, 2)
    assert other.coef == 0.1 + 0.2
    assert save_run(other, {"metrics": 17}) == payload
    for each in (run, other):
        update(each, roll(each))
    assert save_run(run, {}) == save_run(other, {})
    assert save_run(run, {}) != payload


def test_a_run_before_its_first_update_can_be_saved(tiny):
    run = free_run(make_config())
    other = free_run(make_config())
    restore_run(other, save_run(run, {}))
    assert other.updates == 0
    update(run, roll(run))
    update(other, roll(other))
    assert policy_weights(run) == policy_weights(other)


def test_a_parameter_without_a_gradient_is_restored_too(tiny):
    def frozen(run):
        spare = torch.nn.Parameter(torch.full((2,), 5.0))
        run.policy.model.register_parameter("spare", spare)
        run.optimizer._named.append(("spare", spare))
        return run

    run, other = frozen(free_run(make_config())), frozen(free_run(make_config()))
    update(run, roll(run))
    restore_run(other, save_run(run, {}))
    assert other.updates == 2


def test_weights_are_the_models_own(tiny):
    from safetensors.torch import load

    run = trained("grpo")
    weights = load(policy_weights(run))
    own = dict(run.policy.model.named_parameters())
    assert weights.keys() == own.keys()
    assert all(torch.equal(weights[name], own[name]) for name in own)
