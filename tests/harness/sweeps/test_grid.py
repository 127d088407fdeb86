"""The grid: cells, keys, labels, and faults found before anything runs."""

import pytest

from harness.config.errors import UserError
from harness.config.sweep import SweepConfig
from harness.sweeps.grid import expand, schedule


def sweep(**changes):
    tables = {
        "name": "study",
        "seeds": [0, 1],
        "arms": [{"name": "grpo"}, {"name": "gspo", "objective": {"name": "gspo", "clip_low": 0.1}}],
        "base": {"budget": {"axis": "updates", "amount": 8}},
    }
    return SweepConfig.model_validate({**tables, **changes})


def test_cells_come_in_the_order_arms_axes_seeds():
    cells = expand(sweep(axes={"update.learning_rate": [1e-4, 3e-4]}))
    assert [(c.arm, c.seed) for c in cells] == [
        ("grpo learning_rate=0.0001", 0),
        ("grpo learning_rate=0.0001", 1),
        ("grpo learning_rate=0.0003", 0),
        ("grpo learning_rate=0.0003", 1),
        ("gspo learning_rate=0.0001", 0),
        ("gspo learning_rate=0.0001", 1),
        ("gspo learning_rate=0.0003", 0),
        ("gspo learning_rate=0.0003", 1),
    ]


def test_the_first_seed_of_all_arms_runs_first():
    assert [(c.arm, c.seed) for c in schedule(expand(sweep(seeds=[7, 3])))] == [
        ("grpo", 7),
        ("gspo", 7),
        ("grpo", 3),
        ("gspo", 3),
    ]


def test_arms_win_over_the_base_and_axes_over_both():
    arms = [{"name": "a", "update": {"learning_rate": 2e-4, "epochs": 2}}, {"name": "b", "update.epochs": 3}]
    base = {"budget": {"axis": "updates", "amount": 8}, "update": {"learning_rate": 1e-4, "weight_decay": 0.5}}
    update = [c.config.update for c in expand(sweep(arms=arms, base=base, seeds=[0]))]
    assert [(u.learning_rate, u.epochs, u.weight_decay) for u in update] == [(2e-4, 2, 0.5), (1e-4, 3, 0.5)]
    cells = expand(sweep(arms=arms, base=base, seeds=[0], axes={"update.epochs": [4]}))
    assert [c.config.update.epochs for c in cells] == [4, 4]


def test_a_further_arm_seed_or_value_changes_no_key():
    few = expand(sweep(axes={"update.epochs": [1]}))
    arms = [{"name": "new", "objective": {"name": "ppo"}}, {"name": "grpo"}]
    arms += [{"name": "gspo", "objective": {"name": "gspo", "clip_low": 0.1}}]
    many = expand(sweep(arms=arms, seeds=[5, 1, 0], axes={"update.epochs": [2, 1]}))
    assert len(many) == 18
    assert {(c.arm, c.seed): c.key for c in few}.items() <= {(c.arm, c.seed): c.key for c in many}.items()


def test_every_setting_is_in_the_key():
    keys = {
        expand(sweep(base={"budget": {"axis": "updates", "amount": 8}, **b}))[0].key for b in ({}, {"seed": {}})[:1]
    }
    keys |= {expand(sweep(axes={"eval.num_prompts": [64]}))[0].key, expand(sweep(axes={"engine.threads": [2]}))[0].key}
    assert len(keys) == 3
    assert all(len(key) == 16 and int(key, 16) >= 0 for key in keys)


def test_tasks_and_policies_are_columns_not_arms():
    axes = {"task": [{"name": "arithmetic"}, {"name": "synthesis"}], "policy.warm_start": [0, 2]}
    cells = expand(sweep(axes=axes, seeds=[0]))
    rows = [(c.arm, c.task, c.policy) for c in cells[:4]]
    assert rows == [
        ("grpo", "arithmetic", "tiny"),
        ("grpo", "arithmetic", "tiny/2"),
        ("grpo", "synthesis", "tiny"),
        ("grpo", "synthesis", "tiny/2"),
    ]
    cells = expand(sweep(axes={"policy.lora.rank": [0, 8], "policy.warm_start": [0, 2]}, seeds=[0]))
    assert [c.policy for c in cells[:4]] == ["tiny rank=0", "tiny/2 rank=0", "tiny rank=8", "tiny/2 rank=8"]


def test_one_task_with_several_settings_is_told_apart():
    tables = [
        {"name": "arithmetic", "operands": [2]},
        {"name": "arithmetic"},
        {"name": "synthesis", "levels": ["easy"]},
    ]
    cells = expand(sweep(axes={"task": tables}, seeds=[0]))
    assert [c.task for c in cells[:3]] == ["arithmetic(operands=[2])", "arithmetic", "synthesis"]
    cells = expand(sweep(axes={"task.max_operand": [9, 99]}, base=BASE_TASK, seeds=[0]))
    assert [c.task for c in cells[:2]] == ["arithmetic max_operand=9", "arithmetic max_operand=99"]


BASE_TASK = {"budget": {"axis": "updates", "amount": 8}, "task": {"name": "arithmetic"}}


def test_an_axis_of_plugins_makes_labels_without_folders():
    axes = {"objective": [{"name": "/somewhere/mine.py:Mine", "scale": 2}]}
    assert expand(sweep(arms=[{"name": "a"}], axes=axes))[0].arm == "a objective=Mine(scale=2)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"axes": {"update.learning_rat": [1e-4]}},
            r"axis 'update\.learning_rat' is no setting; .*update\.learning_rate",
        ),
        ({"axes": {"learning_rate": [1e-4]}}, r"is no setting; did you mean .*update\.learning_rate"),
        ({"axes": {"update": [{"epochs": 1}]}}, "axis 'update' is no setting"),
        ({"axes": {"update.learning_rate": ["1e-4"]}}, r"update\.learning_rate = '1e-4' should be a valid number"),
        ({"axes": {"update.learning_rate": [-1e-4]}}, r"update\.learning_rate = -0\.0001 should be greater than 0"),
        ({"axes": {"update.learning_rate": [float("inf")]}}, r"update\.learning_rate = inf should be a finite number"),
        ({"axes": {"update.epochs": [1.5]}}, r"update\.epochs = 1\.5 should be a valid integer"),
        ({"axes": {"update.epochs": []}}, "has no values"),
        ({"axes": {"update.epochs": [1, 1]}}, "has a value twice"),
        ({"axes": {"task": ["arithmetic"]}}, r"takes tables, for instance \[\{ name = \"arithmetic\" \}\]"),
        ({"axes": {"seed": [1]}}, "list the seeds in seeds"),
        (
            {"axes": {"objective.scale": [float("nan")]}, "base": {**BASE_TASK, "objective": {"name": "x"}}},
            "scale = nan should be a finite number",
        ),
        ({"seeds": [1, 1]}, "seed 1 is there twice"),
        ({"seeds": [-1]}, "seed = -1 should be greater than or equal to 0"),
        ({"arms": [{"name": "a"}, {"name": "a", "update.epochs": 2}]}, "arm 'a' is there twice"),
        ({"arms": [{"name": "a", "seed": 2}]}, "arm 'a' sets seed"),
        ({"arms": [{"name": "a", "updat": {"epochs": 2}}]}, "study, arm a: unknown key updat; did you mean update"),
        (
            {"arms": [{"name": "a"}, {"name": "b"}]},
            "two cells are the same run: a on arithmetic, tiny, seed 0; and b on",
        ),
        ({"baseline": "ppo"}, r"baseline 'ppo' is no arm \(arms: grpo, gspo\)"),
        ({"base": {}}, "budget is missing"),
        ({"base": {**BASE_TASK, "seed": 3}}, r"base\.seed is set"),
        ({"base": {**BASE_TASK, "update": 3}, "axes": {"update.epochs": [1]}}, "update is a value, not a table"),
        ({"base": {**BASE_TASK, "update": 3}, "arms": [{"name": "a", "update": {"epochs": 1}}]}, "should be a table"),
    ],
)
def test_faults_are_told_in_one_line(changes, message):
    with pytest.raises(UserError, match=message) as caught:
        expand(sweep(**changes))
    assert "\n" not in str(caught.value)


def test_a_fault_of_a_plugin_names_its_arm():
    def refuse(config):
        if config.objective.name == "gspo":
            raise UserError("no such thing")
        return {}

    with pytest.raises(UserError, match="arm gspo: no such thing"):
        expand(sweep(), check=refuse)


def test_plugins_are_checked_once_an_arm_not_once_a_seed():
    seen = []
    expand(sweep(seeds=list(range(9))), check=lambda config: seen.append(config) or {})
    assert len(seen) == 2
