"""Closed-form FLOPs of a decoder-only transformer; equal to torch's FlopCounterMode with eager attention. No torch.

Conventions: one multiply-add is 2 FLOPs; embeddings, norms, rotary embeddings, softmax and activations count 0;
attention over T tokens costs its full T x T scores, and of n tokens behind a prompt of p tokens n x (p + n), which is
what an eager kernel computes; all weights trained, forward and backward together are 3 times the forward pass. "Useful"
FLOPs are those of the sequences alone, each at its own length and each prompt once for its group; "executed" ones
include padding and recomputation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TRAIN_FACTOR", "ModelShape", "PassRows", "attention_blocks"]

TRAIN_FACTOR = 3
BLOCK_SCORES = 1 << 14
"""Attention scores that a further block must save: about what its kernel launches cost on a CPU."""


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
        last_weights: of the last matrix of each dense layer, whose product nothing keeps for the backward pass.
    """

    body_weights: int
    head_weights: int
    attention_width: int
    num_layers: int
    hidden_size: int
    last_weights: int = 0

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
        last = (layers - sparse) * hidden * config["intermediate_size"] if sparse < layers else 0
        mlp = 3 * last
        if sparse:
            routed = config["moe_intermediate_size"] * config["num_experts_per_tok"]
            mlp += sparse * (3 * hidden * routed + hidden * experts)
        return cls(
            body_weights=layers * attention + mlp,
            head_weights=hidden * config["vocab_size"],
            attention_width=heads * head_size,
            num_layers=layers,
            hidden_size=hidden,
            last_weights=last,
        )

    @property
    def vocab_size(self) -> int:
        """Tokens of the vocabulary."""
        return self.head_weights // self.hidden_size

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

    def response_forward(self, rows: "PassRows") -> int:
        """Return the FLOPs of log-probabilities of responses; the head sees no prompt."""
        return self._pass_body(rows.inputs(), rows) + self.head(sum(rows.responses))

    def values_forward(self, rows: "PassRows", *, bootstrap: bool) -> int:
        """Return the FLOPs of a critic on the states of responses, with the final state if ``bootstrap``."""
        tokens = sum(rows.responses) + int(bootstrap) * len(rows.responses)
        return self._pass_body(rows.inputs(last=bootstrap), rows) + self.value_head(tokens)

    def packed_body(self, rows: "PassRows", *, last: bool = False) -> int:
        """Return what the layers execute of a pass over ``rows`` as one packed row (``packing``)."""
        prompts, inputs = [*dict(zip(rows.keys, rows.prompts, strict=True)).values()], rows.inputs(last)
        widest = max(prompts, default=0)
        scores = len(prompts) * widest * widest
        for block in attention_blocks(rows.prompts, inputs):
            longest = max(inputs[i] for i in block)
            scores += len(block) * longest * (widest + longest)
        return 2 * self.body_weights * (sum(prompts) + sum(inputs)) + self._attention(scores)

    def recomputed_body(self, rows: "PassRows", *, last: bool = False) -> int:
        """Return what the layers execute once more in the backward pass where activations are not kept."""
        prompts = sum(dict(zip(rows.keys, rows.prompts, strict=True)).values())
        return self.packed_body(rows, last=last) - 2 * self.last_weights * (prompts + sum(rows.inputs(last)))

    def _pass_body(self, inputs: Sequence[int], rows: "PassRows") -> int:
        prompts = [n for n, leads in zip(rows.prompts, rows.leads, strict=True) if leads]
        scores = sum(m * (p + m) for p, m in zip(rows.prompts, inputs, strict=True))
        return self.body(prompts) + 2 * self.body_weights * sum(inputs) + self._attention(scores)


@dataclass(frozen=True)
class PassRows:
    """Lengths of the responses of a pass without a cache, tokens.

    Attributes:
        prompts: of each row's prompt.
        responses: of each row's response.
        keys: equal where two rows have the same prompt, which a pass over both computes once.
        leads: whether the row's prompt counts as useful work: that of the first row of a prompt, however the rows are
            cut into micro-batches.
    """

    prompts: Sequence[int]
    responses: Sequence[int]
    keys: Sequence[int]
    leads: Sequence[bool]

    @classmethod
    def of_groups(cls, num_prompts: int, group_size: int, prompt: int, response: int, singles: int = 0) -> "PassRows":
        """Return whole groups, and ``singles`` with a prompt each, whose prompts and responses have one length each."""
        num = num_prompts * group_size
        keys = [*(i // group_size for i in range(num)), *range(num_prompts, num_prompts + singles)]
        leads = [*(i % group_size == 0 for i in range(num)), *[True] * singles]
        return cls([prompt] * len(keys), [response] * len(keys), keys, leads)

    def inputs(self, last: bool = False) -> list[int]:
        """Return the response tokens that are inputs: all but the last one, or that too."""
        return [max(n - 1 + last, 0) for n in self.responses]


def attention_blocks(prompts: Sequence[int], inputs: Sequence[int]) -> list[list[int]]:
    """Return the blocks that attention pads responses of these lengths into: their positions, shortest first.

    Args:
        prompts: tokens of each row's prompt, of which the longest counts.
        inputs: response tokens of each row that are inputs; rows with none are in no block.
    """
    order = sorted((i for i, n in enumerate(inputs) if n > 0), key=lambda i: inputs[i])
    widest = max(prompts, default=0)

    def scores(begin: int, end: int) -> int:
        longest = inputs[order[end - 1]]
        return (end - begin) * longest * (widest + longest)

    def cut(begin: int, end: int) -> list[list[int]]:
        inside = [i for i in range(begin + 1, end) if inputs[order[i]] > inputs[order[i - 1]]]
        best = min(inside, key=lambda i: scores(begin, i) + scores(i, end), default=None)
        if best is None or scores(begin, best) + scores(best, end) + BLOCK_SCORES > scores(begin, end):
            return [order[begin:end]]
        return [*cut(begin, best), *cut(best, end)]

    return cut(0, len(order)) if order else []
