"""Build the embedded policies: supervised training of a tiny model on a task's demonstrations.

In two phases, so that reinforcement learning has something to do that it does to large models as well. First the model
learns to work problems out; then, for a short time, most demonstrations give the bare answer, which such a model cannot
compute in its head. What results usually answers without work and is often wrong, works now and then and then is mostly
right: groups disagree, and a policy improves by shifting weight to careful work.

    python -m harness.engine.warm_start --task arithmetic --number 0
    python -m harness.engine.warm_start --all          # every file that is shipped
"""

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

import tasks
from harness.engine.embedded import PRESETS, available
from harness.engine.evaluate import evaluate
from harness.engine.logprobs import score_responses
from harness.engine.policy import Policy, build_preset, pad_right
from harness.engine.samplers import NativeSampler
from harness.engine.streams import Noise, key
from tasks.base import Task

__all__ = ["warm_start"]

LEARNING_RATE = 3e-3
WARMUP_STEPS = 100
BATCH_ROWS = 64
MICRO_BATCH_ROWS = 16
# Optimizer steps: enough to make careful work mostly right. The last part of them is the second phase.
STEPS = {"arithmetic": 2000, "synthesis": 2000}
SECOND_PHASE = 0.2
# Share of careful demonstrations in the second phase; the warm start then is 15 to 40% right at temperature 1.
CAREFUL_SHARE = {"arithmetic": 0.4, "synthesis": 0.25}


def demonstrations(
    task: Task, policy: Policy, seed: int, careful_only: int, careful_share: float
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield prompts and responses (end token included) as token ids, for ever; a pure function of its arguments.

    The first ``careful_only`` responses are careful, later ones with probability ``careful_share``.
    """
    examples = task.examples("train")
    for epoch in itertools.count():
        order, style = (
            Noise(seed, "warm start", epoch, what, 0).uniforms(len(examples)) for what in ("order", "style")
        )
        for place, index in enumerate(order.argsort(kind="stable")):
            careful = epoch * len(examples) + place < careful_only or style[index] < careful_share
            shown = {demonstration.style: demonstration for demonstration in task.demonstrations(examples[index])}
            response = policy.tokenizer.encode(shown["careful" if careful else "bare"].response)
            yield policy.tokenizer.prompt_ids(task.prompt(examples[index])), [*response, policy.tokenizer.eos_id]


def warm_start(task_name: str, preset: str, number: int, steps: int) -> Policy:
    """Return a policy trained on demonstrations of a task: cross-entropy of the response, AdamW, cosine decay to 0."""
    task = tasks.make(task_name)
    seed = key("warm start", preset, task_name, number) % 2**31
    policy = build_preset(preset, seed)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    careful_only = round(steps * (1 - SECOND_PHASE)) * BATCH_ROWS
    stream = demonstrations(task, policy, seed, careful_only, CAREFUL_SHARE[task_name])
    for step in range(steps):
        decay = 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * decay
        optimizer.zero_grad(set_to_none=True)
        loss = _accumulate(policy, [next(stream) for _ in range(BATCH_ROWS)])
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        if step % 200 == 0 or step == steps - 1:
            sys.stderr.write(f"{task_name} {number}: step {step} loss {loss:.3f}\n")
    return policy


def _accumulate(policy: Policy, pairs: Sequence[tuple[list[int], list[int]]]) -> float:
    """Add the gradient of the mean cross-entropy of all response tokens; return its value, nats."""
    ordered = sorted(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))
    tokens = sum(len(response) for _, response in ordered)
    total = 0.0
    for start in range(0, len(ordered), MICRO_BATCH_ROWS):
        prompts, responses = zip(*ordered[start : start + MICRO_BATCH_ROWS], strict=True)
        loss = _cross_entropy(policy, prompts, responses) / tokens
        loss.backward()
        total += loss.item()
    return total


def _cross_entropy(policy: Policy, prompts: Sequence[list[int]], responses: Sequence[list[int]]) -> Tensor:
    ids = pad_right(responses, policy.tokenizer.pad_id, policy.device)
    lengths = torch.tensor([len(response) for response in responses])
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    scored = score_responses(policy, prompts, ids, mask, temperature=1.0, chunk_tokens=1 << 16)
    return -scored.logprobs[mask].sum()


def main(arguments: list[str] | None = None) -> None:
    """Build one warm start, or all that are shipped, beside the ones that stand there."""
    parser = argparse.ArgumentParser(prog="python -m harness.engine.warm_start", description=__doc__)
    parser.add_argument("--task", default="arithmetic", choices=sorted(STEPS))
    parser.add_argument("--preset", default="tiny", choices=sorted(PRESETS))
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--all", action="store_true", help="rebuild every file that is shipped")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "embedded")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    chosen = available() if options.all else [(options.preset, options.task, options.number)]
    for preset, task_name, number in chosen:
        steps = options.steps or STEPS[task_name]
        policy = warm_start(task_name, preset, number, steps)
        tensors = {
            name: value.contiguous() for name, value in policy.model.state_dict().items() if name != "lm_head.weight"
        }
        save_file(tensors, options.out / f"{preset}-{task_name}-{number}.safetensors")
        outcome = evaluate(
            policy, NativeSampler(), tasks.make(task_name), split="validation", num_prompts=512, samples=1,
            temperature=1.0, seed=0, limit=52, batch_rows=512,
        )  # fmt: skip
        sys.stdout.write(
            json.dumps({"preset": preset, "task": task_name, "number": number, **outcome.summary()}) + "\n"
        )


if __name__ == "__main__":
    main()
