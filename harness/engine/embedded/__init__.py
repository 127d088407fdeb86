"""The policies shipped with the package: tiny Qwen3 and Qwen3-MoE models, warm-started for a task. No torch.

``python -m harness.engine.warm_start`` rebuilds the weight files that stand here.
"""

from pathlib import Path
from typing import Any

from harness.config.errors import UserError
from harness.config.policies import PolicyConfig

__all__ = ["PRESETS", "available", "read_file", "start_file", "weights_file"]

_TINY: dict[str, Any] = {
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
    "attention_dropout": 0.0,
}
# Keyword arguments of transformers.Qwen3Config or, with "num_experts", Qwen3MoeConfig; the vocabulary is the character
# tokenizer's.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {**_TINY, "intermediate_size": 256},
    "tiny-moe": {
        **_TINY,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "norm_topk_prob": True,  # as the released Qwen3-MoE models have it
    },
}


def available() -> list[tuple[str, str, int]]:
    """Return (preset, task, warm start) of every weight file shipped, sorted."""
    stems = (path.stem.rsplit("-", 2) for path in Path(__file__).parent.glob("*.safetensors"))
    return sorted((preset, task, int(number)) for preset, task, number in stems)


def start_file(config: PolicyConfig, task: str) -> Path:
    """Return the file an embedded policy starts from: ``config.weights``, or the warm start shipped for the task."""
    return Path(config.weights) if config.weights else weights_file(config.name, task, config.warm_start)


def read_file(path: Path) -> bytes:
    """Return the bytes of a weight file; UserError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the weights in {path}: {error.strerror}") from error


def weights_file(preset: str, task: str, warm_start: int) -> Path:
    """Return the file of a warm start; UserError lists what there is if it is not shipped."""
    path = Path(__file__).parent / f"{preset}-{task}-{warm_start}.safetensors"
    if not path.is_file():
        shipped = ", ".join(f"{p} for {t} number {n}" for p, t, n in available()) or "none"
        raise UserError(
            f"no embedded policy {preset!r} is warm-started for task {task!r} with policy.warm_start = {warm_start} "
            f"(shipped: {shipped})"
        )
    return path
