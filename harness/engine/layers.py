"""The matrix products of the decoder layers of a Llama-like model, trained whole or through LoRA. No torch.

A backward pass makes the gradient of a weight that is trained, and of an input behind which something is trained: of a
frozen layer half of what training it would take, and nothing in front of the first adapter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from harness.config.errors import UserError
from harness.config.policies import ALL_LINEAR, LoraConfig

__all__ = ["LayerProducts", "adapted_layers", "count_products"]

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


@dataclass
class LayerProducts:
    """Products of all layers: weights that a token meets in one, at 2 FLOPs each, and products over attention scores.

    Attributes:
        forward: weights of a forward pass (of a mixture of experts: router and the experts that a token is routed to;
            its dense layers as they are).
        adapters: those of ``forward`` that are adapters'; all of them exist once.
        backward: weights of a backward pass.
        again: weights of what a backward pass makes again where activations are not kept: not the last product of a
            dense layer, which nothing keeps.
        merge: multiply-adds of merging the adapters into the weights beside them.
        scores_backward: products of the size of the attention scores in a backward pass; 4 a layer at most.
        scores_again: the same of what is made again; 2 a layer at most, as in a forward pass.
    """

    forward: int = 0
    adapters: int = 0
    backward: int = 0
    again: int = 0
    merge: int = 0
    scores_backward: int = 0
    scores_again: int = 0


def adapted_layers(lora: LoraConfig, config: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the linear layers that get adapters; none of rank 0.

    Args:
        lora: which ones are asked for.
        config: the model's config.json.

    Raises:
        UserError: the model has no linear layer of some name.
    """
    if not lora.rank:
        return frozenset()
    sparse = _sparse_layers(config)
    known = [*_ATTENTION, *(_MLP if len(sparse) < config["num_hidden_layers"] else ())]
    if ALL_LINEAR in lora.targets:
        return frozenset(known)
    for name in lora.targets:
        if name not in known:
            near = get_close_matches(name, known, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            experts = ", not those of its experts" if sparse else ""
            raise UserError(
                f"policy.lora.targets names {name!r}, which is no linear layer of the policy{hint} (take "
                f"{ALL_LINEAR!r} or of {', '.join(known)}{experts})"
            )
    return frozenset(lora.targets)


def count_products(config: Mapping[str, Any], lora: LoraConfig) -> LayerProducts:
    """Return the products of a model's layers from its config.json: all weights trained, or adapters alone.

    Raises:
        UserError: the model has no linear layer that ``lora`` names.
    """
    if config.get("shared_expert_intermediate_size"):
        raise UserError("experts that all tokens share (Qwen2-MoE) are not counted by the ledger: take another model")
    hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
    head_size = config.get("head_dim") or hidden // heads
    kv_heads = config.get("num_key_value_heads") or heads
    sparse = _sparse_layers(config)
    count = _Count(lora.rank, adapted_layers(lora, config))
    stream = not lora.rank  # whether the gradient of the residual stream is needed; embeddings get no adapter
    for layer in range(layers):
        before = count.found.forward
        query = count.linear("q_proj", hidden, heads * head_size, stream)
        key = count.linear("k_proj", hidden, kv_heads * head_size, stream)
        value = count.linear("v_proj", hidden, kv_heads * head_size, stream)
        count.found.scores_backward += (query or key) + value + query + key
        stream |= count.linear("o_proj", heads * head_size, hidden, query or key or value)
        skipped = 0
        if layer in sparse:
            routed = config["moe_intermediate_size"] * config["num_experts_per_tok"]
            count.linear("router", hidden, config.get("num_experts") or config["num_local_experts"], stream)
            count.linear("experts", 3 * hidden, routed, stream)
        else:
            inner = config["intermediate_size"]
            gate = count.linear("gate_proj", hidden, inner, stream)
            up = count.linear("up_proj", hidden, inner, stream)
            stream |= count.linear("down_proj", inner, hidden, gate or up)
            skipped = hidden * (lora.rank if "down_proj" in count.adapted else inner)
        if stream:
            count.found.again += count.found.forward - before - skipped
            count.found.scores_again += 2
    return count.found


def _sparse_layers(config: Mapping[str, Any]) -> set[int]:
    """Return the layers that hold experts."""
    if not (config.get("num_experts") or config.get("num_local_experts")):
        return set()
    dense, every = config.get("mlp_only_layers") or (), config.get("decoder_sparse_step") or 1
    return {i for i in range(config["num_hidden_layers"]) if i not in dense and (i + 1) % every == 0}


class _Count:
    """Adds up linear layers; without a rank all of them are trained."""

    def __init__(self, rank: int, adapted: frozenset[str]) -> None:
        self.found = LayerProducts()
        self.adapted = adapted
        self._rank = rank

    def linear(self, name: str, inputs: int, outputs: int, wanted: bool) -> bool:
        """Count a layer; return whether the gradient of its output is needed.

        Args:
            name: of the layer.
            inputs: width of its input.
            outputs: width of its output.
            wanted: whether the gradient of its input is needed.
        """
        trained, rank = not self._rank, self._rank if name in self.adapted else 0
        weights, adapters = inputs * outputs, rank * (inputs + outputs)
        self.found.forward += weights + adapters
        self.found.adapters += adapters
        self.found.merge += weights * rank
        self.found.backward += weights * (trained + wanted) + rank * (inputs * (1 + wanted) + 2 * outputs)
        return wanted or trained or rank > 0
