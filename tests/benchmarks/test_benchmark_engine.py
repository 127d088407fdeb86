"""Speed and memory of the engine's parts. Run with ``pytest tests/benchmarks --benchmark-only``."""

import multiprocessing
import statistics
import time

import pytest
import torch
from transformers import GenerationConfig

import objectives
import tasks
from harness.config.loading import resolve_run
from harness.config.policies import PolicyConfig
from harness.engine import train
from harness.engine.ledger import Ledger
from harness.engine.loading import load_policy
from harness.engine.metrics import StepMetrics
from harness.engine.plan import make_plan
from harness.engine.rollout import collect
from harness.engine.run import build_run
from harness.engine.samplers import NativeSampler
from harness.engine.streams import noises
from harness.engine.update import update_policy

PROMPTS, SAMPLES, LIMIT = 16, 8, 48
LOGITS_BYTES = 2**26


def rates(benchmark, tokens):
    """Write tokens a second beside the times."""
    benchmark.extra_info["tokens"] = tokens
    benchmark.extra_info["tokens_per_second"] = round(tokens / benchmark.stats.stats.median)


@pytest.fixture
def prompts(tiny):
    policy, task = load_policy(PolicyConfig(), "arithmetic"), tasks.make("arithmetic", train_size=64)
    return policy, [policy.tokenizer.encode(task.prompt(e)) for e in task.examples("train")[:PROMPTS]]


@pytest.mark.benchmark(group="sampling")
def test_sampler(benchmark, prompts):
    policy, encoded = prompts
    noise = noises(0, "benchmark", 0, map(str, range(PROMPTS)), SAMPLES)

    def sample():
        return NativeSampler().sample(policy, encoded, noise, limit=LIMIT, temperature=1.0, charge=lambda _: None)

    drawn = benchmark.pedantic(sample, rounds=5, warmup_rounds=1)
    rates(benchmark, int(drawn.mask.sum()))


@pytest.mark.benchmark(group="sampling")
def test_generate_of_transformers(benchmark, prompts):
    policy, encoded = prompts
    width = max(map(len, encoded))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in encoded]).repeat_interleave(SAMPLES, 0)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in encoded]).repeat_interleave(SAMPLES, 0)
    settings = GenerationConfig(do_sample=True, max_new_tokens=LIMIT, eos_token_id=1, pad_token_id=0, top_k=0)

    def generate():
        torch.manual_seed(0)
        return policy.model.generate(ids, attention_mask=mask, generation_config=settings)[:, width:]

    drawn = benchmark.pedantic(generate, rounds=5, warmup_rounds=1)
    rates(benchmark, int((drawn != 0).sum()))


def prepared(objective):
    """Return a call that makes the four updates of one rollout with ``objective``, and the tokens of the rollout."""
    cls = objectives.classes()[objective]
    minibatches = 1 if cls.updates_per_rollout == "one" else 4
    config = resolve_run(
        {
            "objective": {"name": objective},
            "teacher": {"name": "tiny"},
            "rollout": {"max_resamples": 1},
            "update": {"minibatches": minibatches},
            "budget": {"axis": "updates", "amount": 1},
        }
    )
    run = build_run(config)
    run.ledger = Ledger("updates", 10**9)
    # The rollout of a plain objective for all: what is compared is the update.
    experience = collect(
        run.policy, run.sampler, run.task, objectives.make("grpo"), config.rollout, run.ledger,
        seed=0, iteration=0, cursor=0,
    )  # fmt: skip
    if "greedy_rewards" in run.requires:
        experience.greedy_rewards = torch.zeros_like(experience.rewards)
    plan = make_plan(experience, 4, config.engine.micro_batch_tokens, seed=0, iteration=0)
    rollout = train._score(run, experience, plan)
    targets = run.objective.targets(rollout)
    tokens = int(rollout.response_mask.sum())
    return lambda: update_policy(run, experience, rollout, targets, plan, StepMetrics()), tokens


@pytest.mark.benchmark(group="updates of one rollout")
@pytest.mark.parametrize("objective", objectives.names())
def test_updates(benchmark, tiny, objective):
    update, tokens = prepared(objective)
    benchmark.pedantic(update, rounds=5, warmup_rounds=1)
    rates(benchmark, tokens)


@pytest.mark.benchmark(group="updates relative to REINFORCE")
def test_updates_relative_to_reinforce(benchmark, tiny):
    """Updates of each objective over the mean of REINFORCE's just before and just after them; the median of nine.

    A machine that is slow for a while is slow for both. What "reinforce" itself gets says how much is noise.
    """
    reference = prepared("reinforce")[0]
    calls = {name: prepared(name)[0] for name in objectives.names()}
    ratios = {name: [] for name in calls}

    def all_once():
        before = _seconds(reference)
        for name, call in calls.items():
            own, after = _seconds(call), _seconds(reference)
            ratios[name].append(2 * own / (before + after))
            before = after

    benchmark.pedantic(all_once, rounds=9, warmup_rounds=1)
    relative = {name: round(statistics.median(found[1:]), 3) for name, found in ratios.items()}
    benchmark.extra_info["relative_to_reinforce"] = dict(sorted(relative.items(), key=lambda item: item[1]))


def _seconds(call):
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _peak(vocab_size, queue):
    """Put the growth of this process's peak memory over scoring 64 x 32 tokens, forward and backward, bytes."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from harness.engine.flops import ModelShape
    from harness.engine.logprobs import score_responses
    from harness.engine.memory import peak_memory_bytes, reset_peak_memory
    from harness.engine.policy import Policy
    from harness.engine.tokenizer import CharTokenizer

    torch.set_num_threads(1)
    config = Qwen3Config(
        vocab_size=vocab_size, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, tie_word_embeddings=True, pad_token_id=0,
    )  # fmt: skip
    policy = Policy(Qwen3ForCausalLM(config).eval(), CharTokenizer(), ModelShape.from_config(config.to_dict()))
    ids, mask = torch.full((64, 32), 5), torch.ones(64, 32, dtype=torch.bool)
    reset_peak_memory()
    before = peak_memory_bytes()
    chunk = LOGITS_BYTES // (4 * vocab_size)
    scored = score_responses(policy, [[3, 4]] * 64, ids, mask, temperature=1.0, chunk_tokens=chunk)
    scored.logprobs.sum().backward()
    queue.put(peak_memory_bytes() - before)


@pytest.mark.benchmark(group="memory of log-probabilities")
@pytest.mark.parametrize("vocab_size", [1_000, 50_000, 150_000])
def test_peak_memory(benchmark, vocab_size):
    context = multiprocessing.get_context("spawn")

    def measure():
        queue = context.Queue()
        process = context.Process(target=_peak, args=(vocab_size, queue))
        process.start()
        grown = queue.get(timeout=120)
        process.join()
        return grown

    grown = benchmark.pedantic(measure, rounds=1)
    benchmark.extra_info["peak_growth_mib"] = round(grown / 2**20, 1)
    benchmark.extra_info["whole_logits_mib"] = round(64 * 32 * vocab_size * 4 / 2**20, 1)
    # a chunk's logits in the forward and in the backward pass, the head's gradient with its sum, and the layers
    assert grown < 2 * LOGITS_BYTES + 3 * 32 * vocab_size * 4 + 2**26
