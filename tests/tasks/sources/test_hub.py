"""Data sets by hub name: read, refused in one line, never waited for; the real client against a hub of our own."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest
from fake_hub import COMMIT, serve
from toy_sums import Sums, sums, write

from tasks.sources import hub

PROGRAM = """
import json, sys
from toy_sums import Sums, problems
for name in sys.argv[2:]:
    found = {}
    for split in sys.argv[1].split(","):
        try:
            found[split] = problems(Sums(source=name), split)
        except ValueError as error:
            found[split] = str(error)
    print(json.dumps(found))
"""
OTHER = "b" * 40


def ask(home, *names, splits="train,validation,test", **environment):
    """Return what a fresh process finds under each name, and its standard error; the hub's own variables are unset."""
    pytest.importorskip("datasets")
    ours = {key: value for key, value in os.environ.items() if not key.startswith("HF_") and "proxy" not in key.lower()}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, splits, *names],
        env={**ours, "HF_HOME": str(home), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()], ran.stderr


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    """What was found while the hub answered, and the cache that it left behind."""
    home = tmp_path_factory.mktemp("hub")
    names = ("me/sums", "me/sums:default@main", f"me/sums@{COMMIT}", "me/sums@v9", "me/sums:main", "me/other")
    with serve() as address:
        found, _ = ask(home, *names, HF_ENDPOINT=address)
    return home, dict(zip(names, found, strict=True))


@pytest.mark.parametrize("name", ["me/sums", "me/sums:default@main", f"me/sums@{COMMIT}"])
def test_the_splits_of_a_data_set_are_read(cached, name):
    found = cached[1][name]
    assert found["test"] == ["3+1"]
    assert {"1+1", "2+1"} <= {*found["train"], *found["validation"]}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("me/sums@v9", "hub data set me/sums has no revision v9; take one from its page, or save the data as a file"),
        ("me/sums:main", "hub data set me/sums: ValueError: BuilderConfig 'main' not found. Available: ['default']"),
        ("me/other", "hub data set me/other is unknown or private, and no file or folder here has that name"),
    ],
)
def test_what_the_hub_does_not_have_is_one_line_with_the_fix(cached, name, message):
    text = cached[1][name]["test"]
    assert text.startswith(message)
    assert text.endswith("or save the data as a file and give its path as source")
    assert "\n" not in text


def test_offline_a_cached_copy_is_used_and_never_one_of_another_revision(cached):
    names = ("me/sums", f"me/sums@{COMMIT}", f"me/sums@{OTHER}", "me/missing")
    start = time.monotonic()
    (plain, pinned, other, missing), _ = ask(cached[0], *names, HF_HUB_OFFLINE="1")
    assert time.monotonic() - start < 30
    assert plain["test"] == pinned["test"] == ["3+1"]
    assert other["test"].startswith(f"the cache holds me/sums at revision {COMMIT}, expected {OTHER}; unset HF_HUB_OFF")
    assert missing["test"].startswith("hub data set me/missing is not in the cache and the hub is not asked")
    assert "\n" not in missing["test"]


def test_a_hub_that_cannot_be_reached_is_told_at_once(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"  # bound and not listening: connections are refused
        start = time.monotonic()
        (found,), errors = ask(tmp_path, "me/sums", HF_ENDPOINT=address)
    assert time.monotonic() - start < 30
    assert found["test"].startswith("the hub cannot be reached for me/sums (ConnectError: ")
    assert "set HF_HUB_OFFLINE=1 to use a cached copy, or save the data as a file" in found["test"]
    assert "\n" not in found["test"]
    assert "Retrying" not in errors


def test_a_hub_that_never_answers_is_not_waited_for(tmp_path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.monotonic()
        (found,), _ = ask(tmp_path, "me/sums", splits="test", HF_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert found["test"].startswith("the hub cannot be reached for me/sums (ReadTimeout")
    assert time.monotonic() - start < 45


def test_without_the_extra_the_command_that_installs_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"needs the extra 'hub' .*: run python -m pip install 'evengrad\[hub\]', or"):
        Sums(source="me/sums").examples("test")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("openai/gsm8k", ("openai/gsm8k", None, None)),
        ("openai/gsm8k:main", ("openai/gsm8k", "main", None)),
        ("a-b/c.d_e@refs/pr/1", ("a-b/c.d_e", None, "refs/pr/1")),
        ("a/b:c@d", ("a/b", "c", "d")),
    ],
)
def test_a_name_has_up_to_four_parts(text, expected):
    assert hub.is_name(text)
    name = hub.Name.parse(text)
    assert (name.repository, name.config, name.revision) == expected


@pytest.mark.parametrize(
    "text", ["gsm8k", "a/b/c", "/a/b", "./b", "../b", "a/b.jsonl", "a/b.csv", "a/", "a/b:", "a b/c"]
)
def test_what_looks_like_a_path_is_no_name(text):
    assert not hub.is_name(text)
    with pytest.raises(ValueError, match=r"no such file or folder, and no hub name \(owner/name\)"):
        Sums(source=text).examples("test")


def test_a_path_that_exists_comes_before_a_hub_name(tmp_path, monkeypatch):
    write(tmp_path / "me" / "sums" / "test.jsonl", sums(range(3)))
    monkeypatch.chdir(tmp_path)
    assert len(Sums(source="me/sums").examples("test")) == 3
