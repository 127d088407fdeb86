"""What is let in as an answer: at most 1,000 characters, ASCII, a few mathematical signs, and letters (for words).

Digits are ASCII: fullwidth, Arabic-Indic and raised digits, zero-width and control characters are refused.
"""

import re
import unicodedata

from tasks.answers.extract import last_boxed

__all__ = ["MAX_LENGTH", "UnreadableError", "clean"]

MAX_LENGTH = 1_000  # characters of an answer

_SIGNS = str.maketrans(
    {
        "\u2212": "-",  # the minus sign; dashes are no minus
        "\u00d7": r"\times ",
        "\u00b7": r"\cdot ",
        "\u22c5": r"\cdot ",
        "\u00f7": r"\div ",
        "\u221a": r"\sqrt ",
        "\u03c0": r"\pi ",
        "\u221e": r"\infty ",
        "\u00b0": r"\degree ",
        "\u222a": r"\cup ",
        "\u2208": r"\in ",
        "\u2264": r"\le ",
        "\u2265": r"\ge ",
        "\u2260": r"\ne ",
        "\u00b1": r"\pm ",
        "\u20ac": r"\euro ",
        "\u00a3": r"\pounds ",
    }
)
# A closing dollar is not followed by a digit, so that `$5 or $7` are two prices.
_MATH = re.compile(r"(?<!\\)\$((?:[^$\\]|\\.)+)\$(?![0-9])", re.DOTALL)
_DISPLAY = re.compile(r"(?<!\\)\\[()\[\]]")
_UNUSUAL = re.compile(r"[^ -~\t\r\n]")
_EMPHASIS = ("***", "**", "*", "__", "_", "`")
_PEELS = 4  # layers of wrapping that are taken off


class UnreadableError(ValueError):
    """The text is no answer of any kind; the message is one line that says why."""


def clean(text: str) -> str:
    """Return ``text`` without white space, dollar signs, a box or emphasis around it and without a period at its end.

    Raises:
        UnreadableError: nothing is left, it is longer than ``MAX_LENGTH``, or it holds a character that no answer has.
    """
    if len(text) > MAX_LENGTH:
        raise UnreadableError(f"an answer has at most {MAX_LENGTH} characters, got {len(text)}")
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).translate(_SIGNS)
    for match in _UNUSUAL.finditer(text):
        if match.group() < " " or unicodedata.category(match.group())[0] not in "LM":
            raise UnreadableError(f"no answer holds the character U+{ord(match.group()):04X}")
    text = _DISPLAY.sub(" ", text)
    if "$" in text:
        text = _MATH.sub(r" \1 ", text.replace("$$", "$"))
    ended = False  # one period ends an answer; more of them say that it goes on
    for _ in range(_PEELS):
        text = text.strip(" \t\r\n")
        bare = _peeled(text)
        ended = ended and bare == text
        text = bare
        if text.endswith(".") and not ended:
            text, ended = text[:-1], True
    text = text.strip(" \t\r\n")
    if not text:
        raise UnreadableError("the answer is empty")
    return text


def _peeled(text: str) -> str:
    """Return ``text`` without the emphasis and the box around it."""
    for mark in _EMPHASIS:
        if text.startswith(mark) and text.endswith(mark) and text[len(mark) : -len(mark)].strip():
            inside = text[len(mark) : -len(mark)]
            text = text if mark[0] in inside else inside
            break
    if text.startswith((r"\boxed{", r"\fbox{")) and last_boxed(text) == text[text.index("{") + 1 : -1].strip():
        return text[text.index("{") + 1 : -1]
    return text
