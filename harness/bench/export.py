"""A policy as a folder that transformers, and with it other trainers, can load."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from transformers import PreTrainedTokenizerFast

from harness.engine.policy import Policy
from harness.engine.tokenizer import CharTokenizer, HubTokenizer

__all__ = ["export"]


def export(policy: Policy, folder: Path) -> Any:
    """Write weights, configuration and tokenizer of ``policy``; return the tokenizer.

    A file that was quantized is written as the floating-point numbers that it is trained as.
    """
    settings = policy.model.config.to_dict()
    settings.pop("quantization_config", None)  # a GGUF file's
    (folder / "config.json").write_text(json.dumps(settings))
    named = {name: p.detach().contiguous() for name, p in policy.model.named_parameters()}  # a tied head once
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer = policy.tokenizer
    made = tokenizer.hub if isinstance(tokenizer, HubTokenizer) else _characters()
    made.save_pretrained(folder)
    return made


def _characters() -> PreTrainedTokenizerFast:
    """Return the character tokenizer of the embedded policies as a fast tokenizer of transformers."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    special = {"<pad>": CharTokenizer.pad_id, "<end>": CharTokenizer.eos_id}
    vocabulary = special | {character: i + 2 for i, character in enumerate(CharTokenizer.alphabet)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<end>", clean_up_tokenization_spaces=False
    )
