"""Text to token ids and back: the character tokenizer of the embedded policies, and transformers' for others."""

from collections.abc import Sequence
from typing import Any, Protocol

from harness.config.errors import UserError

__all__ = ["CharTokenizer", "HubTokenizer", "Tokenizer"]


class Tokenizer(Protocol):
    """What the engine needs of a tokenizer."""

    pad_id: int
    eos_id: int

    def encode(self, text: str) -> list[int]:
        """Return token ids, without an end token."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``; special tokens vanish."""
        ...


class CharTokenizer:
    """One token a character: newline and printable ASCII. Id 0 pads, id 1 ends a response.

    Example:
        >>> CharTokenizer().encode("1+1")
        [19, 13, 19]
    """

    alphabet = "\n" + "".join(map(chr, range(32, 127)))
    pad_id = 0
    eos_id = 1
    vocab_size = len(alphabet) + 2

    def __init__(self) -> None:
        self._ids = {character: index + 2 for index, character in enumerate(self.alphabet)}

    def encode(self, text: str) -> list[int]:
        """Return one id a character; UserError names a character that has none."""
        try:
            return [self._ids[character] for character in text]
        except KeyError as error:
            raise UserError(
                f"character {error.args[0]!r} in {text[:40]!r} is not in the embedded policies' alphabet "
                "(newline and printable ASCII); use a pretrained policy for this task"
            ) from None

    def decode(self, ids: Sequence[int]) -> str:
        """Return the characters of ``ids``; padding and end tokens vanish."""
        return "".join(self.alphabet[i - 2] for i in ids if i > 1)


class HubTokenizer:
    """A transformers tokenizer behind the engine's protocol; prompts are encoded as they stand."""

    def __init__(self, tokenizer: Any) -> None:
        if tokenizer.eos_token_id is None:
            raise UserError(f"the tokenizer of {tokenizer.name_or_path} has no end-of-sequence token")
        self._tokenizer = tokenizer
        self.eos_id: int = tokenizer.eos_token_id
        self.pad_id: int = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text`` without special tokens."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids`` without special tokens."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)
