"""Figures: what they say in words, that nothing overlaps, and degenerate studies."""

import contextlib
import itertools
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.text import Text
from synthetic_study import ARMS, write_study

from harness.reports.figures import FIGURES, NoData
from harness.reports.figures.saving import save
from harness.reports.figures.style import COLUMN, PAGE, PLACE_DECIMALS, SMALL, applied, looks
from harness.reports.statistics import mean_interval
from harness.reports.study import load_study

NOT_RECORDED = (
    *("all_right_groups", "up_clipped", "up_clipped_probability", "kl_ref", "routing_replay", "sigmoid_fit"),
    *("log_ratio_variance", "ratio_by_position", "sampler_trainer", "clip_by_length"),
    *("pass_at_k", "majority_at_k", "sensitivity", "off_policy_stress", "learning_curves_flops"),
    "tuning_trials",
)
"""Figures that the shared study has no data for; their own tests are in test_reports_figures_more.py."""
DRAWN = [name for name in FIGURES if name not in NOT_RECORDED]
WITH_TASKS = [name for name in DRAWN if name not in ("surrogate_shape", "performance_profiles")]


def _texts(figure):
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


def _words(figure):
    return " ".join(" ".join(text.get_text().split()) for text in _texts(figure))


def _load(folder, **settings):
    return load_study(write_study(folder, **({"tasks": ("arithmetic",), "iterations": 4} | settings)))


@pytest.mark.parametrize("name", DRAWN)
def test_every_figure_names_its_unfinished_cells(drawn, name):
    words = _words(drawn[name])
    assert "failed: gspo arithmetic seed 2 (nan loss)" in words
    assert "running: gspo+dual arithmetic seed 0" in words
    assert "missing: grpo synthesis seed 1" in words


@pytest.mark.parametrize("name", WITH_TASKS)
def test_every_figure_states_seeds_tasks_and_labels_its_axes(drawn, name):
    words = _words(drawn[name])
    assert "n = 2 to 3 completed seeds an arm and task." in words
    titles = [axes.get_title() for axes in drawn[name].axes if axes.axison]
    assert {title.split("\n")[0].split(":")[0] for title in titles if title} == {"arithmetic", "synthesis"}
    assert drawn[name].get_supxlabel() or any(axes.get_xlabel() for axes in drawn[name].axes)


@pytest.mark.parametrize("name", DRAWN)
def test_text_is_readable_inside_the_page_and_does_not_overlap(drawn, name):
    figure = drawn[name]
    assert figure.get_figwidth() in (COLUMN, PAGE)
    renderer = FigureCanvasAgg(figure).get_renderer()
    owned = [axes.title for axes in figure.axes] + [axes.xaxis.label for axes in figure.axes]
    owned += [axes.yaxis.label for axes in figure.axes] + figure.texts
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in owned if text.get_text().strip()]
    boxes += [("legend", legend.get_window_extent(renderer)) for legend in figure.legends]
    page = figure.bbox
    for text, box in boxes:
        assert box.x0 >= page.x0 - 1, text
        assert box.y0 >= page.y0 - 1, text
        assert box.x1 <= page.x1 + 1, text
        assert box.y1 <= page.y1 + 1, text
    for (first, one), (second, two) in itertools.combinations(boxes, 2):
        assert min(one.x1, two.x1) - max(one.x0, two.x0) <= 0 or min(one.y1, two.y1) - max(one.y0, two.y0) <= 0, (
            f"{first!r} overlaps {second!r}"
        )
    assert min(text.get_fontsize() for text in _texts(figure)) >= SMALL


def test_eight_arms_can_be_told_apart(tmp_path):
    study = _load(tmp_path, arms=ARMS, seeds=(0,), iterations=2)
    found = {(look.color, look.marker, look.dashed) for look in looks(study).values()}
    assert len(found) == len(ARMS)
    assert looks(study)["gspo"].color == looks(study)["gspo+dual"].color
    assert [looks(study)[arm].dashed for arm in ARMS] == ["+" in arm for arm in ARMS]


def test_learning_curve_is_the_mean_over_completed_seeds(drawn, study):
    axes = drawn["learning_curves"].axes[0]
    arm = "ppo"
    cells = study.cells[(study.cells["arm"] == arm) & (study.cells["task"] == "arithmetic")]["cell"]
    rows = study.evals[study.evals["cell"].isin(cells) & (study.evals["split"] == "validation")]
    expected = rows.groupby("fraction")["score"].mean()
    lines = [line for line in axes.get_lines() if to_hex(line.get_color()) == looks(study)[arm].color.lower()]
    line = next(line for line in lines if len(line.get_xdata()) == 5)
    # the budget is 2e12, drawn in units of 1e12
    assert line.get_xdata() == pytest.approx(expected.index.to_numpy() * 2)
    assert line.get_ydata() == pytest.approx(expected.to_numpy())


def test_band_is_the_t_interval(tmp_path):
    study = _load(tmp_path, arms=("grpo",), seeds=(0, 1, 2))
    axes = FIGURES["learning_curves"](study).axes[0]
    final = study.evals[(study.evals["split"] == "validation") & (study.evals["fraction"] == 1)]["score"]
    band = axes.collections[0].get_paths()[0].vertices
    at_end = band[np.isclose(band[:, 0], 2.0), 1]
    interval = mean_interval(final)
    assert (at_end.min(), at_end.max()) == pytest.approx((interval.low, interval.high))


def test_two_seeds_get_single_lines_and_no_band(tmp_path):
    study = _load(tmp_path, arms=("grpo",), seeds=(0, 1))
    axes = FIGURES["learning_curves"](study).axes[0]
    assert not axes.collections
    assert len(axes.get_lines()) == 3
    assert "thin lines: single seeds" in _words(axes.figure)


def test_zero_and_missing_clip_fractions_are_told_apart(tmp_path):
    study = _load(tmp_path, arms=("grpo", "gspo_subsequence:detached", "gspo"), seeds=(0, 1))
    cells = study.cells.loc[study.cells["arm"] == "gspo", "cell"]
    study.metrics.loc[study.metrics["cell"].isin(cells), "clip_frac"] = math.nan
    axes = FIGURES["clip_fraction"](study).axes[0]
    notes = {round(text.xy[1]): text.get_text() for text in axes.texts}
    assert (notes[1], notes[2]) == ("0", "n/a")
    assert len(axes.patches) == 1
    cells = study.cells.loc[study.cells["arm"] == "grpo", "cell"]
    means = study.metrics[study.metrics["cell"].isin(cells)].groupby("cell")["clip_frac"].mean()
    bar = axes.patches[0]
    assert bar.get_x() + bar.get_width() == pytest.approx(means.mean())
    assert notes[0] == f"{means.mean():.2g}"


def test_kl_figures_draw_the_bound_in_its_own_unit_only(tmp_path):
    study = _load(tmp_path, arms=("grpo", "gspo+dual"), seeds=(0,))
    assert "delta 0.05" in _words(FIGURES["kl_old"](study))
    assert "delta 0.05" not in _words(FIGURES["kl_old_per_token"](study))
    study.cells.loc[study.cells["arm"] == "gspo+dual", "delta_unit"] = "per_token"
    words = _words(FIGURES["kl_old"](study))
    assert "delta 0.05" not in words
    assert "gspo+dual: bound 0.05 nats per token, not on this axis." in words
    assert "delta 0.05" in _words(FIGURES["kl_old_per_token"](study))


def test_ratio_density_integrates_to_one(tmp_path):
    study = _load(tmp_path, arms=("grpo",), seeds=(0, 1))
    line = max(FIGURES["ratio_distribution"](study).axes[0].get_lines(), key=lambda line: len(line.get_xdata()))
    x, y = line.get_xdata().reshape(-1, 2), np.nan_to_num(line.get_ydata().reshape(-1, 2)[:, 0])
    assert float(np.sum((x[:, 1] - x[:, 0]) * y)) == pytest.approx(1.0)


def test_surrogates_skip_region_duplicates_and_join_equal_curves(tmp_path):
    study = _load(tmp_path, arms=("ppo", "grpo", "gspo", "gspo+dual"), seeds=(0,))
    figure = FIGURES["surrogate_shape"](study)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ppo = grpo", "gspo"]
    assert [axes.get_title() for axes in figure.axes[:2]] == ["A = +1", "A = -1"]
    line = figure.axes[0].get_lines()[0]
    # at ratio 1.6 and A = +1 the clip holds grpo's surrogate at 1.2
    assert line.get_ydata()[-1] == pytest.approx(1.2)


def test_more_surrogates_than_colours_get_a_panel_each(tmp_path):
    arms = tuple(f"arm{place:02d}" for place in range(9))
    study = _load(tmp_path, arms=arms, seeds=(0,), iterations=2)
    step = study.surrogates["arm"].str[3:].astype(int) / 10
    study.surrogates["weight"] = study.surrogates["advantage"] * (1 + step)
    study.surrogates.loc[study.surrogates["arm"] == "arm08", "weight"] = study.surrogates["advantage"]
    first = study.surrogates["arm"] == "arm00"
    last = study.surrogates["arm"] == "arm08"
    study.surrogates.loc[last, "loss"] = study.surrogates.loc[first, "loss"].to_numpy()
    figure = FIGURES["surrogate_shape"](study)
    shown = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title() for axes in shown] == ["arm00 = arm08", *arms[1:8]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["A = +1", "A = -1"]
    plus, minus, _ = shown[3].get_lines()
    assert set(plus.get_ydata()) == {1.3}
    assert set(minus.get_ydata()) == {-1.3}


def test_many_arms_become_rows_of_a_heat_map(tmp_path):
    arms = ("grpo", *(f"grpo+region{place:02d}" for place in range(13)))
    failed = {("grpo", "arithmetic", 1): ("failed", "oom")}
    study = _load(tmp_path, arms=arms, seeds=(0, 1, 2), iterations=2, statuses=failed)
    axes = FIGURES["entropy"](study).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(arms)
    assert "2/3" in _words(axes.figure)
    cells = study.cells.loc[(study.cells["arm"] == arms[5]) & (study.cells["task"] == "arithmetic"), "cell"]
    last = study.metrics[study.metrics["cell"].isin(cells) & (study.metrics["iteration"] == 2)]["entropy_nats"].mean()
    shown = axes.images[0].get_array()
    assert shown[5, -1] == pytest.approx(last)
    with pytest.raises(NoData, match="learning_curves shows the same"):
        FIGURES["learning_curves_by_objective"](study)


def test_final_scores_show_mean_interval_seeds_and_start(tmp_path):
    study = _load(tmp_path, arms=("grpo", "gspo"), seeds=(0, 1, 2))
    axes = FIGURES["final_scores"](study).axes[0]
    finals = study.evals[(study.evals["split"] == "test") & (study.evals["fraction"] == 1)]
    own = finals[finals["cell"].str.startswith("ari00")]["score"].to_numpy()
    interval = mean_interval(own)
    ends = axes.containers[0].lines[2][0].get_segments()[0][:, 0]
    assert ends == pytest.approx([interval.low, interval.high])
    data = [list(line.get_xdata()) for line in axes.get_lines()]
    assert any(np.allclose(x, own) for x in data if len(x) == 3)
    # seeds start at 0.30, 0.31 and 0.32
    assert any(np.allclose(x, [0.31, 0.31]) for x in data if len(x) == 2)


def test_missing_columns_are_said_not_drawn(tmp_path):
    blank = ("clip_frac", "kl_old_per_sequence_nats", "entropy_nats", "dead_frac", "response_tokens_mean")
    study = _load(tmp_path, arms=("grpo", "gspo"), seeds=(0,), blank_metrics=blank, surrogates=False)
    columns = dict(zip(("clip_fraction", "kl_old", "entropy", "dead_fraction", "response_length"), blank, strict=True))
    for name, column in columns.items():
        with pytest.raises(NoData, match=f"metrics.csv has no {column}"):
            FIGURES[name](study)
    with pytest.raises(NoData, match=r"surrogates\.csv has no rows"):
        FIGURES["surrogate_shape"](study)


@pytest.mark.parametrize("name", DRAWN)
def test_one_arm_one_seed_and_nothing_completed(tmp_path, name):
    study = _load(tmp_path, arms=("grpo",), seeds=(0,), statuses={("grpo", "arithmetic", 0): ("failed", "killed")})
    with contextlib.suppress(NoData):  # which says so in one line; else the figure names the cell
        figure = FIGURES[name](study)
        assert "failed: grpo arithmetic seed 0 (killed)" in _words(figure)


@pytest.mark.parametrize("name", ["learning_curves", "paired_differences", "entropy"])
def test_twenty_arms_are_all_named(tmp_path, name):
    arms = tuple(f"arm{place:02d}" for place in range(20))
    study = _load(tmp_path, arms=arms, seeds=(0, 1), iterations=2)
    words = _words(FIGURES[name](study))
    assert all(arm in words for arm in arms)
    assert len({(look.color, look.marker) for look in looks(study).values()}) == 20


def test_many_failures_stay_counted(tmp_path):
    arms = tuple(f"arm{place:02d}" for place in range(20))
    statuses = {(arm, "arithmetic", seed): ("failed", "oom") for arm in arms[1:] for seed in (0, 1)}
    study = _load(tmp_path, arms=arms, seeds=(0, 1), iterations=2, statuses=statuses)
    # 19 arms of two seeds failed: 12 arms are listed, 7 * 2 cells counted
    assert "and 14 more, see the comparison table" in _words(FIGURES["final_scores"](study))


def test_a_users_style_is_applied_on_top_and_leaves_no_trace(tmp_path):
    study = _load(tmp_path, arms=("grpo",), seeds=(0,), iterations=2)
    before = pd.Series({"size": SMALL})
    style = tmp_path / "mine.mplstyle"
    style.write_text("axes.titlesize: 11\n")
    label = FIGURES["final_scores"](study, style=style).axes[0].title
    assert label.get_fontsize() == 11
    assert FIGURES["final_scores"](study).axes[0].title.get_fontsize() == 8
    assert before["size"] == SMALL
    with pytest.raises(ValueError, match="no matplotlib style"), applied(tmp_path / "none.mplstyle"):
        pass


def test_an_unknown_format_is_refused(drawn):
    with pytest.raises(ValueError, match="unknown figure format 'gif'; known: png, pdf, svg"):
        save(drawn["entropy"], "gif")


@pytest.mark.parametrize("name", DRAWN)
def test_places_of_panels_are_rounded_above_the_noise_of_the_layout(drawn, name):
    places = [end for axes in drawn[name].axes for end in axes.get_position().bounds]
    assert all(abs(end - round(end, PLACE_DECIMALS)) < 1e-12 for end in places)
