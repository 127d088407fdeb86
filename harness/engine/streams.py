"""Common random numbers: everything random is a pure function of (seed, stream, step, prompt, sample). No torch.

Two runs of one seed see the same prompts in the same order and draw the same uniforms for the same sample, whatever
their objective; there is no generator state to save or to disturb.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

__all__ = ["Noise", "key", "noises", "prompt_order", "prompt_stream"]


def key(*parts: int | str) -> int:
    """Return a 128-bit key of ``parts``; different parts give unrelated keys.

    Example:
        >>> key(0, "rollout", 3) != key(0, "rollout", 4)
        True
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


@dataclass(frozen=True)
class Noise:
    """What one response is drawn with: a sampler makes all of its randomness from this.

    Attributes:
        seed: of the run.
        stream: what it is for ("rollout", "evaluation", ...).
        step: iteration; repeated visits of a prompt differ by it.
        prompt: id of the prompt.
        sample: which of the prompt's responses.
        begin: tokens of the response that were drawn before.
    """

    seed: int
    stream: str
    step: int
    prompt: str
    sample: int
    begin: int = 0

    def uniforms(self, length: int) -> np.ndarray:
        """Return the uniforms in [0, 1) of the next ``length`` tokens [length], float64.

        A longer draw begins with the same numbers, and what is drawn from a later ``begin`` goes on with them.
        """
        bits = np.random.Philox(key=key(self.seed, self.stream, self.step, self.prompt, self.sample))
        return np.random.Generator(bits).random(self.begin + length)[self.begin :]

    def request_seed(self) -> int:
        """Return 63 bits for the random generator of an engine that makes one for each request."""
        return key(self.seed, self.stream, self.step, self.prompt, self.sample, self.begin) >> 65


def noises(seed: int, stream: str, step: int, prompts: Iterable[str], samples: int) -> list[Noise]:
    """Return the noise of ``samples`` responses to each of ``prompts``, those to one prompt next to each other."""
    return [Noise(seed, stream, step, prompt, sample) for prompt in prompts for sample in range(samples)]


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
