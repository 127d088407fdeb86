"""A policy: a causal language model, its tokenizer and its shape; embedded ones are shipped with the package.

Shapes in this room: B rows, T padded response tokens, W padded input tokens, D hidden size, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from harness.config.errors import UserError
from harness.engine.copies import copy_trained
from harness.engine.embedded import PRESETS
from harness.engine.flops import ModelShape
from harness.engine.packing import ATTENTION
from harness.engine.tokenizer import CharTokenizer, Tokenizer

__all__ = ["Policy", "build_preset", "load_weights", "pad_right", "read_weights"]


@dataclass
class Policy:
    """A model that writes responses.

    Attributes:
        model: a transformers causal LM in evaluation mode: dropout is off in every pass, or ratios would not be 1.
        tokenizer: of the model.
        shape: for the FLOP ledger.
        context: tokens that it takes at most, None where it does not say.
        replica: of a model that is sharded over processes, a whole copy to sample from, which its sampler keeps up to
            date; None of one that is not.
    """

    model: Any
    tokenizer: Tokenizer
    shape: ModelShape
    context: int | None = None
    replica: "Policy | None" = None

    @property
    def body(self) -> nn.Module:
        """The decoder without its head."""
        return self.model.get_decoder()

    @property
    def head(self) -> nn.Module:
        """The language-model head, [.., D] to [.., V]."""
        return self.model.get_output_embeddings()

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return next(self.model.parameters()).device

    def frozen_copy(self) -> "Policy":
        """Return a copy that is never trained."""
        model = copy_trained(self.model)
        model.requires_grad_(False)
        return Policy(model, self.tokenizer, self.shape, self.context)


def pad_right(rows: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> Tensor:
    """Return ``rows`` as one int64 tensor [B, longest row], padded on the right."""
    width = max(map(len, rows), default=0)
    return torch.tensor([[*row, *[pad_id] * (width - len(row))] for row in rows], dtype=torch.int64, device=device)


def build_preset(name: str, seed: int) -> Policy:
    """Return an untrained embedded policy, its weights drawn from ``seed``."""
    moe = "num_experts" in PRESETS[name]
    classes: tuple[Any, Any] = (Qwen3MoeConfig, Qwen3MoeForCausalLM) if moe else (Qwen3Config, Qwen3ForCausalLM)
    config = classes[0](vocab_size=CharTokenizer.vocab_size, **PRESETS[name])
    config.pad_token_id, config.eos_token_id, config.bos_token_id = CharTokenizer.pad_id, CharTokenizer.eos_id, None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = classes[1](config)
    model.set_attn_implementation(ATTENTION)
    if moe:
        model.set_experts_implementation("eager")  # of few experts as fast as any, and in float64 too
    return Policy(
        model.eval(), CharTokenizer(), ModelShape.from_config(config.to_dict()), config.max_position_embeddings
    )


def load_weights(policy: Policy, path: Path) -> None:
    """Put the tensors of a safetensors file into ``policy``; the tied head may be missing, nothing else."""
    try:
        missing, unexpected = policy.model.load_state_dict(read_weights(path), strict=False)
    except RuntimeError as error:
        cause = " ".join(str(error).split())
        raise UserError(f"the weights in {path} are another model's: {cause[:200]}") from error
    tied = {"lm_head.weight"} if policy.model.config.tie_word_embeddings else set[str]()
    strangers = sorted({*missing, *unexpected} - tied)
    if strangers:
        raise UserError(f"the weights in {path} are another model's: {strangers[0]} is missing or too much")
    policy.model.tie_weights()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file; UserError names it if it cannot be read."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read the weights in {path}: {error}") from error
