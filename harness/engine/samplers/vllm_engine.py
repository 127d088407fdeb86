"""A vLLM in this process that holds another's weights: built without any, filled, asked, put to sleep, ended.

It runs in process (without vLLM's own engine process), so that the weights are handed over as tensors: one copy on a
device. With tensor parallelism its workers are processes, and the weights are sent to each.

Weights go in by ``reload_weights``, which works on every device. vLLM's weight-transfer engines (NCCL, CUDA IPC) carry
weights between processes and GPUs and have none for a CPU or for the process itself.
"""

import gc
import importlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from harness.config.errors import UserError
from harness.config.sampler import SamplerConfig, vllm_version
from harness.engine.policy import Policy

__all__ = ["Generated", "VllmEngine"]

_GIB = 1 << 30
_CPU_CACHE_GIB = 1.0
_GPU_SHARE = 0.4


@dataclass(frozen=True)
class Generated:
    """One response: token ids with the end token, and their log-probabilities at the sampling temperature, nats."""

    ids: list[int]
    logprobs: list[float]


class VllmEngine:
    """vLLM for one policy's architecture, with no weights of its own until ``load``.

    Args:
        policy: whose architecture, precision and device.
        config: its settings.

    Raises:
        UserError: here and in every method: vLLM is not installed, cannot be started, or fails.
    """

    def __init__(self, policy: Policy, config: SamplerConfig) -> None:
        vllm_version()
        self._asleep = False
        self._config = config
        with _guarded(config), tempfile.TemporaryDirectory() as folder:
            self._vllm: Any = _import_vllm()
            _require_devices(policy, config)
            (Path(folder) / "config.json").write_text(_model_config(policy), encoding="utf-8")
            try:
                self._llm: Any = self._vllm.LLM(model=folder, **_arguments(policy, config))
            except BaseException:
                _clean_up()  # or the next one would find its half-built groups
                raise

    @property
    def max_tokens(self) -> int:
        """Tokens of a prompt and its response at most."""
        return self._llm.llm_engine.model_config.max_model_len

    def load(self, weights: Sequence[tuple[str, Tensor]]) -> None:
        """Take over ``weights``, named as in a pretrained model's files; wakes up."""
        with _guarded(self._config):
            if self._asleep:
                self._llm.wake_up(tags=["weights"])
            if self._config.tensor_parallel_size > 1:  # sent to processes, each of which takes its part
                weights = [(name, tensor.cpu()) for name, tensor in weights]
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": list(weights)})
            if self._asleep:
                self._llm.wake_up(tags=["kv_cache"])
            self._asleep = False

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        *,
        limit: int,
        temperature: float,
        stops: Sequence[int],
    ) -> list[Generated]:
        """Return a response to each prompt, drawn with its own seed, from the whole distribution.

        Args:
            prompts: token ids, none empty.
            seeds: one a prompt, 63 bits.
            limit: tokens of a response at most.
            temperature: divides the logits; 0 takes the most probable token.
            stops: ids that end a response.
        """
        asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        settings = {
            "temperature": temperature,
            "max_tokens": limit,
            "stop_token_ids": list(stops),
            "ignore_eos": True,  # the end token of the model's configuration, which need not be among the stops
            "logprobs": 0,
            "detokenize": False,
        }
        eager = self._config.enforce_eager  # a few functions beside the model's would be compiled all the same
        with _guarded(self._config), torch.compiler.set_stance("force_eager") if eager else nullcontext():
            params = [self._vllm.SamplingParams(**settings, seed=seed if temperature else None) for seed in seeds]
            self._llm.reset_prefix_cache()  # what it holds is of other weights, or would change how a call is batched
            return [_read(one.outputs[0], limit, stops) for one in self._llm.generate(asked, params, use_tqdm=False)]

    def sleep(self) -> None:
        """Give back the device's memory, weights too, until ``load``."""
        with _guarded(self._config):
            self._llm.sleep(level=2)
        self._asleep = True

    def close(self) -> None:
        """End it and give back its memory."""
        with _guarded(self._config):
            self._llm.llm_engine.engine_core.shutdown()
            del self._llm
            _clean_up()


def _clean_up() -> None:
    gc.collect()
    importlib.import_module("vllm.distributed").cleanup_dist_env_and_memory()


@contextmanager
def _guarded(config: SamplerConfig) -> Iterator[None]:
    """Make one line of what vLLM raises, and take back what it does to the process: hooks, threads, warnings."""
    set_threads, threads, hook = torch.set_num_threads, torch.get_num_threads(), sys.excepthook
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (AssertionError, ImportError, OSError, RuntimeError, ValueError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        cause = " ".join(said.removeprefix("Value error, ").split())[:300] or type(error).__name__
        given = config.model_dump(exclude_defaults=True, exclude={"name"})
        settings = " with " + ", ".join(f"sampler.{key} = {value}" for key, value in given.items()) if given else ""
        raise UserError(f"vLLM {vllm_version()} cannot run this policy here{settings}: {cause}") from error
    finally:
        torch.set_num_threads, sys.excepthook = set_threads, hook
        torch.set_num_threads(threads)


def _import_vllm() -> Any:
    """Import vLLM, quiet and in process; what is set in the environment already is left."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    for name, value in {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # or it wants a NUMA node for each worker
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }.items():
        os.environ.setdefault(name, value)
    return importlib.import_module("vllm")


def _require_devices(policy: Policy, config: SamplerConfig) -> None:
    kind, wanted = importlib.import_module("vllm.platforms").current_platform.device_type, policy.device
    if kind != wanted.type:
        raise UserError(
            f"the vLLM that is installed runs on {kind!r}, the trainer on engine.device = {str(wanted)!r}: set "
            f"engine.device = {kind!r}, or install another vLLM (README, vLLM)"
        )
    if wanted.index:
        raise UserError(
            f"vLLM takes the first visible GPUs and engine.device is {str(wanted)!r}: set engine.device = {kind!r} and "
            f"CUDA_VISIBLE_DEVICES={wanted.index}"
        )
    if kind != "cpu" and torch.cuda.device_count() < config.tensor_parallel_size:
        raise UserError(
            f"sampler.tensor_parallel_size = {config.tensor_parallel_size} takes as many GPUs; "
            f"{torch.cuda.device_count()} are visible"
        )


def _model_config(policy: Policy) -> str:
    """Return config.json as vLLM reads it: of the policy's class, in plain floats."""
    settings = json.loads(policy.model.config.to_json_string(use_diff=False))
    settings.pop("quantization_config", None)  # how a GGUF file was packed; the policy's weights no longer are
    return json.dumps({**settings, "architectures": [type(policy.model).__name__]})


def _arguments(policy: Policy, config: SamplerConfig) -> dict[str, Any]:
    """Return the arguments of ``vllm.LLM``, but for the model."""
    cache = config.kv_cache_gib or (_CPU_CACHE_GIB if policy.device.type == "cpu" else None)
    memory = {"gpu_memory_utilization": config.gpu_memory_utilization or _GPU_SHARE}
    return {
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "dtype": str(policy.model.dtype).removeprefix("torch."),
        "logprobs_mode": "processed_logprobs",  # at the sampling temperature
        "max_model_len": -1,  # the model's, or what the cache has room for
        "max_num_seqs": config.max_num_seqs,
        "tensor_parallel_size": config.tensor_parallel_size,
        "enforce_eager": config.enforce_eager,
        "enable_sleep_mode": config.sleep,
        "disable_log_stats": True,
        **(memory if cache is None else {"kv_cache_memory_bytes": int(cache * _GIB)}),
    }


def _read(output: Any, limit: int, stops: Sequence[int]) -> Generated:
    ids = list(output.token_ids)
    if not ids or (ids[-1] not in stops and len(ids) < limit):
        raise RuntimeError(f"a response ended after {len(ids)} tokens: {output.finish_reason}")
    chances = [entry[token].logprob for entry, token in zip(output.logprobs, ids, strict=True)]
    return Generated(ids, chances)
