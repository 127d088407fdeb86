"""Text to token ids and back: the character tokenizer of the embedded policies, and transformers' for others."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from harness.config.errors import UserError

__all__ = ["CharTokenizer", "HubTokenizer", "Tokenizer"]


class Tokenizer(Protocol):
    """What the engine needs of a tokenizer."""

    pad_id: int
    eos_id: int
    stop_ids: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """Return token ids, without an end token."""
        ...

    def prompt_ids(self, text: str) -> list[int]:
        """Return what stands before the response to a prompt."""
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
    stop_ids = frozenset({1})
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

    def prompt_ids(self, text: str) -> list[int]:
        """Return the ids of ``text``: an embedded policy knows no chat."""
        return self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the characters of ``ids``; padding and end tokens vanish."""
        return "".join(self.alphabet[i - 2] for i in ids if i > 1)


class HubTokenizer:
    """A transformers tokenizer behind the engine's protocol.

    Args:
        tokenizer: of a pretrained model.
        stop_ids: tokens that end a response beside the tokenizer's own end token, as generation settings name them.
        chat: prompts are a user's message in the tokenizer's chat template; else they are encoded as they stand.
        system: the system message of the chat; "" for the template's own, if it has one.

    Raises:
        UserError: there is no end token, or no chat template where one is asked for.
    """

    def __init__(self, tokenizer: Any, stop_ids: Collection[int] = (), *, chat: bool = False, system: str = "") -> None:
        name = tokenizer.name_or_path
        if tokenizer.eos_token_id is None:
            raise UserError(f"the tokenizer of {name} has no end-of-sequence token")
        if chat and not tokenizer.chat_template:
            raise UserError(f"the tokenizer of {name} has no chat template: set policy.chat = false")
        self.hub, self._chat, self._system = tokenizer, chat, system
        self.eos_id: int = tokenizer.eos_token_id
        self.pad_id: int = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        self.stop_ids = frozenset({self.eos_id, *stop_ids})

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text`` without special tokens."""
        return self.hub.encode(text, add_special_tokens=False)

    def prompt_ids(self, text: str) -> list[int]:
        """Return what stands before the response to ``text``."""
        if not self._chat:
            return self.encode(text)
        messages = [{"role": "system", "content": self._system}] if self._system else []
        messages.append({"role": "user", "content": text})
        written = self.hub.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return self.encode(written)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids`` without special tokens."""
        return self.hub.decode(ids, skip_special_tokens=True)
