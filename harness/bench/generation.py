"""Tokens a second of the native sampler and of transformers' ``generate``, same model and prompts, one process each."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import GenerationConfig

from harness.bench.workloads import WORKLOADS, make_config
from harness.config.schema import RunConfig
from harness.engine.loading import load_policy
from harness.engine.logprobs import score_responses
from harness.engine.policy import Policy
from harness.engine.prompts import Prompts
from harness.engine.samplers import NativeSampler, Samples
from harness.engine.streams import noises
from harness.plugins import task as make_task

__all__ = ["Generated", "generate", "native"]


@dataclass(frozen=True)
class Generated:
    """One sampler on one workload.

    Attributes:
        tokens_per_second: of each round.
        logprob_gap: the largest difference of a sampled token's log-probability to the trainer's; None where the
            sampler does not give them.
    """

    tokens_per_second: list[float]
    logprob_gap: float | None


def native(workload: str, threads: int, rounds: int) -> Generated:
    """Measure the native sampler, after a first round that does not count."""
    config, policy, prompts = _prepare(workload, threads)
    rates = _rates(lambda round_: int(_draw(config, policy, prompts, round_).mask.sum()), rounds)
    return Generated(rates, _gap(config, policy, prompts))


def generate(workload: str, threads: int, rounds: int) -> Generated:
    """Measure ``model.generate`` of transformers with its own attention, after a first round that does not count."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    config, policy, prompts = _prepare(workload, threads)
    policy.model.set_attn_implementation("sdpa")
    rollout, tokenizer = config.rollout, policy.tokenizer
    width = max(map(len, prompts))
    rows = [prompt for prompt in prompts for _ in range(rollout.group_size)]
    ids = torch.tensor([[*[tokenizer.pad_id] * (width - len(row)), *row] for row in rows])
    mask = torch.tensor([[*[0] * (width - len(row)), *[1] * len(row)] for row in rows])
    settings = GenerationConfig(
        do_sample=True,
        top_k=0,
        temperature=rollout.temperature,
        max_new_tokens=rollout.max_response_tokens,
        eos_token_id=sorted(tokenizer.stop_ids) or None,
        pad_token_id=tokenizer.pad_id,
    )

    def draw(round_: int) -> int:
        torch.manual_seed(round_)
        drawn = policy.model.generate(ids, attention_mask=mask, generation_config=settings)[:, width:]
        return _lengths(drawn, tokenizer.stop_ids)

    return Generated(_rates(draw, rounds), None)


def _draw(config: RunConfig, policy: Policy, prompts: list[list[int]], round_: int) -> Samples:
    rollout = config.rollout
    return NativeSampler().sample(
        policy,
        prompts,
        noises(0, "benchmark", round_, [str(i) for i in range(len(prompts))], rollout.group_size),
        limit=rollout.max_response_tokens,
        temperature=rollout.temperature,
        charge=lambda _: None,
    )


def _prepare(workload: str, threads: int) -> tuple[RunConfig, Policy, list[list[int]]]:
    torch.set_num_threads(threads)
    config = make_config(workload, threads)
    task, policy = make_task(config.task), load_policy(config.policy, config.task.name)
    if WORKLOADS[workload].exact_length:
        policy.tokenizer.stop_ids = frozenset()
    drawn = Prompts(config.prompts, config.seed, task.examples("train")).draw(0, config.rollout.num_prompts, 0.0)
    return config, policy, [policy.tokenizer.prompt_ids(task.prompt(example)) for example in drawn.examples]


def _rates(draw: Callable[[int], int], rounds: int) -> list[float]:
    draw(0)
    rates: list[float] = []
    for round_ in range(1, rounds + 1):
        begun = time.perf_counter()
        tokens = draw(round_)
        rates.append(tokens / (time.perf_counter() - begun))
    return rates


def _lengths(drawn: Tensor, stops: frozenset[int]) -> int:
    """Return the tokens of all rows up to their first stop token, which counts."""
    ended = torch.isin(drawn, torch.tensor(sorted(stops), dtype=torch.int64)).long()
    before = ended.cumsum(1) - ended
    return int((before == 0).sum())


@torch.no_grad()
def _gap(config: RunConfig, policy: Policy, prompts: list[list[int]]) -> float:
    drawn, temperature = _draw(config, policy, prompts, 0), config.rollout.temperature
    rows = [prompt for prompt in prompts for _ in range(config.rollout.group_size)]
    scored = score_responses(policy, rows, drawn.ids, drawn.mask, temperature=temperature, chunk_tokens=256)
    return float((scored.logprobs - drawn.logprobs).abs().max())
