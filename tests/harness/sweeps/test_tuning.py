"""Equal tuning: trials, what they say, and the sweep that is run with it."""

import csv
import json
import math
import os
from pathlib import Path

import pytest
from scipy import stats

from harness.cli import main
from harness.config.errors import UserError
from harness.config.sweep import Range, SweepConfig
from harness.sweeps.grid import expand
from harness.sweeps.layout import read_sweep
from harness.sweeps.rates import recorded_rates, span
from harness.sweeps.search import at_edge, points
from harness.sweeps.trials import trial_sweep, trials_of

HERE = Path(__file__).parent
BEST = 2e-4
SWEEP = """
name = "tuned"
seeds = [0, 1, 2]
workers = 1
base.budget = { axis = "updates", amount = 3 }
axes.task = [{ name = "arithmetic" }, { name = "synthesis" }]
exclude = [{ arm = "grpo", task = "synthesis" }]
[tuning]
trials = 4
seeds = [50]
space."update.learning_rate" = { low = 1e-5, high = 1e-1 }
[[arms]]
name = "grpo"
objective = { name = "grpo" }
update = { learning_rate = 1e-6 }
[[arms]]
name = "gspo"
objective = { name = "gspo" }
space = { "objective.clip_high" = { low = 1e-3, high = 0.4 } }
"""


def sweep_of(**changes):
    arms = [{"name": "grpo"}, {"name": "gspo", "objective": {"name": "gspo"}}]
    tuning = {"trials": 4, "seeds": [50], "space": {"update.learning_rate": {"low": 1e-5, "high": 1e-1}}}
    base = {"budget": {"axis": "updates", "amount": 3}}
    tables = {"name": "s", "seeds": [0, 1], "arms": arms, "base": base, "tuning": tuning}
    return SweepConfig.model_validate(tables | changes)


def run(folder, monkeypatch, *words, text=SWEEP):
    monkeypatch.setenv("FAKE_BEST", str(BEST))
    monkeypatch.setenv("FAKE_LOG", str(folder / "log"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parents[2])]))
    monkeypatch.setattr("harness.sweeps.command.write_reports", lambda *_: [])
    (folder / "sweep.toml").write_text(text)
    sweep, out = str(folder / "sweep.toml"), folder / "out"
    return main(["sweep", sweep, "--engine", "fake_engine:run_cell", "--out", str(out), *words]), out


def test_points_fill_a_space_evenly():
    space = {
        "a": Range(low=1e-4, high=1e-1),
        "b": Range(low=0.0, high=2.0, scale="linear"),
        "c": Range(values=["x", "y"]),
        "d": Range(low=1, high=4, integer=True, scale="linear"),
        "e": Range(low=1, high=16, integer=True),
    }
    found = points(space, 64, "key")
    assert stats.kstest([math.log10(p["a"]) for p in found], stats.uniform(-4, 3).cdf).statistic < 0.05
    assert stats.kstest([p["b"] for p in found], stats.uniform(0, 2).cdf).statistic < 0.05
    assert [sum(p["c"] == v for p in found) for v in "xy"] == [32, 32]
    assert [sum(p["d"] == v for p in found) for v in (1, 2, 3, 4)] == [16, 16, 16, 16]
    assert {type(p["e"]) for p in found} == {int}
    assert {p["e"] for p in found} >= {1, 2, 4, 8}
    assert max(p["e"] for p in found) <= 16


def test_points_are_a_function_of_the_key_and_a_longer_list_keeps_a_shorter_one():
    space = {"a": Range(low=1e-4, high=1e-1), "b": Range(values=[1, 2, 3])}
    assert points(space, 5, "x", 0) == points(space, 8, "x", 0)[:5]
    assert points(space, 5, "x", 0) != points(space, 5, "x", 1)
    assert points({}, 2, "x") == [{}, {}]


def test_settings_may_follow_another_one():
    space = {"a": Range(low=1e-4, high=1e-1, also=["b", "c"]), "d": Range(low=1, high=2)}
    alone = {"a": Range(low=1e-4, high=1e-1), "d": Range(low=1, high=2)}
    for point, free in zip(points(space, 4, "x"), points(alone, 4, "x"), strict=True):
        assert point == {"a": free["a"], "b": free["a"], "c": free["a"], "d": free["d"]}


@pytest.mark.parametrize(
    ("searched", "value", "edge"),
    [
        (Range(low=1e-5, high=1e-1), 2e-5, "low"),
        (Range(low=1e-5, high=1e-1), 1e-4, ""),
        (Range(low=1e-5, high=1e-1), 5e-2, "high"),
        (Range(low=0, high=1, scale="linear"), 0.95, "high"),
        (Range(values=[1, 2, 4]), 4, "high"),
        (Range(values=[1, 2, 4]), 2, ""),
        (Range(values=[1, 2]), 2, ""),
        (Range(values=["a", "b", "c"]), "c", ""),
    ],
)
def test_an_optimum_at_the_edge_is_seen(searched, value, edge):
    assert at_edge(searched, value) == edge


def test_every_arm_gets_as_many_trials_and_the_same_shared_points():
    sweep = sweep_of(tuning={**sweep_of().tuning.model_dump(), "studies": 2})
    by_arm = {arm: [t for t in trials_of(sweep) if t.arm == arm] for arm in ("grpo", "gspo")}
    assert [len(trials) for trials in by_arm.values()] == [9, 9]
    assert [t.settings for t in by_arm["grpo"]] == [t.settings for t in by_arm["gspo"]]
    assert by_arm["grpo"][1].settings != by_arm["grpo"][5].settings


def test_trials_do_not_depend_on_other_arms():
    space = {"objective.clip_high": {"low": 1e-3, "high": 0.4}}
    arms = [{"name": "gspo", "objective": {"name": "gspo"}, "space": space}]
    alone = {cell.key for cell in expand(trial_sweep(sweep_of(arms=arms)))}
    assert alone < {cell.key for cell in expand(trial_sweep(sweep_of(arms=[{"name": "grpo"}, *arms])))}


def test_the_best_trial_is_what_the_sweep_runs_with(tmp_path, monkeypatch, capsys):
    status, out = run(tmp_path, monkeypatch)
    assert status == 0
    with (out / "records" / "tuning.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    for arm in ("grpo", "gspo"):
        mine = [row for row in rows if row["arm"] == arm]
        (chosen,) = [row for row in mine if row["chosen_by"]]
        assert float(chosen["score"]) == max(float(row["score"]) for row in mine)
        assert {row["num_cells"] for row in mine} == {"1" if arm == "grpo" else "2"}
        rates = [json.loads(row["settings"]).get("update.learning_rate", 0) for row in mine]
        worst = [row["score"] for row, rate in zip(mine, rates, strict=True) if rate >= 10 * BEST]
        assert set(worst) == {"0.0"}
        settings = json.loads(chosen["settings"])
        cells = [cell["config"] for cell in read_sweep(out)["cells"] if cell["arm"] == arm]
        assert len(cells) == (3 if arm == "grpo" else 6)
        assert {cell["update"]["learning_rate"] for cell in cells} == {settings["update.learning_rate"]}
        assert {cell["objective"].get("clip_high") for cell in cells} == {settings.get("objective.clip_high")}
    assert f"grpo: update.learning_rate = {settings['update.learning_rate']}" in capsys.readouterr().out


def test_nothing_is_run_twice_and_a_seed_may_be_added(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch)
    first = (tmp_path / "log").read_text()
    run(tmp_path, monkeypatch)
    assert (tmp_path / "log").read_text() == first
    run(tmp_path, monkeypatch, "seeds=[3,0,1,2]")
    assert len((tmp_path / "log").read_text().split("start ")) == len(first.split("start ")) + 3


def test_studies_take_turns_over_the_seeds(tmp_path, monkeypatch):
    _, out = run(tmp_path, monkeypatch, "tuning.studies=2")
    rates = {}
    for cell in read_sweep(out)["cells"]:
        if cell["arm"] == "gspo":
            rates.setdefault(cell["seed"], set()).add(cell["config"]["update"]["learning_rate"])
    assert rates[0] == rates[2] != rates[1]


def test_an_axis_can_be_tuned_apart(tmp_path, monkeypatch):
    _, out = run(tmp_path, monkeypatch, 'tuning.per=["task"]')
    with (out / "records" / "tuning.csv").open() as file:
        aparts = [(row["arm"], row["apart"]) for row in csv.DictReader(file)]
    assert len(set(aparts)) == 3
    assert all("arithmetic" in apart or "synthesis" in apart for _, apart in aparts)


def test_a_dry_run_shows_trials_and_cells(tmp_path, monkeypatch, capsys):
    run(tmp_path, monkeypatch, "--dry-run")
    text = capsys.readouterr().out
    assert "[tuning]" in text
    assert "gspo trial 0.4" in text
    assert text.count("after tuning") == 9
    assert "time unknown (no cell of such a task and policy is recorded in" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [50, 1]}, "tuning.seeds and seeds share 50"),
        ({"tuning": None, "arms": [{"name": "a", "space": {"update.epochs": {"values": [1, 2]}}}]}, "no .tuning."),
        ({"tuning": {"seeds": [5]}}, "nothing is searched for arm 'grpo'"),
        ({"tuning": {"seeds": [5], "space": {"x": {"low": 2, "high": 1}}}}, "low = 2 is not below high = 1"),
        ({"tuning": {"seeds": [5], "space": {"x": {"low": 0, "high": 1}}}}, "low = 0 has no logarithm"),
        ({"tuning": {"seeds": [5], "space": {"x": {"low": 1}}}}, "needs low and high, or values"),
        ({"tuning": {"seeds": [5], "space": {"x": {"low": 1, "values": [1, 2]}}}}, "takes values, or low and high"),
        ({"tuning": {"seeds": [5], "space": {"x": {"low": 1.2, "high": 1.8, "integer": True}}}}, "no whole number"),
    ],
)
def test_a_search_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        sweep_of(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"axes": {"update.learning_rate": [1e-4]}}, "'update.learning_rate' is searched and an axis"),
        ({"axes": {"both": [{"update": {"learning_rate": 1e-4}}]}}, "'update.learning_rate' is searched and an axis"),
        ({"tuning": {"seeds": [5], "space": {"update.lr": {"low": 1, "high": 2}}}}, "'update.lr' is searched and no"),
        ({"tuning": {**sweep_of().tuning.model_dump(), "per": ["task"]}}, "tuning.per names 'task', which is no axis"),
        (
            {"arms": [{"name": "a", "space": {"update.learning_rate": {"low": 1, "high": 2}}}]},
            "'update.learning_rate' is searched twice for 'a'",
        ),
        (
            {"arms": [{"name": "a", "space": {"update.epochs": {"low": 1, "high": 2, "also": ["update.epochs"]}}}]},
            "'update.epochs' is searched twice for 'a'",
        ),
        (
            {"arms": [{"name": "a", "space": {"update.epochs": {"low": 1, "high": 2, "also": ["both"]}}}]},
            "'both' is searched and no setting",
        ),
    ],
)
def test_a_search_that_does_not_fit_the_sweep_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        trials_of(sweep_of(**changes))


def test_recorded_cells_say_how_long_a_sweep_will_take(tmp_path, monkeypatch, capsys):
    _, out = run(tmp_path, monkeypatch)
    lines = (out / "records" / "timing.csv").read_text().splitlines()
    seconds = {row["cell"]: float(row["seconds"]) for row in csv.DictReader(lines)}
    rates = recorded_rates(tmp_path)
    assert rates.keys() == {("arithmetic", "tiny"), ("synthesis", "tiny")}
    assert min(seconds.values()) / 3e6 <= rates["arithmetic", "tiny"] <= max(seconds.values()) / 3e6
    capsys.readouterr()
    run(tmp_path, monkeypatch, "--dry-run", "name=other", "--out", str(tmp_path / "other"))
    assert f"at the rate of cells recorded in {tmp_path}" in capsys.readouterr().out


def test_times_are_told_in_words():
    assert [span(s) for s in (12.2, 119, 420, 12600)] == ["12 s", "119 s", "7 min", "3.5 h"]
