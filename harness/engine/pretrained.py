"""Pretrained models: a hub name, a folder or a GGUF file becomes a policy, after its packed pass has been tried."""

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from harness.config.errors import UserError
from harness.config.policies import PolicyConfig
from harness.engine.flops import ModelShape
from harness.engine.packing import ATTENTION, pack, packed_states
from harness.engine.policy import Policy
from harness.engine.tokenizer import HubTokenizer

__all__ = ["load_pretrained", "locate"]

_GGUF = ".gguf"
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1}
"""Of hidden states, relative to the largest: far above rounding, far below what a wrong mask does."""


def locate(name: str) -> dict[str, str]:
    """Return what ``from_pretrained`` takes for a hub name, a folder, or a GGUF file in one."""
    if name.endswith(_GGUF):
        return {"pretrained_model_name_or_path": str(Path(name).parent), "gguf_file": Path(name).name}
    return {"pretrained_model_name_or_path": name}


def load_pretrained(config: PolicyConfig, known: Sequence[str]) -> Policy:
    """Return the pretrained model that ``config`` names, in evaluation mode on the CPU.

    Args:
        config: name, precision and form of prompts.
        known: names of embedded presets, for the error.

    Raises:
        UserError: there is no such model, its files cannot be read, or this engine cannot run it.
    """
    place = locate(config.name)
    # Where there are kernels for it, a GGUF file's weights would stay packed, and could not be trained.
    unpacked: dict[str, Any] = {"quantization_config": GgufConfig(dequantize=True)} if "gguf_file" in place else {}
    # A download shows its progress; what is read from a disk need not.
    quiet = redirect_stderr(io.StringIO()) if Path(config.name).exists() else nullcontext()
    try:
        with quiet:
            model = AutoModelForCausalLM.from_pretrained(
                **place, **unpacked, dtype=getattr(torch, config.dtype), attn_implementation=ATTENTION
            )
            tokenizer = AutoTokenizer.from_pretrained(**place)
    except (ImportError, OSError, ValueError, json.JSONDecodeError) as error:
        cause = str(error).strip().splitlines()[0]
        raise UserError(
            f"policy {config.name!r} is neither an embedded preset ({', '.join(known)}) nor a loadable model: {cause}"
        ) from None
    settings = model.config.to_dict()
    try:
        shape = ModelShape.from_config(settings)
    except KeyError as error:
        raise UserError(f"policy {config.name!r} is no Llama-like model: its configuration lacks {error}") from None
    stops = _stop_ids(model.generation_config.eos_token_id)
    made = HubTokenizer(tokenizer, stops, chat=config.chat, system=config.system)
    policy = Policy(model.eval(), made, shape, context=_context(settings))
    _require_equal_passes(policy, config.name)
    return policy


def _stop_ids(named: int | Sequence[int] | None) -> list[int]:
    if named is None:
        return []
    return [named] if isinstance(named, int) else [*named]


def _context(settings: Mapping[str, Any]) -> int | None:
    """Return the tokens that the model takes at most: its positions, and its attention window where it has one."""
    window = settings.get("sliding_window") if settings.get("use_sliding_window", True) else None
    sizes = [size for size in (settings.get("max_position_embeddings"), window) if size]
    return min(sizes, default=None)


@torch.no_grad()
def _require_equal_passes(policy: Policy, name: str) -> None:
    """Compare the packed pass with transformers' own on a few tokens: an architecture may do more than the pass knows.

    Raises:
        UserError: they differ.
    """
    prompts, ids = [[3, 5, 4], [3, 5, 4], [7]], torch.tensor([[6, 8, 9], [4, 0, 0], [5, 3, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]], dtype=torch.bool)
    found = packed_states(policy.body, pack(prompts, ids, mask, last=True))
    expected: list[torch.Tensor] = []
    for prompt, row, n in zip(prompts, ids.tolist(), mask.sum(1).tolist(), strict=True):
        tokens = torch.tensor([[*prompt, *row[:n]]])
        expected.append(policy.body(input_ids=tokens, use_cache=False).last_hidden_state[0, len(prompt) - 1 :])
    states = torch.cat(expected)
    gap = float((found - states).abs().max() / states.abs().max())
    if not gap <= _TOLERANCE[states.dtype]:
        raise UserError(
            f"policy {name!r} cannot be run: its architecture ({policy.model.config.model_type}) gives other hidden "
            f"states in this engine's packed pass than by itself (relative gap {gap:.2g}). Llama, Qwen2, Qwen3 and "
            "Qwen3-MoE models are known to agree"
        )
