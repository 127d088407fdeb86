"""The same iteration by TRL's GRPOTrainer: same model, prompts, rewards, group size, lengths and minibatches."""

import contextlib
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from harness.bench.export import export
from harness.bench.measured import Measured
from harness.bench.workloads import WORKLOADS, make_config
from harness.config.schema import RunConfig
from harness.engine.loading import load_policy
from harness.engine.memory import peak_memory_bytes, reset_peak_memory
from harness.engine.prompts import Prompts
from harness.plugins import task as make_task
from tasks.base import Example, Task

__all__ = ["iterations"]


def iterations(workload: str, threads: int, rounds: int, checkpointing: bool) -> Measured:
    """Make a first iteration and then measure ``rounds`` of them.

    Args:
        workload: name of it.
        threads: of torch.
        rounds: iterations that are measured.
        checkpointing: TRL's ``gradient_checkpointing``, which it has on by default.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(threads)
    config = make_config(workload, threads)
    task = make_task(config.task)
    with tempfile.TemporaryDirectory() as name, _quiet():
        texts = _export(config, task, _examples(config, task, rounds + 1), Path(name))
        return _train(config, task, texts, Path(name), rounds, checkpointing, WORKLOADS[workload].exact_length)


def _examples(config: RunConfig, task: Task, iterations: int) -> list[Example]:
    """Return the prompts of the first iterations of a run."""
    prompts = Prompts(config.prompts, config.seed, task.examples("train"))
    return list(prompts.draw(0, config.rollout.num_prompts * iterations, 0.0).examples)


def _export(config: RunConfig, task: Task, examples: list[Example], folder: Path) -> dict[str, Example]:
    """Write the policy as transformers reads it; return the examples by the text that stands before a response."""
    policy = load_policy(config.policy, config.task.name)
    tokenizer = export(policy, folder)
    return {tokenizer.decode(policy.tokenizer.prompt_ids(task.prompt(example))): example for example in examples}


def _train(
    config: RunConfig,
    task: Task,
    texts: dict[str, Example],
    folder: Path,
    rounds: int,
    checkpointing: bool,
    exact_length: bool,
) -> Measured:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl.trainer.grpo_trainer import GRPOTrainer

    tokens: list[int] = []

    def reward(
        prompts: list[str], completions: list[str], completion_ids: list[list[int]], **_: Any
    ) -> list[float | None]:
        tokens.append(sum(map(len, completion_ids)))
        pairs = [(texts[prompt], text) for prompt, text in zip(prompts, completions, strict=True)]
        return [float(score.value) for score in task.score_many(pairs)]

    clock = _clock(config.update.minibatches)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=_settings(config, folder / "out", rounds, checkpointing, exact_length),
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": list(texts)}),
        processing_class=AutoTokenizer.from_pretrained(folder),
        callbacks=[clock],
    )
    trainer.train()
    seconds = [after - before for before, after in zip(clock.ends, clock.ends[1:], strict=False)]
    return Measured(seconds=seconds, peak_bytes=peak_memory_bytes(), tokens=sum(tokens[1:]) / rounds)


def _settings(config: RunConfig, folder: Path, rounds: int, checkpointing: bool, exact_length: bool) -> Any:
    """Return TRL's settings of the same run."""
    from trl.trainer.grpo_config import GRPOConfig

    rollout, steps = config.rollout, config.update.minibatches
    return GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=rollout.num_prompts * rollout.group_size // steps,
        gradient_accumulation_steps=1,
        steps_per_generation=steps,
        num_generations=rollout.group_size,
        max_completion_length=rollout.max_response_tokens,
        max_steps=steps * (rounds + 1),
        temperature=rollout.temperature,
        top_k=0,
        generation_kwargs={"min_new_tokens": rollout.max_response_tokens} if exact_length else {},
        beta=0.0,
        learning_rate=config.update.learning_rate,
        gradient_checkpointing=checkpointing,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        logging_steps=10**9,
        save_strategy="no",
        report_to="none",
        shuffle_dataset=False,
    )


def _clock(steps: int) -> Any:
    """Return a callback that notes when each iteration of so many steps ends."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        """Its ``ends`` are seconds; peak memory counts from the first one."""

        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % steps == 0:
                self.ends.append(time.perf_counter())
            if state.global_step == steps:
                reset_peak_memory()

    return Clock()


@contextlib.contextmanager
def _quiet() -> Any:
    """Keep what the trainer prints and warns of out of the table."""
    with warnings.catch_warnings(), open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        warnings.simplefilter("ignore")
        yield
