"""What sampling costs, in the pieces that it is charged in: the prompts once, then one decoding step after another.

The pieces and their useful work depend on the lengths of prompts and responses alone, so that every sampler pays the
same for the same responses. No torch.
"""

from collections.abc import Iterator, Sequence

from harness.engine.flops import ModelShape
from harness.engine.ledger import Work

__all__ = ["decode_pieces", "decode_work", "prefill_work"]


def prefill_work(shape: ModelShape, prompts: Sequence[int], rows: int, executed: int = -1) -> Work:
    """Return the work of prompts of these lengths, each computed once, with the first token of ``rows`` responses."""
    return Work(shape.prefill(prompts), executed, generated_tokens=rows)


def decode_work(shape: ModelShape, rows: int, contexts: int, executed: int = -1) -> Work:
    """Return the work of one more token of ``rows`` responses; their contexts, that token included, sum to this."""
    return Work(shape.decode(rows, contexts), executed, generated_tokens=rows)


def decode_pieces(shape: ModelShape, prompts: Sequence[int], responses: Sequence[int]) -> Iterator[Work]:
    """Yield the decoding steps of whole responses, one a position, over the rows that are still going.

    Args:
        shape: of the policy.
        prompts: tokens of each response's prompt.
        responses: tokens of each response; the first is the prompt's (``prefill_work``).
    """
    for position in range(1, max(responses, default=0)):
        going = [prompt for prompt, length in zip(prompts, responses, strict=True) if length > position]
        yield decode_work(shape, len(going), sum(going) + position * len(going))
