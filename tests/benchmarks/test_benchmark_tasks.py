"""Verdicts a second. Run with ``pytest tests/benchmarks/test_benchmark_tasks.py --benchmark-only``.

The published data sets are used where they lie beside the project (``../shared/data``), elsewhere the samples that
ship.
"""

import itertools
import pathlib

import pytest

import tasks

DATA = pathlib.Path(__file__).resolve().parents[2].parent / "shared" / "data"


def published(name, file, **settings):
    """Return the task over the published data, or over its sample where they are not there."""
    if (DATA / file).exists():
        return tasks.make(name, test=str(DATA / file), **settings)
    return tasks.make(name, source="sample", **settings)


def golds(task, number, split="test"):
    examples = list(itertools.islice(itertools.cycle(task.examples(split)), number))
    return [(example, task.gold(example)) for example in examples]


def rate(benchmark, number):
    benchmark.extra_info["responses"] = number
    benchmark.extra_info["responses_per_second"] = round(number / benchmark.stats.stats.median)


@pytest.mark.benchmark(group="verdicts")
def test_synthesis(benchmark):
    task = tasks.make("synthesis")
    pairs = [
        (example, f"{task.gold(example)}+0*{i}") for i, example in enumerate(task.examples("train")[:1000])
    ]  # no two programs equal
    task.score_many(pairs[:4])
    scores = benchmark.pedantic(task.score_many, args=(pairs,), rounds=5, warmup_rounds=1)
    assert {score.verdict for score in scores} == {"pass"}
    rate(benchmark, len(pairs))


@pytest.mark.benchmark(group="verdicts")
@pytest.mark.parametrize("kind", ["right", "wrong"])
def test_mbpp(benchmark, kind):
    task = published("mbpp", "mbpp.jsonl")
    pairs = golds(task, len(task.examples("test")))
    if kind == "wrong":
        pairs = [(example, pairs[i - 1][1]) for i, (example, _) in enumerate(pairs)]
    scores = benchmark.pedantic(task.score_many, args=(pairs,), rounds=3, warmup_rounds=1)
    assert all((score.verdict == "pass") == (kind == "right") for score in scores)
    rate(benchmark, len(pairs))


@pytest.mark.benchmark(group="verdicts")
@pytest.mark.parametrize("form", ["marker", "boxed"])
def test_gsm8k(benchmark, form):
    task = published("gsm8k", "gsm8k-test.jsonl", form=form)
    worked = "They start with 48 of them and give away half, so 48 / 2 = 24 are left. Then 24 + 24 = 48 more come in. "
    pairs = [(example, f"{worked * 2}\n{task.gold(example)}") for example, _ in golds(task, 10_000)]
    scores = benchmark.pedantic(task.score_many, args=(pairs,), rounds=5, warmup_rounds=1)
    assert {score.verdict for score in scores} == {"pass"}
    rate(benchmark, len(pairs))


@pytest.mark.benchmark(group="verdicts")
def test_math(benchmark):
    task = published("math", "math500.jsonl")
    pairs = golds(task, 500)
    scores = benchmark.pedantic(task.score_many, args=(pairs,), rounds=3, warmup_rounds=1)
    assert {score.verdict for score in scores} == {"pass"}
    rate(benchmark, len(pairs))


@pytest.mark.benchmark(group="one hostile item in a batch")
@pytest.mark.parametrize(
    "response",
    ["", "while True: pass", "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()", "x = 9**9**9"],
    ids=["none", "computes", "waits", "explodes"],
)
def test_mbpp_with_one_hostile_item(benchmark, response):
    task = tasks.make("mbpp", source="sample", timeout_seconds=1.0)
    pairs = golds(task, 64, split="train")
    pairs[10] = (pairs[10][0], response or pairs[10][1])
    scores = benchmark.pedantic(task.score_many, args=(pairs,), rounds=3, warmup_rounds=1)
    assert sum(score.verdict != "pass" for score in scores) == bool(response)
    benchmark.extra_info["timeout_seconds"] = task.timeout_seconds
