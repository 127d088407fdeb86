"""Helpers of the engine's tests: tiny models, configurations, runs and folders."""

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

import objectives
import tasks
from harness.config.errors import CompletedError
from harness.config.loading import resolve_run
from harness.engine import train
from harness.engine.cells import run_cell
from harness.engine.flops import ModelShape
from harness.engine.identity import identity
from harness.engine.lag import next_in_turn
from harness.engine.ledger import Ledger
from harness.engine.logprobs import score_responses
from harness.engine.metrics import StepMetrics
from harness.engine.packing import ATTENTION
from harness.engine.plan import make_plan
from harness.engine.policy import Policy, pad_right
from harness.engine.replay import add_replays
from harness.engine.run import build_run
from harness.engine.samplers import NativeSampler
from harness.engine.tokenizer import CharTokenizer
from harness.engine.update import update_policy
from harness.sweeps.run_folder import RunFolder
from objectives import Objective

PLUGINS = Path(__file__).parent / "even_answer.py"
ABSENT_HEAD = "lm_head.weight"
TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "attention_dropout": 0.0,
}
EXPERTS = {"moe_intermediate_size": 64, "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": True}


def plugin(name, **settings):
    """Return the table of a test-only plug-in."""
    return {"name": f"{PLUGINS}:{name}", **settings}


def make_policy(seed=0, *, moe=None, dtype=torch.float32, vocab_size=98, **changes):
    """Return an untrained policy; ``moe`` holds the settings of a mixture of experts."""
    settings = {"vocab_size": vocab_size, **TINY, **changes, "attn_implementation": ATTENTION}
    if moe:
        config, cls = Qwen3MoeConfig(**settings, **moe, experts_implementation="eager"), Qwen3MoeForCausalLM
    else:
        config, cls = Qwen3Config(**settings), Qwen3ForCausalLM
    config.pad_token_id, config.eos_token_id, config.bos_token_id = 0, 1, None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = cls(config)
    shape = ModelShape.from_config(config.to_dict())
    return Policy(model.to(dtype).eval(), CharTokenizer(), shape)


@dataclass(frozen=True)
class Given:
    """Noise of given uniforms."""

    values: np.ndarray

    def uniforms(self, length):
        return self.values[:length]


def sample(policy, prompts, uniforms, *, temperature, charge=lambda _: None):
    """Return what the native sampler makes of ``uniforms`` [prompts, samples, length limit]."""
    rows = [Given(row) for row in uniforms.reshape(-1, uniforms.shape[-1])]
    limit = uniforms.shape[-1]
    return NativeSampler().sample(policy, prompts, rows, limit=limit, temperature=temperature, charge=charge)


def teach(policy, steps=80):
    """Train ``policy`` on bare answers until it writes something like them and ends."""
    task = tasks.make("arithmetic", train_size=400)
    examples = task.examples("train")
    pairs = [(policy.tokenizer.encode(task.prompt(e)), [*policy.tokenizer.encode(task.gold(e)), 1]) for e in examples]
    adam = torch.optim.Adam(policy.model.parameters(), lr=1e-2)
    for step in range(steps):
        first = 24 * step % (len(pairs) - 24)
        prompts, responses = zip(*pairs[first : first + 24], strict=True)
        ids = pad_right(responses, 0, policy.device)
        mask = torch.arange(ids.shape[1]) < torch.tensor([len(r) for r in responses])[:, None]
        scored = score_responses(policy, prompts, ids, mask, temperature=1.0, chunk_tokens=1 << 16)
        adam.zero_grad()
        (-scored.logprobs[mask].mean()).backward()
        adam.step()
    return policy


def make_config(**tables):
    """Return a small run; tables are merged over its own."""
    base = {
        "task": plugin("EvenAnswer", operands=[2, 3, 3, 3, 4], train_size=50, validation_size=20, test_size=20),
        "rollout": {"num_prompts": 4, "group_size": 4, "max_response_tokens": 8},
        "update": {"minibatches": 2, "learning_rate": 3e-3, "warmup_updates": 2},
        "budget": {"axis": "updates", "amount": 4},
        "eval": {"points": 2, "num_prompts": 6, "test_prompts": 6},
        "engine": {"micro_batch_tokens": 40, "checkpoint_every": 1, "sample_rows": 2},
    }
    merged = dict(base)
    for name, table in tables.items():
        replaced = not isinstance(table, dict) or "name" in table
        merged[name] = table if replaced else {**base.get(name, {}), **table}
    for name, table in needs(merged.get("objective", {}).get("name", "")).items():
        merged[name] = {**merged.get(name, {}), **table}
    return resolve_run(merged)


def needs(name):
    """Return the tables without which the objective of that name is refused."""
    cls = objectives.classes().get(name, Objective)
    tables = {}
    if cls.updates_per_rollout == "one":
        tables["update"] = {"minibatches": 1}
    if cls.keep_groups is not Objective.keep_groups:
        tables["rollout"] = {"max_resamples": 1}
    if cls.min_group_size > 2:
        tables["rollout"] = {**tables.get("rollout", {}), "group_size": 4}
    if not isinstance(cls.requires, property) and "teacher_logprobs" in cls.requires:
        tables["teacher"] = {"name": "tiny"}
    return tables


def roll(run, *, micro_batch_tokens=None):
    """Return experience, plan, rollout and targets of a run's next iteration; without a lag the same ones again."""
    config, cursor = run.config, run.cursor
    experience = next_in_turn(run, train._collect)
    if not config.rollout.lag:
        run.cursor = cursor
    experience = add_replays(experience, run.replay, run.iteration, run.policy.tokenizer.pad_id)
    plan = make_plan(
        experience, config.update.minibatches, micro_batch_tokens or config.engine.micro_batch_tokens,
        seed=config.seed, iteration=run.iteration,
    )  # fmt: skip
    rollout = train._score(run, experience, plan)
    return experience, plan, rollout, run.objective.targets(rollout)


def update(run, parts, metrics=None):
    """Make the updates of what ``roll`` returned."""
    experience, plan, rollout, targets = parts
    update_policy(run, experience, rollout, targets, plan, metrics or StepMetrics())


def free_run(config):
    """Return a run whose budget never ends."""
    run = build_run(config)
    run.ledger = Ledger("updates", 10**9)
    return run


def double(run):
    """Put a run into float64."""
    for model in (run.policy.model, run.critic, run.reference and run.reference.model):
        if model is not None:
            model.double()
    return run


def cell(config, folder, notify=lambda _: None):
    """Run a cell to its end in ``folder``."""
    with contextlib.suppress(CompletedError), RunFolder.open(folder, identity(config)) as opened:
        run_cell(config, opened, notify)


def digests(folder):
    """Return the SHA-256 of every file of a cell that must be byte-equal."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if file.is_file() and file.name != "timing.jsonl"
    }


def exact_norms(monkeypatch):
    """Make the models' norms and routers float64 throughout: transformers' round to float32 inside."""

    def norm(self, hidden):
        return self.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    monkeypatch.setattr("transformers.models.qwen3.modeling_qwen3.Qwen3RMSNorm.forward", norm)
    monkeypatch.setattr("transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeRMSNorm.forward", norm)
    monkeypatch.setattr("torch.nn.functional.softmax", lambda x, dim, dtype=None: torch.softmax(x, dim))


def upcycled(dense, seed=5):
    """Return the weights of a mixture whose experts are noisy copies of a dense policy's MLPs: both write alike."""
    generator = torch.Generator().manual_seed(seed)
    tensors = make_policy(seed=seed, moe=EXPERTS).model.state_dict()
    for name, value in dense.items():
        if ".mlp." not in name:
            tensors[name] = value
    for layer in range(TINY["num_hidden_layers"]):
        mlp = f"model.layers.{layer}.mlp"
        for name, parts in (("gate_up_proj", ("gate_proj", "up_proj")), ("down_proj", ("down_proj",))):
            copies = torch.cat([dense[f"{mlp}.{part}.weight"] for part in parts]).expand_as(
                tensors[f"{mlp}.experts.{name}"]
            )
            noise = torch.randn(copies.shape, generator=generator)
            tensors[f"{mlp}.experts.{name}"] = copies * (1 + 0.2 * noise)
        router = tensors[f"{mlp}.gate.weight"]
        tensors[f"{mlp}.gate.weight"] = torch.randn(router.shape, generator=generator) * 0.2
    return {name: value.contiguous() for name, value in tensors.items() if name != ABSENT_HEAD}
