"""Declaring cells: coupled axes, axes of one arm, cells left out, files that extend others."""

import pytest

from harness.config.errors import UserError
from harness.config.loading import load_run, load_sweep
from harness.config.sweep import SweepConfig
from harness.sweeps.grid import expand

BASE = {"budget": {"axis": "updates", "amount": 4}}
ARMS = [
    {"name": "grpo", "objective": {"name": "grpo"}},
    {"name": "gspo", "objective": {"name": "gspo"}, "axes": {"objective.clip_high": [0.04, 0.4]}},
]
BAND = [
    {"label": "paper", "objective": {"clip_low": 3e-4, "clip_high": 4e-4}},
    {"objective.clip_low": 0.03, "objective.clip_high": 0.04},
]


def cells(**tables):
    return expand(SweepConfig.model_validate({"name": "s", "seeds": [0, 1], "arms": ARMS, "base": BASE, **tables}))


def test_an_axis_of_one_arm_is_of_no_other():
    assert [cell.arm for cell in cells(seeds=[0])] == ["grpo", "gspo clip_high=0.04", "gspo clip_high=0.4"]


def test_settings_that_change_together():
    found = cells(arms=[{"name": "gspo", "objective": {"name": "gspo"}}], axes={"band": BAND}, seeds=[0])
    assert [cell.arm for cell in found] == ["gspo band=paper", "gspo band=clip_low=0.03,clip_high=0.04"]
    assert [cell.config.objective.settings for cell in found] == [
        {"clip_low": 3e-4, "clip_high": 4e-4},
        {"clip_low": 0.03, "clip_high": 0.04},
    ]


def test_arms_are_compared_within_a_condition():
    tables = {"axes": {"task": [{"name": "arithmetic"}, {"name": "synthesis"}], "update.epochs": [1, 4]}, "seeds": [0]}
    found = cells(**tables, conditions=["update.epochs"])
    assert list(dict.fromkeys(cell.arm for cell in found)) == ["grpo", "gspo clip_high=0.04", "gspo clip_high=0.4"]
    labels = ["arithmetic epochs=1", "arithmetic epochs=4", "synthesis epochs=1", "synthesis epochs=4"]
    assert list(dict.fromkeys(cell.task for cell in found)) == labels
    assert {cell.condition for cell in found} == {"epochs=1", "epochs=4"}
    assert [cell.key for cell in found] == [cell.key for cell in cells(**tables)]


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ([{"arm": "gspo", "seed": 1}], ["grpo 0", "grpo 1", "gspo 0", "gspo 0"]),
        ([{"arm": ["grpo", "gspo"], "seed": 1}], ["grpo 0", "gspo 0", "gspo 0"]),
        ([{"objective": {"clip_high": 0.4}}, {"arm": "grpo"}], ["gspo 0", "gspo 1"]),
        ([{"objective": "gspo"}], ["grpo 0", "grpo 1"]),
        ([{"task": "arithmetic", "update.epochs": 1, "seed": 0}], ["grpo 1", "gspo 1", "gspo 1"]),
    ],
)
def test_cells_are_left_out(exclude, left):
    assert [f"{cell.base_arm} {cell.seed}" for cell in cells(exclude=exclude)] == left


def test_leaving_cells_out_changes_no_other():
    kept = {cell.key for cell in cells(exclude=[{"arm": "grpo"}])}
    assert kept == {cell.key for cell in cells() if cell.base_arm == "gspo"}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"exclude": [{"arm": "gsop"}]}, r'exclude holds {"arm": "gsop"}, which no cell matches: it names arm, seed'),
        ({"axes": {"bnd": [0.1]}}, "axis 'bnd' is no setting .*takes tables of settings that change together"),
        ({"axes": {"tsak": [{"name": "arithmetic"}]}}, "axis 'tsak' is no setting; did you mean task"),
        ({"axes": {"objective.clip_high": [0.1]}}, "is the sweep's and of arm 'gspo': keep one"),
        ({"axes": {"band": [{"label": "nothing"}]}}, "axis 'band' is no setting"),
        ({"axes": {"band": [{"label": 3, "update.epochs": 2}]}}, "label = 3 should be text"),
        ({"conditions": ["update.epochs"]}, r"conditions name 'update.epochs'; they take axes .*it has none"),
        ({"conditions": ["task"], "axes": {"task": [{"name": "arithmetic"}], "update.epochs": [1]}}, "update.epochs.$"),
        ({"axes": {"band": [{"update.epoch": 2}]}}, "unknown key update.epoch; did you mean epochs"),
    ],
)
def test_what_cannot_be_declared_is_one_line(tables, message):
    with pytest.raises(UserError, match=message):
        cells(**tables)


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)


CHILD = """
extends = "base.toml"
seeds = [7]
axes."update.epochs" = [1, 2]
[base.update]
learning_rate = 3e-5
[[arms]]
name = "gspo"
objective.clip_high = 0.5
[[arms]]
name = "ppo"
objective.name = "ppo"
"""
PARENT = """
name = "s"
seeds = [0]
axes."rollout.group_size" = [4, 8]
[base]
budget = { axis = "updates", amount = 4 }
update = { minibatches = 2 }
[[arms]]
name = "gspo"
objective = { name = "gspo", clip_low = 0.1 }
"""


def test_a_file_extends_another(tmp_path):
    write(tmp_path, child=CHILD, base=PARENT)
    sweep = load_sweep(tmp_path / "child.toml", {"workers": 1})
    assert sweep.seeds == [7]
    assert sweep.axes == {"rollout.group_size": [4, 8], "update.epochs": [1, 2]}
    assert sweep.base["update"] == {"minibatches": 2, "learning_rate": 3e-5}
    assert [arm.name for arm in sweep.arms] == ["gspo", "ppo"]
    assert sweep.arms[0].overrides == {"objective": {"name": "gspo", "clip_low": 0.1, "clip_high": 0.5}}


def test_a_run_extends_another_and_may_change_the_plugin(tmp_path):
    base = 'objective = { name = "gspo", clip_low = 0.1 }\nbudget = { axis = "updates", amount = 4 }'
    write(tmp_path, base=base, child='extends = ["base.toml"]\nobjective.name = "grpo"')
    run = load_run(tmp_path / "child.toml")
    assert (run.objective.name, run.objective.settings) == ("grpo", {})


def test_files_of_a_base_are_meant_from_its_folder(tmp_path):
    (tmp_path / "shared").mkdir()
    write(tmp_path / "shared", base='objective = { name = "mine.py:Mine" }\nbudget = { axis = "updates", amount = 4 }')
    write(tmp_path, child='extends = "shared/base.toml"')
    assert load_run(tmp_path / "child.toml").objective.name == f"{tmp_path / 'shared' / 'mine.py'}:Mine"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"child": 'extends = "child.toml"'}, "extends itself: child.toml -> child.toml"),
        (
            {"child": 'extends = "a.toml"', "a": 'extends = "child.toml"'},
            "itself: child.toml -> a.toml -> child",
        ),
        ({"child": 'extends = "none.toml"'}, "cannot read .*none.toml: No such file"),
        ({"child": "extends = 3"}, "extends = 3 should be a file or a list of files"),
    ],
)
def test_what_cannot_be_extended_is_one_line(tmp_path, files, message):
    write(tmp_path, **files)
    with pytest.raises(UserError, match=message):
        load_run(tmp_path / "child.toml")
