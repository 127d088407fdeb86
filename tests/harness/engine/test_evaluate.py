import itertools
import json
import math
import re
import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from tiny_engine import TINY, cell, make_config, plugin

from harness import plugins
from harness.cli import main
from harness.config.errors import UserError
from harness.config.policies import PolicyConfig
from harness.config.schema import Plugin
from harness.engine import embedded, recorder
from harness.engine.evaluate import Evaluation, evaluate
from harness.engine.loading import load_policy
from harness.engine.samplers import NativeSampler
from harness.reports.study import load_study
from harness.sweeps.compact import compact
from tasks.base import Example, Score


def scored(*values, samples=1, difficulties=None):
    scores = [Score(v, "infra" if math.isnan(v) else "pass" if v == 1 else "wrong") for v in values]
    labels = difficulties or [""] * len(values)
    examples = [Example(str(i // samples), "test", label) for i, label in enumerate(labels)]
    texts = [""] * len(values)
    return Evaluation(examples, texts, scores, [3] * len(values), samples, texts)


def test_the_score_is_a_mean_over_prompts_of_means_over_known_samples():
    nan = math.nan
    assert scored(1.0, 0.0, 1.0, 1.0).summary()["score"] == 0.75
    assert scored(1.0, nan, 0.0, 0.0, samples=2).summary()["score"] == 0.5  # 1 of the first prompt, 0 of the second
    assert scored(1.0, nan, nan, nan, samples=2).summary()["score"] == 1.0  # nothing is known of the second
    assert scored(nan, nan).summary()["score"] is None


def test_a_summary_by_hand():
    summary = scored(1.0, 0.0, math.nan, 1.0, difficulties=["a", "a", "a", "b"]).summary()
    low, high = summary.pop("pass_at_1_low"), summary.pop("pass_at_1_high")
    assert (low, high) == (pytest.approx(0.207660, abs=1e-6), pytest.approx(0.938508, abs=1e-6))  # Wilson, 2 of 3
    assert {name: row["num_scored_prompts"] for name, row in summary.pop("pass_by_difficulty").items()} == {
        "a": 2, "b": 1,
    }  # fmt: skip
    assert summary == {
        "score": pytest.approx(2 / 3),
        "num_prompts": 4,
        "num_responses": 4,
        "response_tokens_mean": 3.0,
        "infra": 1,
        "verdicts": {"infra": 1, "pass": 2, "wrong": 1},
        "by_difficulty": {"a": 0.5, "b": 1.0},
        "pass_at_1": pytest.approx(2 / 3),
        "pass_at_1_prompts": 3,
        "pass_at_1_floor": 0.5,
    }


@pytest.fixture
def task():
    return plugins.task(Plugin.model_validate(plugin("EvenAnswer", train_size=9, validation_size=9, test_size=9)))


def run(task, **changes):
    settings = {
        "split": "validation", "num_prompts": 9, "samples": 2, "temperature": 1.0, "seed": 0, "limit": 8,
        "batch_rows": 100, **changes,
    }  # fmt: skip
    return evaluate(load_policy(PolicyConfig(), "arithmetic"), NativeSampler(), task, **settings)


def test_how_many_are_sampled_at_a_time_does_not_matter(tiny, task):
    whole = run(task)
    for rows in (1, 5, 7):
        part = run(task, batch_rows=rows)
        assert part.responses == whole.responses
        assert part.summary() == whole.summary()
        assert part.work.generated_tokens == whole.work.generated_tokens
        assert part.work.flops == whole.work.flops
    assert [e.id for e in whole.examples[::2]] == [e.id for e in task.examples("validation")]


def test_noise_is_that_of_seed_split_and_prompt(tiny, task):
    whole = run(task)
    assert run(task).responses == whole.responses
    assert run(task, num_prompts=4).responses == whole.responses[:8]
    assert run(task, seed=1).responses != whole.responses
    assert run(task, samples=1).responses == whole.responses[::2]
    assert any(a != b for a, b in zip(whole.responses[::2], whole.responses[1::2], strict=True))


def test_temperature_zero_is_greedy(tiny, task):
    greedy = run(task, temperature=0.0)
    assert greedy.responses[::2] == greedy.responses[1::2]


def test_lengths_are_of_tokens_with_the_end(tiny, task):
    found = run(task)
    assert sum(found.lengths) == found.work.generated_tokens
    for text, length in zip(found.responses, found.lengths, strict=True):
        assert length in (len(text), len(text) + 1)
        assert length <= 8


def test_more_prompts_than_the_split_has_are_refused(tiny, task):
    with pytest.raises(UserError, match="10 prompts asked of split 'test', which has 9"):
        run(task, split="test", num_prompts=10)


def test_more_of_k_than_responses_is_refused(tiny, task):
    with pytest.raises(UserError, match=r"pass@5 asked of 2 response\(s\) a prompt: sample 5 or more"):
        run(task, ks=(1, 5))


def test_rows_name_prompt_and_sample(tiny, task):
    rows = run(task, num_prompts=3).rows()
    assert [(row["prompt_index"], row["sample_index"]) for row in rows] == [(p, s) for p in range(3) for s in range(2)]
    for row, example in zip(rows[::2], task.examples("validation"), strict=False):
        assert (row["id"], row["prompt"], row["difficulty"]) == (example.id, task.prompt(example), example.difficulty)
        assert row["value"] == (None if row["verdict"] == "infra" else float(row["verdict"] == "pass"))


def test_pass_at_k_of_an_evaluation_is_that_of_its_verdicts(tiny, task):
    found = run(task, samples=4, ks=(1, 2, 4))
    summary = found.summary()
    rights = [[s.verdict == "pass" for s in found.scores[i : i + 4]] for i in range(0, 36, 4)]
    assert 0 < sum(map(any, rights)) < 36
    assert summary["infra"] == 0
    assert summary["pass_at_4"] == pytest.approx(sum(map(any, rights)) / 9)
    pairs = [[any(pair) for pair in itertools.combinations(right, 2)] for right in rights]
    assert summary["pass_at_2"] == pytest.approx(sum(sum(p) / 6 for p in pairs) / 9)


def test_pass_k_above_samples_is_no_configuration():
    with pytest.raises(
        UserError, match=r"asks for pass@5 of eval.samples = 2 response\(s\) a prompt: set eval.samples"
    ):
        make_config(eval={"samples": 2, "pass_k": [1, 5]})
    with pytest.raises(UserError, match=r"eval.pass_k = \[0\] holds 0: k is at least 1"):
        make_config(eval={"pass_k": [0]})
    with pytest.raises(UserError, match=r"eval\.pass_k"):
        make_config(eval={"pass_k": []})


@pytest.fixture(scope="module")
def trained(taught, tmp_path_factory):
    """Return the folder of a run with two responses a prompt, as the fixture ``tiny`` would make it."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(embedded.PRESETS, "tiny", TINY)
        patch.setattr(embedded, "weights_file", lambda *_: taught)
        patch.setattr(recorder, "_STARTS", {})
        cell(make_config(eval={"samples": 2, "pass_k": [1, 2], "test_prompts": 8}, budget={"amount": 2}), folder)
    return folder


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_run_records_rates_and_samples(tiny, trained):
    rows = lines(trained / "evals.jsonl")
    assert {row["split"] for row in rows} == {"validation", "test"}
    for row in rows:
        assert {"pass_at_1", "pass_at_2_low", "pass_at_2_prompts", "maj_at_2", "pass_by_difficulty"} <= row.keys()
        assert row["num_responses"] == 2 * row["num_prompts"]
        assert sum(d["num_prompts"] for d in row["pass_by_difficulty"].values()) == row["num_prompts"]
    for row in lines(trained / "samples.jsonl"):
        assert {"difficulty", "value", "prompt_index", "sample_index", "fraction", "prompt", "reason"} <= row.keys()


def test_what_a_run_records_of_an_evaluation_is_in_the_readme(tiny, trained):
    text = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    section = text.split("## Evaluations\n", 1)[1].split("\n## ", 1)[0]
    listed = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\S+)`", row)
    }
    for k in ("1", "2"):
        listed |= {name.replace("<k>", k) for name in listed if "<k>" in name and (k != "1" or "pass" in name)}
    listed -= {name for name in listed if "<k>" in name}
    assert listed == {name for row in lines(trained / "evals.jsonl") for name in row}


def test_eval_prints_a_table_and_writes_every_sample(tiny, trained, capsys, tmp_path):
    out = tmp_path / "all.jsonl"
    words = ["eval", str(trained), "--num-prompts", "10", "--samples", "4", "--k", "1,3", "--out", str(out)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "EvenAnswer, test: 10 prompts x 4 responses at temperature 1" in text
    assert [line.split()[0] for line in text.splitlines() if line.startswith("pass@")] == ["pass@1", "pass@3"]
    rows = lines(out)
    assert len(rows) == 40
    share = sum(row["verdict"] == "pass" for row in rows) / 40
    assert f"{share:.3f}" in next(line for line in text.splitlines() if line.startswith("pass@1"))
    assert "\x1b" not in text
    assert main(["samples", str(out), "--limit", "1"]) == 0
    assert "[1/1]" in capsys.readouterr().out


def test_eval_with_another_sampler_asks_for_it(tiny, trained, capsys, monkeypatch):
    assert main(["eval", str(trained), "--json", "--sampler", "native"]) == 0
    (recorded,) = [r for r in lines(trained / "evals.jsonl") if (r["split"], r["fraction"]) == ("test", 1.0)]
    assert json.loads(capsys.readouterr().out)["score"] == recorded["score"]

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("harness.config.sampler.version", missing)
    assert main(["eval", str(trained), "--sampler", "vllm"]) == 2
    error = capsys.readouterr().err
    assert "pip install 'evengrad[vllm]'" in error
    assert len(error.splitlines()) == 1


def test_eval_as_json_is_the_runs_own_evaluation(tiny, trained, capsys):
    assert main(["eval", str(trained), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (recorded,) = [r for r in lines(trained / "evals.jsonl") if (r["split"], r["fraction"]) == ("test", 1.0)]
    assert found.pop("problems_changed") is False
    assert found == {name: recorded[name] for name in found}
    assert main(["eval", str(trained), "--json", "--samples", "3"]) == 0
    assert "pass_at_3" in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--k", "1,4"], "pass@4 asked of 2 response(s) a prompt: give --samples 4"),
        (["--samples", "1", "--k", "2"], "pass@2 asked of 1 response(s) a prompt: give --samples 2"),
        (["--k", "1,x"], "'x' is no whole number"),
        (["--temperature", "-1"], "-1 is neither 0 nor a finite number >= 0.001"),
        (["--temperature", "nan"], "nan is neither 0 nor a finite number >= 0.001"),
        (["--temperature", "1e-300"], "1e-300 is neither 0 nor a finite number >= 0.001"),
        (["--num-prompts", "21"], "21 prompts asked of split 'test', which has 20"),
        (["--out", "none/all.jsonl"], "the folder none does not exist"),
    ],
)
def test_eval_refuses_in_one_line(tiny, trained, capsys, words, message):
    assert main(["eval", str(trained), *words]) == 2
    line = capsys.readouterr().err
    assert message in line
    assert line.count("\n") == 1


@pytest.fixture
def copied(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "copied"))


def test_eval_says_that_the_problems_have_changed(tiny, copied, capsys):
    assert main(["eval", str(copied)]) == 0
    assert "not those that the run was made with" not in capsys.readouterr().out
    identity = json.loads((copied / "config.json").read_text())
    identity["sources"]["problems"] = "of other data"
    (copied / "config.json").write_text(json.dumps(identity))
    assert main(["eval", str(copied)]) == 0
    assert "not those that the run was made with" in capsys.readouterr().out
    assert main(["eval", str(copied), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems_changed"] is True


@pytest.mark.parametrize("name", ["run.json", "config.json"])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"{", b"[]", b"{}", b"null"])
def test_a_run_that_cannot_be_read_is_one_line(tiny, copied, capsys, name, content):
    (copied / name).write_bytes(content)
    assert main(["eval", str(copied)]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert f"{copied / name} is not the configuration of a run" in line


def test_a_greedy_evaluation_says_that_its_samples_are_equal(tiny, trained, capsys):
    assert main(["eval", str(trained), "--temperature", "0"]) == 0
    assert "At temperature 0 all responses to a prompt are the same" in capsys.readouterr().out


def test_rates_are_columns_of_the_records(tiny, trained, tmp_path):
    config = json.loads((trained / "run.json").read_text())
    one = {"key": "a", "arm": "grpo", "task": "t", "policy": "p", "seed": 0, "config": config, "facts": {}}
    (tmp_path / "sweep.json").write_text(json.dumps({"name": "x", "baseline": "grpo", "cells": [one]}))
    shutil.copytree(trained, tmp_path / "cells" / "a")
    evals = load_study(compact(tmp_path)).evals
    assert evals.columns[0] == "cell"
    recorded = lines(trained / "evals.jsonl")
    for name in (
        "pass_at_1",
        "pass_at_1_low",
        "pass_at_1_floor",
        "pass_at_2",
        "pass_at_2_prompts",
        "maj_at_2",
        "score",
    ):
        given = [math.nan if row[name] is None else row[name] for row in recorded]
        assert evals[name].dtype == "float64"
        assert evals[name].tolist() == pytest.approx(given, nan_ok=True), name
    assert not [name for name in evals.columns if "difficulty" in name]
