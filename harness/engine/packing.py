"""One pass over responses without padding, in which a prompt is computed once for all of its responses.

All tokens stand in one row: the prompts, each once, then the responses. What a layer does token by token sees no
padding. Attention alone has to know who sees whom: it lays the row out as padded blocks, the prompts and then responses
of similar length, each beside the keys and values of its prompt.

Shapes in this room: N tokens, P prompts of at most W tokens, B responses of a block of at most R tokens, H heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from harness.engine.flops import attention_blocks

__all__ = ["ATTENTION", "Layout", "Packed", "pack", "packed_states"]

ATTENTION = "evengrad"
"""Name under which transformers finds ``attention``."""


@dataclass(frozen=True)
class _Block:
    """Sequences of the row, padded to one length.

    Attributes:
        shape: (sequences, longest).
        begin: where in the row the first one begins.
        places: [n] int64, where in the padded block each of the row's tokens stands.
    """

    shape: tuple[int, int]
    begin: int
    places: Tensor

    def pad(self, x: Tensor) -> Tensor:
        """Return the block [S, H, longest, C] of the row ``x`` [N, H, C], 0 where it is padded."""
        rows = x[self.begin : self.begin + len(self.places)].flatten(1)
        padded = rows.new_zeros(self.shape[0] * self.shape[1], rows.shape[1]).index_copy(0, self.places, rows)
        return padded.view(*self.shape, *x.shape[1:]).transpose(1, 2)

    def unpad(self, x: Tensor) -> Tensor:
        """Return the tokens [n, H, C] of ``x`` [S, longest, H, C]."""
        return x.flatten(0, 1).flatten(1).index_select(0, self.places).view(-1, *x.shape[2:])


@dataclass(frozen=True)
class _Responses(_Block):
    """Responses beside their prompts.

    Attributes:
        prompt: [B] int64, the prompt of each.
        visible: [B, 1, R, W + R] bool, whether a token sees a token of its prompt or an earlier one of its own.
    """

    prompt: Tensor
    visible: Tensor


@dataclass(frozen=True)
class Layout:
    """How attention lays out a row of tokens."""

    prompts: _Block
    responses: tuple[_Responses, ...]


@dataclass(frozen=True)
class Packed:
    """Prompts and responses as one row.

    Attributes:
        ids: [1, N] int64.
        positions: [1, N] int64, each token's place in its own sequence.
        layout: for attention.
        states: [K] int64, the place in the row of each state that was asked for.
    """

    ids: Tensor
    positions: Tensor
    layout: Layout
    states: Tensor


def pack(prompts: Sequence[Sequence[int]], ids: Tensor, mask: Tensor, *, last: bool = False) -> Packed:
    """Return prompts and responses as one row, and where in it the states are that stand before each response token.

    Args:
        prompts: token ids of each row's prompt, none empty; equal ones are computed once.
        ids: [B, T] int64 response tokens, contiguous from column 0.
        mask: [B, T] bool.
        last: also the states after the last tokens. Without, a response's last token is no input.

    Returns:
        The row; its states are in the order of ``mask``'s true entries, with ``last`` one more of each row behind them.
    """
    device = ids.device
    known: dict[tuple[int, ...], int] = {}
    prompt_of = [known.setdefault(tuple(prompt), len(known)) for prompt in prompts]
    widths = [len(prompt) for prompt in known]
    asked = mask.sum(1).tolist()
    inputs = [max(n - 1 + last, 0) for n in asked]
    blocks = attention_blocks([len(prompt) for prompt in prompts], inputs)
    prompt_block = _block(widths, 0, device)
    begins = [0, *accumulate(widths)]
    row = [token for prompt in known for token in prompt]
    positions = [place for width in widths for place in range(width)]
    tokens = ids.tolist()
    begin_of = [0] * len(prompts)
    responses: list[_Responses] = []
    for block in blocks:
        begin = len(row)
        for i in block:
            begin_of[i] = len(row)
            row += tokens[i][: inputs[i]]
            positions += range(len(prompts[i]), len(prompts[i]) + inputs[i])
        part = _block([inputs[i] for i in block], begin, device)
        responses.append(_responses(part, [prompt_of[i] for i in block], widths, device))
    states: list[int] = []
    for i, n in enumerate(asked):
        before = [begins[prompt_of[i] + 1] - 1, *range(begin_of[i], begin_of[i] + inputs[i])]
        states += before[: n + last]

    def tensor(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    return Packed(tensor(row)[None], tensor(positions)[None], Layout(prompt_block, tuple(responses)), tensor(states))


def _block(lengths: Sequence[int], begin: int, device: torch.device) -> _Block:
    longest = max(lengths)
    real = torch.arange(longest) < torch.tensor(lengths)[:, None]
    return _Block((len(lengths), longest), begin, real.flatten().nonzero()[:, 0].to(device))


def _responses(block: _Block, prompt: Sequence[int], widths: Sequence[int], device: torch.device) -> _Responses:
    size, longest = block.shape
    of_prompt = torch.arange(max(widths)) < torch.tensor([widths[i] for i in prompt])[:, None]  # [B, W]
    own = torch.ones(longest, longest, dtype=torch.bool).tril()
    visible = torch.cat(
        [of_prompt[:, None].expand(size, longest, -1), own.expand(size, longest, longest)], 2
    )  # [B, R, W + R]
    index = torch.tensor(prompt, dtype=torch.int64, device=device)
    return _Responses(block.shape, block.begin, block.places, index, visible[:, None].to(device))


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    layout: Layout | None = None,
    **options: object,
) -> tuple[Tensor, None]:
    """Attend as ``layout`` says, or as transformers' own SDPA kernel does without one.

    Args:
        module: the layer's attention.
        query: [1, H, N, C]; key and value may have fewer heads.
        key: like ``query``.
        value: like ``query``.
        attention_mask: of a call without a layout.
        layout: of a packed row.
        options: of the kernel.

    Returns:
        [1, N, H, C], and no weights.
    """
    if layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)  # pyright: ignore
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))  # [N, H, C]
    block = layout.prompts
    prompt_k, prompt_v = block.pad(k), block.pad(v)
    options["is_causal"] = True
    outputs = [block.unpad(sdpa_attention_forward(module, block.pad(q), prompt_k, prompt_v, None, **options)[0])]  # pyright: ignore
    options["is_causal"] = False
    for block in layout.responses:
        keys = torch.cat([prompt_k.index_select(0, block.prompt), block.pad(k)], 2)
        values = torch.cat([prompt_v.index_select(0, block.prompt), block.pad(v)], 2)
        seen = sdpa_attention_forward(module, block.pad(q), keys, values, block.visible, **options)[0]  # pyright: ignore
        outputs.append(block.unpad(seen))
    return torch.cat(outputs)[None], None


def packed_states(body: torch.nn.Module, packed: Packed) -> Tensor:
    """Return the last hidden states [K, D] that ``packed`` asks for, of a decoder with this attention."""
    unused = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=packed.ids.device)  # else an [N, N] one is made
    hidden = body(
        input_ids=packed.ids,
        position_ids=packed.positions,
        attention_mask=unused,
        layout=packed.layout,
        use_cache=False,
    ).last_hidden_state
    return hidden[0].index_select(0, packed.states)


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
