"""Closed-form FLOPs of a decoder-only transformer; equal to torch's FlopCounterMode with eager attention. No torch.

Conventions: one multiply-add is 2 FLOPs; embeddings, norms, rotary embeddings, softmax and activations count 0;
attention over T tokens costs its full T x T scores, which is what an eager kernel computes; all weights trained,
forward and backward together are 3 times the forward pass. "Useful" FLOPs are those of the sequences alone, each at
its own length; "executed" ones include padding and recomputation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TRAIN_FACTOR", "ModelShape"]

TRAIN_FACTOR = 3


@dataclass(frozen=True)
class ModelShape:
    """What the closed form needs to know of a model.

    Attributes:
        body_weights: weights of all linear layers but the head that a token passes through (of a mixture of experts:
            router and the experts it is routed to; its dense layers as they are).
        head_weights: hidden size x vocabulary.
        attention_width: heads x head size, summed over nothing: of one layer.
        num_layers: decoder layers.
        hidden_size: width of the residual stream.
    """

    body_weights: int
    head_weights: int
    attention_width: int
    num_layers: int
    hidden_size: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ModelShape":
        """Return the shape of a Llama-like model (Llama, Qwen2, Qwen3, Qwen3-MoE) from its config.json as a mapping."""
        hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
        head_size = config.get("head_dim") or hidden // heads
        kv_heads = config.get("num_key_value_heads") or heads
        attention = 2 * hidden * heads * head_size + 2 * hidden * kv_heads * head_size
        experts = config.get("num_experts") or config.get("num_local_experts")
        sparse = 0
        if experts:
            dense, every = config.get("mlp_only_layers") or (), config.get("decoder_sparse_step") or 1
            sparse = sum(layer not in dense and (layer + 1) % every == 0 for layer in range(layers))
        mlp = (layers - sparse) * 3 * hidden * config["intermediate_size"]
        if sparse:
            routed = config["moe_intermediate_size"] * config["num_experts_per_tok"]
            mlp += sparse * (3 * hidden * routed + hidden * experts)
        return cls(
            body_weights=layers * attention + mlp,
            head_weights=hidden * config["vocab_size"],
            attention_width=heads * head_size,
            num_layers=layers,
            hidden_size=hidden,
        )

    def _attention(self, scores: int) -> int:
        return 4 * self.num_layers * self.attention_width * scores

    def body(self, lengths: Sequence[int]) -> int:
        """Return the FLOPs of the decoder layers over sequences of these lengths, tokens."""
        return 2 * self.body_weights * sum(lengths) + self._attention(sum(n * n for n in lengths))

    def head(self, tokens: int) -> int:
        """Return the FLOPs of the language-model head on ``tokens`` positions."""
        return 2 * self.head_weights * tokens

    def value_head(self, tokens: int) -> int:
        """Return the FLOPs of a scalar head on ``tokens`` positions."""
        return 2 * self.hidden_size * tokens

    def prefill(self, lengths: Sequence[int]) -> int:
        """Return the FLOPs of prompts of these lengths, each computed once, head on the last token only."""
        return self.body(lengths) + self.head(len(lengths))

    def decode(self, rows: int, contexts: int) -> int:
        """Return the FLOPs of decoding a token of ``rows`` sequences; contexts, new token included, sum to this."""
        return 2 * (self.body_weights + self.head_weights) * rows + self._attention(contexts)

    def response_forward(self, prompts: Sequence[int], responses: Sequence[int]) -> int:
        """Return the FLOPs of log-probabilities of responses: the last token is no input, the head sees no prompt."""
        return self.body(input_lengths(prompts, responses)) + self.head(sum(responses))

    def values_forward(self, prompts: Sequence[int], responses: Sequence[int], *, bootstrap: bool) -> int:
        """Return the FLOPs of a critic on the states of responses, with the final state if ``bootstrap``."""
        extra = int(bootstrap)
        lengths = [p + n - 1 + extra for p, n in zip(prompts, responses, strict=True)]
        return self.body(lengths) + self.value_head(sum(responses) + extra * len(lengths))


def input_lengths(prompts: Sequence[int], responses: Sequence[int]) -> list[int]:
    """Return what a forward pass over prompt and response reads: all but the last token."""
    return [p + n - 1 for p, n in zip(prompts, responses, strict=True)]
