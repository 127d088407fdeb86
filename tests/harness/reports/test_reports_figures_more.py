"""What the newer figures compute: thresholds, profiles, fits, swept settings, maps, fates."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from synthetic_study import write_study

from harness.reports.figures import FIGURES, NoData
from harness.reports.figures.settings import swept
from harness.reports.figures.stability import fates
from harness.reports.fits import fit_frame
from harness.reports.resampling import performance_profile
from harness.reports.scores import outcomes
from harness.reports.sigmoid import sigmoid
from harness.reports.study import load_study
from harness.reports.trajectories import first_reached, largest_fall, median_with_misses


@pytest.fixture
def study(tmp_path):
    arms = ("grpo epochs=1", "grpo epochs=2", "grpo epochs=4", "gspo epochs=1", "gspo epochs=2", "gspo epochs=4")
    failed = {("gspo epochs=4", "arithmetic", 1): ("failed", "loss is nan at update 3")}
    found = load_study(write_study(tmp_path, arms=arms, tasks=("arithmetic",), statuses=failed, iterations=8))
    found.cells["objective"] = found.cells["arm"].str.split(" ").str[0]
    found.cells["config.update.epochs"] = found.cells["arm"].str[-1]
    return found


def test_thresholds_and_falls_by_hand():
    assert first_reached([0, 10, 20], [0.2, 0.5, 0.4], 0.45) == 10
    assert first_reached([0, 10], [0.2, 0.3], 0.45) == math.inf
    assert median_with_misses([3, math.inf, 1]) == 3
    assert median_with_misses([3, math.inf]) == math.inf
    # means of two: 0.5, 0.9, 0.5, 0.15: the fall is 0.9 - 0.15
    assert largest_fall([0.1, 0.9, 0.9, 0.1, 0.2], 2) == pytest.approx(0.75)
    runs = [np.array([0.1, 0.3]), np.array([0.2, 0.2])]
    assert performance_profile(runs, [0.0, 0.2, 0.25]) == pytest.approx([1.0, 0.25, 0.25])


def test_the_fits_of_the_figure_are_those_of_the_table(tmp_path):
    """Points lie on an exact sigmoid, whose parameters the caption then holds; an arm that does not rise is named."""
    fractions = tuple(np.geomspace(0.05, 1, 9).round(3))
    study = load_study(write_study(tmp_path, arms=("grpo", "gspo"), tasks=("arithmetic",), fractions=(0.0, *fractions)))
    evals, cells = study.evals, study.cells.set_index("cell")
    compute = evals["fraction"] * evals["cell"].map(cells["budget_amount"])
    middle = 0.2 * float(cells["budget_amount"].iloc[0])
    arms = evals["cell"].map(cells["arm"])
    rising = 0.2 + 0.5 / (1 + (middle / compute.where(compute > 0, 1e-300)) ** 2)
    evals["score"] = np.where(arms == "grpo", rising, 0.2)
    figure = FIGURES["sigmoid_fit"](study)
    text = figure.texts[-1].get_text().replace("\n", " ")
    assert f"grpo arithmetic: A 0.700 [0.700, 0.700], B 2, C_mid {middle:.2g}" in text
    assert "Not fitted, the score does not rise: gspo arithmetic." in text
    (row, _) = fit_frame(study).to_dict("records")
    line = next(line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 60)
    compute = line.get_xdata() * float(study.cells["budget_amount"].iloc[0]) / line.get_xdata()[-1]
    assert line.get_ydata() == pytest.approx(
        sigmoid(compute, *(row[n] for n in ("start", "asymptote", "steepness", "midpoint")))
    )


def test_swept_settings_are_arms_that_differ_in_one_alone(study):
    (setting,) = swept(study)
    assert (setting.keys, setting.label) == (("update.epochs",), "epochs")
    assert [line.name for line in setting.lines] == ["grpo", "gspo"]
    assert [value for value, _, _ in setting.lines[0].points] == [1, 2, 4]


def test_a_condition_is_swept_across_the_tasks_that_it_makes(tmp_path):
    tasks = ("arithmetic epochs=1", "arithmetic epochs=4")
    found = load_study(write_study(tmp_path, arms=("grpo", "gspo"), tasks=tasks))
    found.cells["policy"] = "tiny"
    found.cells["condition"] = found.cells["task"].str.split(" ").str[1]
    found.cells["config.update.epochs"] = found.cells["task"].str[-1]
    found.cells["config.update.learning_rate"] = [str(place) for place in range(len(found.cells))]
    tuned = replace(found, tuning=pd.DataFrame({"settings": ["{}", '{"update.learning_rate": 1}']}))
    (setting,) = swept(tuned)
    assert setting.keys == ("update.epochs",)
    assert [(line.task, line.name) for line in setting.lines] == [("arithmetic", "grpo"), ("arithmetic", "gspo")]
    assert setting.lines[1].points == ((1, tasks[0], "gspo"), (4, tasks[1], "gspo"))
    figure = FIGURES["off_policy_stress"](tuned)
    (line, *_) = figure.axes[0].get_lines()
    scores = outcomes(tuned).groupby(["arm", "task"])["final"].mean()
    assert line.get_ydata() == pytest.approx([scores["grpo", task] for task in tasks])
    assert line.get_xdata() == pytest.approx([1, 4])


def test_settings_that_vary_as_one_are_one(study):
    study.cells["config.objective.clip_low"] = study.cells["config.update.epochs"].map(
        {"1": "0.1", "2": "0.2", "4": "0.3"}
    )
    (setting,) = swept(study)
    assert setting.label == "clip_low (with epochs)" or setting.label == "epochs (with clip_low)"


def test_stress_shows_the_mean_of_completed_seeds_and_names_the_failed_one(study):
    figure = FIGURES["off_policy_stress"](study)
    line = figure.axes[0].get_lines()[0]
    table = outcomes(study)
    expected = table[table["arm"].str.startswith("grpo")].groupby("arm", sort=False)["final"].mean()
    assert line.get_ydata() == pytest.approx(expected.to_numpy())
    words = " ".join(" ".join(text.get_text().split()) for text in figure.texts)
    assert "diverged: gspo epochs=4 arithmetic seed 1 (loss is nan at update 3; " in words


def test_fates_tell_diverged_from_failed_and_collapsed(study):
    table = outcomes(study)
    assert set(fates(study, table[table["arm"] == "gspo epochs=4"])) == {"completed", "diverged"}
    cell = table.loc[0, "cell"]
    study.metrics.loc[study.metrics["cell"] == cell, "entropy_nats"] = 1e-3
    assert fates(study, table)[0] == "collapsed"


def test_maps_of_recorded_counts(study):
    cells = study.cells.loc[study.cells["status"] == "completed", "cell"]
    rows = [
        {"cell": cell, "name": name, "x_low": x, "x_high": 2 * x, "y_low": y, "y_high": y + 1.0, "count": 30.0}
        for cell in cells
        for name in ("ratio_by_position", "clip_by_length")
        for x in (0.5, 1.0)
        for y in (-0.5, 0.5)
    ]
    object.__setattr__(study, "distributions", pd.DataFrame(rows))
    line = FIGURES["clip_by_length"](study).axes[0].get_lines()[-1]
    assert line.get_ydata() == pytest.approx([0.5, 0.5])  # 30 of 60 tokens are clipped
    shown = FIGURES["ratio_by_position"](study).axes[0].collections[0].get_array()
    assert np.asarray(shown).ravel() == pytest.approx([0.5] * 4)
    with pytest.raises(NoData, match="no sampler_probability"):
        FIGURES["sampler_trainer"](study)


def test_pass_at_k_against_k(study):
    for k, rise in ((1, 0.0), (2, 0.1), (4, 0.2)):
        study.evals[f"pass_at_{k}"] = study.evals["score"] + rise
    axes = FIGURES["pass_at_k"](study).axes[0]
    line = axes.get_lines()[-1]
    final = outcomes(study)
    mean = final.loc[final["arm"] == "grpo epochs=1", "final"].mean()
    assert line.get_xdata() == pytest.approx([1, 2, 4])
    assert line.get_ydata() == pytest.approx([mean, mean + 0.1, mean + 0.2])
    with pytest.raises(NoData, match="maj@k of no k"):
        FIGURES["majority_at_k"](study)
