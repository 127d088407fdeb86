"""Finding classes by file and building them, with errors that name what would do."""

import math
from pathlib import Path
from typing import Any

import pytest

import objectives
from objectives import Objective
from objectives.registry import discover, suggest

GRPO = Path(objectives.__file__).with_name("grpo.py")


def package(folder: Path, name: str, files: dict[str, str]) -> str:
    """Write a package whose modules are ``files`` beside a copy of grpo.py."""
    (folder / name).mkdir()
    for file, text in {"__init__": "", "copied": GRPO.read_text(encoding="utf-8"), **files}.items():
        (folder / name / f"{file}.py").write_text(text, encoding="utf-8")
    return name


def test_objectives_are_found_by_their_files() -> None:
    assert {"grpo", "gspo", "gspo_subsequence", "ppo"} <= set(objectives.names())
    assert objectives.names() == sorted(objectives.names())
    assert not {"base", "ops", "contract", "reference_engine"} & set(objectives.names())
    assert objectives.classes()["gspo"].__name__ == "GSPO"


def test_a_dropped_file_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = package(tmp_path, "dropped_ok", {"helpers": "X = 1\n", "again": "from objectives.gspo import GSPO\n"})
    assert {key: cls.__name__ for key, cls in discover(name, Objective).items()} == {"copied": "GRPO"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import objectives.nothing", "ModuleNotFoundError"),
        ("def f(:", "SyntaxError"),
        ("1 + ''", "TypeError"),
        ("undefined", "NameError"),
        ("import torch\ntorch.nonsense", "AttributeError"),
        ("raise ValueError('no')", "ValueError: no"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: str) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = package(tmp_path, f"broken_{abs(hash(text))}", {"faulty": text})
    with pytest.raises(ValueError, match=rf"{name}\.faulty cannot be imported: {error}"):
        discover(name, Objective)


def test_two_objectives_in_a_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = GRPO.read_text(encoding="utf-8")
    name = package(tmp_path, "dropped_two", {"both": source + "\n\nclass Second(GRPO):\n    pass\n"})
    with pytest.raises(ValueError, match=r"both defines GRPO, Second: one Objective a file"):
        discover(name, Objective)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gspoo", {}, r"unknown objective 'gspoo'; did you mean 'gspo'.*known: .*grpo, gspo"),
        ("grpo", {"clip_hi": 0.2}, r"objective 'grpo' has no setting 'clip_hi'; did you mean 'clip_high'"),
        ("grpo", {"preset": "dapo"}, r"has no preset 'dapo' \(known: none\)"),
        ("gspo_subsequence", {"preset": "onesided"}, r"no preset 'onesided'; did you mean 'one_sided'"),
        ("grpo", {"clip_low": "0.2"}, r"clip_low = '0.2' is a str, expected float"),
        ("grpo", {"clip_low": True}, r"clip_low = True is a bool, expected float"),
        ("gspo_subsequence", {"num_segments": 2.0}, r"num_segments = 2.0 is a float, expected int"),
        ("gspo_subsequence", {"num_segments": True}, r"num_segments = True is a bool, expected int"),
        ("gspo_subsequence", {"norm": "sum"}, r"norm = 'sum' is a str, expected one of 'none', 'mean'"),
        ("gspo_subsequence", {"num_segments": 0}, r"num_segments = 0 must be at least 1"),
        ("gspo_subsequence", {"segment_tokens": 0}, r"segment_tokens = 0 must be at least 1"),
        ("gspo_subsequence", {"combine": "mean", "outer_root": "tokens"}, r"outer_root is about a product of ratios"),
        ("gspo_subsequence", {"clip_low": 1.5}, r"clip_low = 1.5 must be between 0 and 1"),
        ("gspo_subsequence", {"std_eps": -1}, r"std_eps = -1.0 must be at least 0"),
        ("gspo", {"clip_high": -1e-9}, r"clip_high = -1e-09 must be at least 0"),
        ("gspo", {"clip_low": -0.1}, r"clip_low = -0.1 must be between 0 and 1"),
        ("grpo", {"clip_low": math.nan}, r"clip_low = nan must be between"),
        ("grpo", {"std_eps": math.nan}, r"std_eps = nan must be at least 0"),
        ("ppo", {"value_clip": 0}, r"value_clip = 0.0 must be above 0"),
        ("ppo", {"gamma": 1.01}, r"gamma = 1.01 must be between 0 and 1"),
        ("ppo", {"lam": -0.5}, r"lam = -0.5 must be between 0 and 1"),
        ("ppo", {"entropy_coef": -0.5}, r"entropy_coef = -0.5 must be at least 0"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        objectives.make(name, **settings)


def test_an_integer_stands_for_a_float() -> None:
    made = objectives.make("grpo", clip_low=1)
    assert type(made.clip_low) is float  # pyright: ignore
    assert made == objectives.make("grpo", clip_low=1.0)


def test_explicit_settings_win_over_the_preset() -> None:
    made: Any = objectives.make("gspo_subsequence", preset="one_sided", clip_mode="plain", clip_low=0.5)
    assert (made.clip_mode, made.clip_low) == ("plain", 0.5)


@pytest.mark.parametrize(
    ("preset", "mode"), [(None, "plain"), ("literal", "plain"), ("one_sided", "one_sided"), ("detached", "stopgrad")]
)
def test_presets_of_the_subsequence_objective(preset: str | None, mode: str) -> None:
    made: Any = objectives.make("gspo_subsequence", preset=preset)
    assert (made.clip_mode, made.combine, made.norm, made.outer_root) == (mode, "product", "none", "none")
    assert (made.segment_rule, made.num_segments, made.clip_low, made.clip_high) == ("fixed_k", 4, 0.2, 0.2)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", {"clip_low": 0.2, "clip_high": 0.2}),
        ("gspo", {"clip_low": 3e-4, "clip_high": 4e-4}),
        (
            "ppo",
            {"clip_low": 0.2, "clip_high": 0.2, "value_clip": 0.2, "gamma": 1.0, "lam": 0.95, "entropy_coef": 0.01},
        ),
    ],
)
def test_defaults_are_the_papers(name: str, expected: dict[str, float]) -> None:
    made = objectives.make(name)
    assert {key: getattr(made, key) for key in expected} == expected
    assert type(made).updates_per_rollout == "several"


def test_group_objectives_need_two_responses_a_prompt() -> None:
    found = {name: objectives.classes()[name].min_group_size for name in ("grpo", "gspo", "gspo_subsequence", "ppo")}
    assert found == {"grpo": 2, "gspo": 2, "gspo_subsequence": 2, "ppo": 1}


def test_suggest_lists_what_is_known() -> None:
    assert suggest("clip", ["clip_low", "std"]) == "; did you mean 'clip_low'? (known: clip_low, std)"
    assert suggest("x", []) == " (known: none)"
