"""Configuration files: values, overrides, paths, and messages that teach."""

import pytest

from harness.config.errors import UserError
from harness.config.loading import is_setting, load_run, load_sweep, parse_assignments, resolve_run

BUDGET = {"axis": "updates", "amount": 8}


def write(folder, text):
    path = folder / "file.toml"
    path.write_text(text)
    return path


def test_words_are_toml_values_and_bare_words_text():
    words = ["update.learning_rate=3e-4", "task.name=arithmetic", "seeds=[0,1]", 'policy.name="a=b"']
    assert parse_assignments(words) == {
        "update.learning_rate": 3e-4,
        "task.name": "arithmetic",
        "seeds": [0, 1],
        "policy.name": "a=b",
    }


@pytest.mark.parametrize("word", ["learning_rate", "=3", " =3"])
def test_a_word_without_key_or_value_is_refused(word):
    with pytest.raises(UserError, match="is no setting: write key=value"):
        parse_assignments([word])


def test_files_named_in_a_file_are_meant_from_its_folder(tmp_path, monkeypatch):
    (tmp_path / "study").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    text = """
name = "s"
seeds = [0]
base.budget = {axis = "updates", amount = 8}
base.policy.name = "./model"
arms = [{name = "a", objective = {name = "mine.py:Mine"}}]
axes.task = [{name = "../task.py:Task"}, {name = "arithmetic"}]
"""
    sweep = load_sweep(write(tmp_path / "study", text), {"trust_region.name": "region.py:Region"})
    assert sweep.arms[0].overrides["objective"]["name"] == str(tmp_path / "study/mine.py:Mine")
    assert [value["name"] for value in sweep.axes["task"]] == [str(tmp_path / "task.py:Task"), "arithmetic"]
    assert sweep.base["policy"]["name"] == str(tmp_path / "study/model")
    assert sweep.base["trust_region"]["name"] == str(tmp_path / "elsewhere/region.py:Region")


def test_a_runs_key_may_stand_without_base_in_a_sweep(tmp_path):
    path = write(
        tmp_path, 'name = "s"\nseeds = [0]\narms = [{name = "a"}]\nbase.budget = {axis = "updates", amount = 8}'
    )
    sweep = load_sweep(path, {"budget.amount": 9, "base.update.epochs": 2, "workers": 3})
    assert (sweep.base, sweep.workers) == ({"budget": {**BUDGET, "amount": 9}, "update": {"epochs": 2}}, 3)
    with pytest.raises(UserError, match="takes seeds="):
        load_sweep(path, {"seed": 1})


def test_another_plugin_does_not_inherit_the_settings_of_the_first(tmp_path):
    path = write(tmp_path, 'objective = {name = "a", x = 1}\nbudget = {axis = "updates", amount = 8}')
    assert load_run(path, {"objective": {"name": "b"}}).objective.settings == {}
    assert load_run(path, {"objective": {"y": 2}}).objective.settings == {"x": 1, "y": 2}
    assert load_run(path, {"objective.y": 2, "objective.name": "b"}).objective.settings == {"y": 2}
    assert load_run(path, {"objective.y": 2, "objective.name": "a"}).objective.settings == {"x": 1, "y": 2}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"updates": {}}, r"unknown key updates; did you mean update"),
        ({"update": {"learning_rat": 1e-4}}, r"unknown key update\.learning_rat; did you mean learning_rate"),
        ({"update": {"learning_rate": True}}, r"update\.learning_rate = True should be a valid number"),
        ({"update": {"adam_beta1": float("nan")}}, r"update\.adam_beta1 = nan should be a finite number"),
        ({"task": "arithmetic"}, "task = 'arithmetic' should be a valid dictionary"),
        ({"objective": {"name": "a", "x": float("inf")}}, "x = inf should be a finite number"),
        ({"rollout": {"num_prompts": 10}}, "does not divide rollout.num_prompts = 10"),
        ({"budget": {"axis": "hours", "amount": 1}}, r"budget\.axis = 'hours' should be 'flops', 'tokens'"),
    ],
)
def test_faults_are_one_line(tables, message):
    with pytest.raises(UserError, match=message) as caught:
        resolve_run({"budget": BUDGET, **tables})
    assert "\n" not in str(caught.value)


def test_unreadable_files_are_user_errors(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*No such file"):
        load_run(tmp_path / "none.toml")
    with pytest.raises(UserError, match=r"cannot read .*Is a directory"):
        load_run(tmp_path)
    with pytest.raises(UserError, match=r"is not valid TOML: .*line 1"):
        load_run(write(tmp_path, "a = = 1"))


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("update.learning_rate", True),
        ("objective.anything", True),
        ("task.name", True),
        ("seed", True),
        ("update", False),
        ("update.learning_rate.x", False),
        ("nothing", False),
    ],
)
def test_settings_are_known_by_their_dotted_key(key, known):
    assert is_setting(key) is known
