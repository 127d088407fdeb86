"""The engine beside TRL on the same work; ``evengrad bench`` prints the same as tables, for SmolLM2 and sweeps too."""

import statistics

import pytest

from harness.bench import generation, ours, trl_peer
from harness.bench.measured import in_new_process

THREADS, ITERATIONS = 1, 3


@pytest.mark.benchmark(group="an iteration of 512 responses and 4 updates")
@pytest.mark.parametrize("trainer", ["evengrad", "trl", "trl, checkpointing"])
def test_iteration(benchmark, trainer):
    job = (ours.iterations, "embedded", THREADS, ITERATIONS)
    if trainer != "evengrad":
        job = (trl_peer.iterations, "embedded", THREADS, ITERATIONS, trainer != "trl")
    found = benchmark.pedantic(lambda: in_new_process(*job), rounds=1)
    benchmark.extra_info["seconds_an_iteration"] = round(statistics.median(found.seconds), 3)
    benchmark.extra_info["peak_mib"] = round(found.peak_bytes / 2**20)


@pytest.mark.benchmark(group="tokens a second of 512 responses")
@pytest.mark.parametrize("sampler", ["native", "generate"])
def test_sampler(benchmark, sampler):
    job = generation.native if sampler == "native" else generation.generate
    found = benchmark.pedantic(lambda: in_new_process(job, "embedded", THREADS, ITERATIONS), rounds=1)
    benchmark.extra_info["tokens_per_second"] = round(statistics.median(found.tokens_per_second))
    if sampler == "native":
        benchmark.extra_info["logprob_gap"] = found.logprob_gap
        assert found.logprob_gap < 1e-4
