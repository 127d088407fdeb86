"""Common random numbers: everything random is a pure function of (seed, stream, step, prompt, sample). No torch.

Two runs of one seed see the same prompts in the same order and draw the same uniforms for the same sample, whatever
their objective; there is no generator state to save or to disturb.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

__all__ = ["key", "prompt_order", "prompt_stream", "uniform_row", "uniforms"]


def key(*parts: int | str) -> int:
    """Return a 128-bit key of ``parts``; different parts give unrelated keys.

    Example:
        >>> key(0, "rollout", 3) != key(0, "rollout", 4)
        True
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def uniforms(seed: int, stream: str, step: int, prompts: Sequence[str], samples: int, length: int) -> np.ndarray:
    """Return one uniform in [0, 1) per prompt, sample and position.

    Args:
        seed: of the run.
        stream: what they are for ("rollout", "evaluation", ...).
        step: iteration; repeated visits of a prompt differ by it.
        prompts: ids of the prompts.
        samples: samples a prompt.
        length: positions; a longer draw begins with the same numbers.

    Returns:
        [prompts, samples, length] float64.
    """
    drawn = np.empty((len(prompts), samples, length))
    for row, prompt in enumerate(prompts):
        for sample in range(samples):
            drawn[row, sample] = uniform_row(seed, stream, step, prompt, sample, length)
    return drawn


def uniform_row(seed: int, stream: str, step: int, prompt: str, sample: int, length: int) -> np.ndarray:
    """Return the [length] uniforms of one sample: a row of ``uniforms``."""
    bits = np.random.Philox(key=key(seed, stream, step, prompt, sample))
    return np.random.Generator(bits).random(length)


def prompt_stream(seed: int, num_examples: int, start: int) -> Iterator[int]:
    """Yield the indices of the prompts at position ``start`` and after it of an endless shuffled stream.

    Every epoch of ``num_examples`` positions visits each example once, in an order of its own.
    """
    epoch, offset = divmod(start, num_examples)
    while True:
        order = np.random.Generator(np.random.Philox(key=key(seed, "prompts", epoch))).permutation(num_examples)
        yield from (int(i) for i in order[offset:])
        epoch, offset = epoch + 1, 0


def prompt_order(seed: int, num_examples: int, start: int, count: int) -> list[int]:
    """Return the first ``count`` indices of ``prompt_stream``."""
    return list(islice(prompt_stream(seed, num_examples, start), count))
