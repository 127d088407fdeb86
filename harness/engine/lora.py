"""LoRA: a policy whose weights are frozen and that is trained through adapters beside its linear layers."""

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from harness.config.errors import UserError
from harness.config.policies import LoraConfig
from harness.engine.copies import copy_trained
from harness.engine.flops import ModelShape
from harness.engine.layers import adapted_layers
from harness.engine.policy import Policy
from harness.engine.streams import key

__all__ = ["ADAPTER", "with_adapters"]

ADAPTER = "default"
"""peft's name of the adapters; there is one set."""


def with_adapters(start: Policy, config: LoraConfig, seed: int) -> Policy:
    """Return ``start`` to be trained through adapters, or itself for rank 0.

    ``start`` is frozen and shares its weights with what is returned. A is drawn from ``seed`` as peft draws it, B is 0:
    the policy begins as ``start`` to the last bit. Adapters have the model's precision; of half precision the optimizer
    steps float32 copies, as of any weights.

    Raises:
        UserError: peft is missing, the model has no layer that is named, or it has other layers than Llama's.
    """
    if not config.rank:
        return start
    settings = start.model.config.to_dict()
    shape = ModelShape.from_config(settings, config)
    start.model.requires_grad_(False)
    policy = Policy(copy_trained(start.model), start.tokenizer, shape, start.context)
    layers: Any = policy.body.layers
    chosen = _chosen(layers, adapted_layers(config, settings))
    weights = sum(config.rank * (layer.in_features + layer.out_features) for layer in chosen.values())
    if weights != shape.layers.adapters:
        raise UserError(
            f"policy.lora cannot adapt this policy: its adapters would have {weights} weights, those of a Llama-like "
            f"model of its configuration {shape.layers.adapters}; its architecture ({settings['model_type']}) "
            "names or shapes linear layers in another way"
        )
    from peft import LoraConfig as PeftConfig
    from peft import inject_adapter_in_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(seed, "lora") % 2**63)
        # Into the layers, not the model: of a mixture of experts peft would read "up_proj" as the experts' too.
        inject_adapter_in_model(
            PeftConfig(r=config.rank, lora_alpha=config.alpha, target_modules=[*chosen]),  # pyright: ignore
            layers,
            ADAPTER,
        )
    policy.model.eval()  # peft's new modules are not
    return policy


def _chosen(layers: nn.Module, targets: Collection[str]) -> dict[str, nn.Linear]:
    """Return the linear layers below ``layers`` of these names, by their path."""
    return {
        path: module
        for path, module in layers.named_modules()
        if isinstance(module, nn.Linear) and path.rpartition(".")[2] in targets
    }
