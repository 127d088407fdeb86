"""The table of a tuned sweep's trials."""

import itertools
import json
import statistics
from dataclasses import replace

import pandas as pd
import pytest
from synthetic_study import write_study

from harness.reports.figures import FIGURES, NoData
from harness.reports.formats import to_latex, to_markdown
from harness.reports.study import load_study
from harness.reports.tuning import COLUMNS, expected_best, load_tuning, tuning_table


@pytest.mark.parametrize("num", [1, 2, 3, 5])
def test_the_expected_best_is_the_mean_over_all_draws(num):
    scores = [0.3, 0.1, 0.7, 0.7, 0.0]
    brute = statistics.mean(max(draw) for draw in itertools.combinations(scores, num))
    assert expected_best(scores, num) == pytest.approx(brute, abs=1e-12)


def test_what_cannot_be_drawn_has_no_best():
    assert pd.isna(expected_best([0.1], 2))
    assert pd.isna(expected_best([], 1))


def row(arm, study, trial, score, chosen="", edges="", **settings):
    shown = json.dumps({f"update.{key}": value for key, value in settings.items()})
    return dict(zip(COLUMNS, (arm, "", study, trial, shown, score, 2, 0, 1e9, chosen, edges), strict=True))


ROWS = [
    row("grpo", None, 0, 0.5),
    row("grpo", 0, 1, 0.4, learning_rate=1e-5),
    row("grpo", 0, 2, 0.6, "[0]", "update.learning_rate high", learning_rate=1e-2),
    {**row("grpo", 1, 1, 0.0, learning_rate=1e-1), "num_diverged": 2},
    row("grpo", 1, 2, 0.7, "[1]", learning_rate=1e-3),
    row("gspo_x", None, 0, 0.9, "[0, 1]"),
    row("gspo_x", 0, 1, 0.1, learning_rate=1e-5),
    row("gspo_x", 0, 2, 0.2, learning_rate=1e-2),
    row("gspo_x", 1, 1, 0.3, learning_rate=1e-1),
    row("gspo_x", 1, 2, 0.4, learning_rate=1e-3),
]


def test_the_table_says_what_tuning_bought(tmp_path):
    pd.DataFrame(ROWS).to_csv(tmp_path / "tuning.csv", index=False)
    table = tuning_table(load_tuning(tmp_path))
    one, two = table.numbers
    assert one["tuned"] == pytest.approx((0.6 + 0.7) / 2)
    assert one["declared"] == 0.5
    assert one["best_of_1"] == pytest.approx((0.5 + 0.35) / 2)
    assert one["best_of_2"] == pytest.approx((0.6 + 0.7) / 2)
    assert "best_of_4" not in one
    assert (one["trials"], one["diverged"], one["lowest"]) == (4, 2, 0.0)
    assert one["spent_flops"] == 5e9
    assert two["tuned"] == 0.9
    text = to_markdown(table)
    assert "learning_rate = 0.01; learning_rate = 0.001" in text
    assert "as declared" in text
    assert "AT THE EDGE" in text
    assert "grpo: update.learning_rate high" in text
    assert r"gspo\_x" in to_latex(table)


def test_no_trials_and_records_of_another_version(tmp_path):
    assert load_tuning(tmp_path).empty
    (tmp_path / "tuning.csv").write_text("arm\ngrpo\n")
    with pytest.raises(ValueError, match="lacks the column apart"):
        load_tuning(tmp_path)


def test_the_figure_shows_every_trial_and_what_was_chosen(tmp_path):
    study = load_study(write_study(tmp_path, arms=("grpo", "gspo_x"), tasks=("arithmetic",)))
    with pytest.raises(NoData, match="not tuned"):
        FIGURES["tuning_trials"](study)
    (axes,) = FIGURES["tuning_trials"](replace(study, tuning=pd.DataFrame(ROWS))).axes
    assert (axes.get_xlabel(), axes.get_xscale()) == ("learning_rate", "log")
    grpo, chosen, other, nothing = axes.get_lines()
    assert [*zip(grpo.get_xdata(), grpo.get_ydata(), strict=True)] == [
        (1e-5, 0.4),
        (1e-2, 0.6),
        (1e-1, 0.0),
        (1e-3, 0.7),
    ]
    assert sorted(chosen.get_ydata()) == [0.6, 0.7]
    assert (len(other.get_xdata()), len(nothing.get_xdata())) == (4, 0)


def test_settings_that_are_always_equal_share_a_panel(tmp_path):
    study = load_study(write_study(tmp_path, arms=("grpo",), tasks=("arithmetic",)))
    rows = [row("grpo", 0, n, 0.1 * n, low=0.1 * n, high=0.1 * n, rate=1e-3 / n) for n in (1, 2, 3)]
    figure = FIGURES["tuning_trials"](replace(study, tuning=pd.DataFrame([row("grpo", None, 0, 0.5), *rows])))
    assert [axes.get_xlabel() for axes in figure.axes] == ["low (and high)", "rate"]
