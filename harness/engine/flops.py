"""Closed-form FLOPs of a decoder-only transformer; equal to torch's FlopCounterMode with eager attention. No torch.

Conventions: one multiply-add is 2 FLOPs; embeddings, norms, rotary embeddings, softmax and activations count 0;
attention over T tokens costs its full T x T scores, and of n tokens behind a prompt of p tokens n x (p + n), which is
what an eager kernel computes; all weights trained, forward and backward together are 3 times the forward pass, and with
LoRA what ``layers`` says. "Useful" FLOPs are those of the sequences alone, each at its own length and each prompt once
for its group; "executed" ones include padding and recomputation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.config.policies import LoraConfig
from harness.engine.layers import LayerProducts, count_products

__all__ = ["ModelShape", "PassRows", "attention_blocks"]

_NO_LORA = LoraConfig()  # pyright: ignore[reportCallIssue]
BLOCK_SCORES = 1 << 14
"""Attention scores that a further block must save: about what its kernel launches cost on a CPU."""


@dataclass(frozen=True)
class ModelShape:
    """What the closed form needs to know of a model.

    Attributes:
        layers: products of the decoder layers.
        head_weights: hidden size x vocabulary.
        attention_width: heads x head size, summed over nothing: of one layer.
        num_layers: decoder layers.
        hidden_size: width of the residual stream.
        head_trained: whether the head is; if not, its backward pass makes the gradient of the states alone.
    """

    layers: LayerProducts
    head_weights: int
    attention_width: int
    num_layers: int
    hidden_size: int
    head_trained: bool = True

    @classmethod
    def from_config(cls, config: Mapping[str, Any], lora: LoraConfig = _NO_LORA) -> "ModelShape":
        """Return the shape of a Llama-like model (Llama, Qwen2, Qwen3, Qwen3-MoE) from its config.json as a mapping.

        Raises:
            KeyError: it is no such model.
            UserError: it has no linear layer that ``lora`` names.
        """
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        return cls(
            layers=count_products(config, lora),
            head_weights=hidden * config["vocab_size"],
            attention_width=heads * (config.get("head_dim") or hidden // heads),
            num_layers=config["num_hidden_layers"],
            hidden_size=hidden,
            head_trained=not lora.rank,
        )

    @property
    def start(self) -> "ModelShape":
        """The shape of the model as it was before it got adapters; for forward passes."""
        return replace(self, layers=LayerProducts(forward=self.layers.forward - self.layers.adapters))

    @property
    def body_weights(self) -> int:
        """Weights of all linear layers but the head that a token passes through."""
        return self.layers.forward

    @property
    def vocab_size(self) -> int:
        """Tokens of the vocabulary."""
        return self.head_weights // self.hidden_size

    def _body(self, tokens: int, scores: int, *, backward: bool = False) -> int:
        """Return the FLOPs of the layers over tokens and attention scores, with those of the backward pass if asked."""
        layers, products = self.layers, 2 * self.num_layers
        weights = layers.forward + backward * layers.backward
        return 2 * weights * tokens + 2 * self.attention_width * (products + backward * layers.scores_backward) * scores

    def body(self, lengths: Sequence[int]) -> int:
        """Return the FLOPs of the decoder layers over sequences of these lengths, tokens."""
        return self._body(sum(lengths), sum(n * n for n in lengths))

    def head(self, tokens: int, *, backward: bool = False) -> int:
        """Return the FLOPs of the language-model head on ``tokens`` positions, with the backward pass if asked."""
        return 2 * self.head_weights * tokens * (1 + backward * (1 + self.head_trained))

    def value_head(self, tokens: int, *, backward: bool = False) -> int:
        """Return the FLOPs of a scalar head on ``tokens`` positions, with the backward pass if asked."""
        return 2 * self.hidden_size * tokens * (1 + backward * 2)

    def merge(self) -> int:
        """Return the FLOPs of merging adapters into the weights, 0 without any."""
        return 2 * self.layers.merge

    def prefill(self, lengths: Sequence[int]) -> int:
        """Return the FLOPs of prompts of these lengths, each computed once, head on the last token only."""
        return self.body(lengths) + self.head(len(lengths))

    def decode(self, rows: int, contexts: int) -> int:
        """Return the FLOPs of decoding a token of ``rows`` sequences; contexts, new token included, sum to this."""
        return self._body(rows, contexts) + self.head(rows)

    def response_forward(self, rows: "PassRows", *, backward: bool = False) -> int:
        """Return the FLOPs of log-probabilities of responses; the head sees no prompt. ``backward`` adds that pass."""
        return self._useful_body(rows.inputs(), rows, backward) + self.head(sum(rows.responses), backward=backward)

    def values_forward(self, rows: "PassRows", *, bootstrap: bool, backward: bool = False) -> int:
        """Return the FLOPs of a critic on the states of responses, with the final state if ``bootstrap``; as above."""
        tokens = sum(rows.responses) + int(bootstrap) * len(rows.responses)
        body = self._useful_body(rows.inputs(last=bootstrap), rows, backward)
        return body + self.value_head(tokens, backward=backward)

    def packed_body(self, rows: "PassRows", *, last: bool = False, backward: bool = False) -> int:
        """Return what the layers execute of a pass over ``rows`` as one packed row (``packing``)."""
        return self._body(*_packed(rows, last), backward=backward)

    def recomputed_body(self, rows: "PassRows", *, last: bool = False) -> int:
        """Return what the layers execute once more in the backward pass where activations are not kept."""
        tokens, scores = _packed(rows, last)
        return 2 * self.layers.again * tokens + 2 * self.attention_width * self.layers.scores_again * scores

    def _useful_body(self, inputs: Sequence[int], rows: "PassRows", backward: bool) -> int:
        prompts = [n for n, leads in zip(rows.prompts, rows.leads, strict=True) if leads]
        scores = sum(n * n for n in prompts)
        scores += sum(m * (p + m) for p, m in zip(rows.prompts, inputs, strict=True))
        return self._body(sum(prompts) + sum(inputs), scores, backward=backward)


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


def _packed(rows: PassRows, last: bool) -> tuple[int, int]:
    """Return the tokens and the attention scores of a pass over ``rows`` as one packed row."""
    prompts, inputs = [*dict(zip(rows.keys, rows.prompts, strict=True)).values()], rows.inputs(last)
    widest = max(prompts, default=0)
    scores = len(prompts) * widest * widest
    for block in attention_blocks(rows.prompts, inputs):
        longest = max(inputs[i] for i in block)
        scores += len(block) * longest * (widest + longest)
    return sum(prompts) + sum(inputs), scores


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
