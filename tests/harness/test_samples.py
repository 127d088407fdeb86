"""``evengrad samples``: choosing and showing what a policy wrote."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from harness import terminal
from harness.cli import main
from harness.terminal import visible
from tasks import VERDICTS

ROOT = Path(__file__).parents[2]
RUN = [
    {"split": "validation", "fraction": 0.0, "id": "v1", "verdict": "wrong", "response": "#1"},
    {"split": "test", "fraction": 0.0, "id": "t1", "verdict": "pass", "response": "#2"},
    {"split": "validation", "fraction": 0.5, "id": "v1", "verdict": "format", "response": "one\ntwo\n"},
    {"split": "validation", "fraction": 1.0, "id": "v1", "verdict": "pass", "response": "#4"},
    {"split": "validation", "fraction": 1.0, "id": "v2", "verdict": "wrong", "response": "", "difficulty": "hard"},
    {"split": "test", "fraction": 1.0, "id": "t1", "verdict": "infra", "response": "#6", "value": None},
]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fill(Path("run"), RUN)


def fill(folder, rows):
    folder.mkdir(parents=True)
    filled = [{"prompt": "1+1=", "reason": "", **row} for row in rows]
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in filled))


def make_sweep():
    Path("sweep").mkdir()
    cells = [
        {"key": key, "arm": arm, "task": "arithmetic", "policy": "tiny-0", "seed": 0, "facts": {}, "config": {}}
        for key, arm in (("aa11", "grpo"), ("aa22", "gspo"), ("bb33", "gspo+dual"))
    ]
    Path("sweep/sweep.json").write_text(json.dumps({"name": "sweep", "cells": cells}))
    fill(Path("sweep/cells/aa22"), [{"id": "x", "verdict": "pass", "response": "of gspo"}])
    fill(Path("sweep/cells/bb33"), [{"id": "x", "verdict": "pass", "response": "of gspo+dual"}])


def shown(capsys, *words):
    assert main(["samples", *words]) == 0
    return capsys.readouterr().out


def refused(capsys, *words):
    assert main(["samples", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def responses(text):
    return [line.removeprefix("  response ") for line in text.splitlines() if line.startswith("  response")]


def test_a_run_is_shown_in_its_order(capsys):
    text = shown(capsys, "run")
    assert responses(text) == ["#1", "#2", "one", "#4", "(empty)", "#6"]
    assert "  response one\n           two\n           \n" in text
    assert "[5/6] wrong | validation | point 1 | hard | v2\n" in text
    assert text.endswith("6 of 6 samples match: 2 pass, 2 wrong, 1 format, 1 infra\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--verdict", "wrong"], ["#1", "(empty)"]),
        (["--split", "test"], ["#2", "#6"]),
        (["--id", "v1"], ["#1", "one", "#4"]),
        (["--difficulty", "hard"], ["(empty)"]),
        (["--point", "0"], ["#1", "#2"]),
        (["--point", "0.5"], ["one"]),
        (["--point", "last"], ["#4", "(empty)", "#6"]),
        (["--point", "last", "--split", "validation", "--verdict", "wrong"], ["(empty)"]),
        (["--limit", "2"], ["#1", "#2"]),
        (["--verdict", "timeout"], []),
    ],
)
def test_filters(capsys, words, expected):
    assert responses(shown(capsys, "run", *words)) == expected


def test_a_limit_says_what_it_leaves_out(capsys):
    assert "2 of 6 samples match: 2 wrong; 1 shown" in shown(capsys, "run", "--verdict", "wrong", "--limit", "1")


def test_last_is_the_last_point_of_each_split(capsys):
    """Of a run that goes on, the test split is at its start and validation at the middle."""
    fill(Path("half"), RUN[:3])
    assert responses(shown(capsys, "half", "--point", "last")) == ["#2", "one"]


def test_a_run_that_is_just_writing_has_a_torn_line(capsys):
    with Path("run/samples.jsonl").open("a") as file:
        file.write('{"id": "v')
    Path("run/status.json").write_text('{"cause":"","status":"running"}')
    for place in ("run", "run/samples.jsonl"):
        assert len(responses(shown(capsys, place))) == 6


def test_a_cell_of_a_sweep_is_chosen_by_key_or_arm(capsys):
    make_sweep()
    assert responses(shown(capsys, "sweep", "--cell", "aa2")) == ["of gspo"]
    assert responses(shown(capsys, "sweep", "--cell", "gspo on")) == ["of gspo"]
    assert responses(shown(capsys, "sweep", "--cell", "gspo+")) == ["of gspo+dual"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none"], "cannot read none: No such file or directory"),
        (["."], ". holds no samples (samples.jsonl is missing)"),
        (["run", "--cell", "a"], "--cell a chooses from a sweep's folder, and run is none"),
        (["sweep"], "sweep has 3 cells: choose one by --cell KEY: aa11 (grpo on arithmetic, tiny-0, seed 0); aa22"),
        (["sweep", "--cell", "aa"], "--cell aa fits 2 cells, give more of the key: aa11"),
        (["sweep", "--cell", "zz"], "--cell zz fits no cell: aa11 (grpo"),
        (
            ["sweep", "--cell", "aa11"],
            "cell aa11 (grpo on arithmetic, tiny-0, seed 0) has no samples yet: it has not been",
        ),
        (["run", "--verdict", "rong"], "unknown verdict 'rong', did you mean 'wrong'?: pass, wrong, format"),
        (["run", "--difficulty", "hart"], "no sample has difficulty 'hart', did you mean 'hard'?; there are: hard"),
        (["run", "--id", "v3"], "no sample has id 'v3'; there are: v1, t1, v2"),
        (["run", "--split", "train"], "no sample has split 'train'; there are: validation, test"),
        (["run", "--point", "0.3"], "no sample at point 0.3; there are: 0, 0.5, 1"),
        (["run", "--point", "first"], "--point first should be last or a fraction of the budget such as 0.5"),
        (["run", "--limit", "0"], "0 is less than 1"),
        (["raw.jsonl"], "raw.jsonl line 1 has no verdict: score the file first with evengrad verify"),
        (["other.jsonl"], "other.jsonl line 1 is no sample: id should be text (keys there: a)"),
        (["bad.jsonl"], "bad.jsonl line 1 is not valid JSON"),
        (["empty.jsonl"], "empty.jsonl holds no samples yet"),
        (["file.jsonl", "--point", "last"], "--point last: these samples belong to no point of a run"),
    ],
)
def test_bad_input_is_one_line(capsys, words, message):
    make_sweep()
    Path("raw.jsonl").write_text('{"id": "a", "response": "b"}\n')
    Path("other.jsonl").write_text('{"a": 1}\n')
    Path("bad.jsonl").write_text("{\n")
    Path("empty.jsonl").write_text("")
    Path("file.jsonl").write_text('{"id": "a", "response": "b", "verdict": "pass"}\n')
    assert message in refused(capsys, *words)


GOOD = {"id": "a", "response": "b", "verdict": "pass"}


@pytest.mark.parametrize(
    ("field", "given", "message"),
    [
        ("value", '"1"', "value should be a number or null, got '1'"),
        ("value", "1" + "0" * 399, "value should be a number or null, got 1000"),
        ("value", "true", "value should be a number or null, got True"),
        ("fraction", '"x"', "fraction should be a number or null, got 'x'"),
        ("fraction", "[1]", "fraction should be a number or null, got [1]"),
        ("sample_index", '"0"', "sample_index should be a number or null, got '0'"),
        ("split", '["x"]', "split should be text or null, got ['x']"),
        ("difficulty", "2", "difficulty should be text or null, got 2"),
        ("prompt", "{}", "prompt should be text or null, got {}"),
        ("reason", "7", "reason should be text or null, got 7"),
    ],
)
@pytest.mark.parametrize("words", [[], ["--point", "last"], ["--point", "0.5"]])
def test_a_field_of_the_wrong_type_is_named_with_its_line(capsys, field, given, message, words):
    start = json.dumps(GOOD)[:-1]
    Path("hand.jsonl").write_text(f'{start}, "fraction": 0.5}}\n{start}, "{field}": {given}}}\n')
    assert f"hand.jsonl line 2: {message}" in refused(capsys, "hand.jsonl", *words)


def test_missing_values_of_a_hand_made_file_are_left_out(capsys):
    nothing = dict.fromkeys(("value", "fraction", "sample_index", "split", "difficulty", "prompt", "reason"))
    rows = [{**GOOD, "response": "c", **nothing}, {**GOOD, "fraction": 0.5, "value": 1}]
    Path("hand.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert responses(shown(capsys, "hand.jsonl", "--point", "0.5")) == ["b"]
    assert responses(shown(capsys, "hand.jsonl")) == ["c", "b"]
    assert "[1/2] pass | a\n" in shown(capsys, "hand.jsonl")


HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\b\u202e\x9b\u200b\ud800\u2028\x00 [red]x[/red] :smile: \N{GREEK SMALL LETTER PI}"


def test_what_a_terminal_would_obey_is_made_visible(capsys):
    row = {**dict.fromkeys(("id", "prompt", "response", "reason", "difficulty"), HOSTILE), "verdict": "pass"}
    Path("evil.jsonl").write_text(json.dumps(row) + "\n")
    text = shown(capsys, "evil.jsonl")
    assert not {c for c in text if not c.isprintable()} - {"\n"}
    expected = r"\x1b]0;owned\x07\x1b[2J\r\x08\u202e\x9b\u200b\ud800\u2028\x00 [red]x[/red] :smile: " + "\u03c0"
    assert text.count(expected) == 5


def test_line_ends_and_tabs_stay_only_where_lines_are_wanted():
    assert visible("a\n\tb\r\n", lines=True) == "a\n\tb\\r\n"
    assert visible("a\n\tb") == r"a\n\tb"
    assert visible("caf\u00e9 \u00a0\U0001f600") == "caf\u00e9 \u00a0\U0001f600"


def test_a_pipe_that_knows_ascii_only_gets_escapes():
    Path("pi.jsonl").write_text(json.dumps({"id": "a", "response": "\u03c0 \ud800", "verdict": "pass"}) + "\n")
    environment = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "harness.cli", "samples", "pi.jsonl"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert rb"response \u03c0 \ud800" in done.stdout


def on_a_terminal(*words, **environment):
    """Return the status and the bytes that a terminal gets."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "harness.cli", *words]
    plain = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TERM": "xterm-256color", **environment}
    process = subprocess.Popen(command, env=plain, stdin=follower, stdout=follower, stderr=subprocess.PIPE)
    os.close(follower)
    got = b""
    while True:
        try:
            block = os.read(leader, 65_536)
        except OSError:  # the other side is closed
            break
        if not block:
            break
        got += block
    os.close(leader)
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    return process.wait(), got, errors


def test_a_terminal_gets_a_pager_and_no_escape_of_the_model():
    fill(Path("evil"), [{"id": "a", "verdict": "wrong", "response": HOSTILE}])
    status, got, errors = on_a_terminal("samples", "evil", PAGER="sed 's/^/paged /'")
    assert (status, errors) == (0, b"")
    assert b"paged [1/1] wrong | a" in got
    assert b"\x1b" not in got  # this pager may not know colours
    status, got, _ = on_a_terminal("verify", "arithmetic", "--responses", "gold", "test_size=4")
    assert status == 0
    assert b"\x1b[32mpass" in got
    assert b"paged" not in got


def test_output_that_nobody_reads_to_its_end_is_no_fault():
    many = [{"id": str(i), "verdict": "wrong", "response": "x" * 1000} for i in range(2000)]
    fill(Path("many"), many)
    command = f"{sys.executable} -m harness.cli samples many | head -1"
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"[1/2000] wrong | 0")


def test_colours_are_those_of_all_verdicts():
    assert set(terminal.VERDICT_STYLES) == set(VERDICTS)
