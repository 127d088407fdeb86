"""Words, names and letters among tokens."""

import re

from tasks.answers.names import FUNCTIONS, SYMBOLS, is_function, letter_of
from tasks.answers.tokens import CLOSE, OPEN, is_number, is_text
from tasks.answers.values import Expression, Value, Words

__all__ = ["PHRASE", "bare_words", "label_of", "single_letter", "unwrapped"]

_LABELS = frozenset({"_", "'", "|", r"\angle", r"\triangle", r"\overline", r"\vec", r"\bar", r"\hat"})
_HEDGES = (  # words that join, compare or hedge
    "or and not is isn't than maybe perhaps possibly probably about approximately approx around roughly nearly almost "
    "never no neither nor wrong incorrect false fewer less more guess unsure likely if except but at up"
)
_NO_NAME = frozenset(_HEDGES.split())
_NO_LETTERS = frozenset({"e", "i", "ei", "ie", "pi", "sqrt", "inf", "infinity"})
_CONSTANTS = frozenset({r"\pi", r"\infty", r"\degree", r"\emptyset", r"\varnothing", r"\R", r"\N", r"\Z", r"\Q", r"\C"})
_WORD = 3  # letters of a bare word that is read as text
PHRASE = re.compile(r"[^\W\d_](?:[^\W\d_]|[ .'-])*")


def unwrapped(token: str) -> str:
    r"""Return the content of ``\text{...}``, any other token as it is."""
    return token[6:-1].strip() if is_text(token) else token


def bare_words(tokens: tuple[str, ...]) -> Words | None:
    """Return bare words: one of three letters and more, or several of which one has as many."""
    if not all(token.isalpha() or is_text(token) or token in ("'", "-") for token in tokens):
        return None
    if len(tokens) == 1 and is_text(tokens[0]) and PHRASE.fullmatch(unwrapped(tokens[0])):
        return Words(" ".join(unwrapped(tokens[0]).split()))
    words = [token for token in tokens if token.isalpha()]
    named = any(rf"\{word}" in FUNCTIONS | SYMBOLS or word == "sqrt" for word in words)
    if named or not any(len(word) >= _WORD for word in words):
        return None
    text = " ".join(unwrapped(token) for token in tokens)
    return Words(text.replace(" ' ", "'").replace(" - ", "-"), bare=True)


def label_of(tokens: tuple[str, ...]) -> str:
    """Return a side of a relation as a name, "" where it is none: letters, digits in brackets and indices only.

    Constants, functions, and words that compare or hedge name nothing.
    """
    said = " ".join(unwrapped(token) for token in tokens if token.isalpha() or is_text(token))
    if not PHRASE.fullmatch(said or "x") or _NO_NAME & set(said.lower().split()):
        return ""
    depth = 0
    for before, token in zip(("", *tokens), tokens, strict=False):
        depth += (token in OPEN) - (token in CLOSE)
        if not depth and before != "_" and (is_function(token) or _is_fixed(token)):
            return ""
        named = token.isalpha() or is_text(token) or token in _LABELS | OPEN | CLOSE | SYMBOLS | FUNCTIONS
        if not named and not (is_number(token) and (depth or before == "_")) and not (depth and token in (",", "=")):
            return ""
    letters = any(token.isalpha() or is_text(token) or token in SYMBOLS for token in tokens)
    point = tokens[:1] == ("(",) and "," in tokens and not any(is_number(token) for token in tokens)
    return "".join(tokens) if letters and (tokens[0] not in OPEN or point) else ""


def _is_fixed(token: str) -> bool:
    return token in _CONSTANTS or token in _NO_LETTERS


def single_letter(value: Value) -> str:
    """Return the letter that a value is, "" where it is none."""
    if isinstance(value, Words):
        return letter_of(value.text)
    return value.node.name if isinstance(value, Expression) and value.node.op == "symbol" and not value.unit else ""
