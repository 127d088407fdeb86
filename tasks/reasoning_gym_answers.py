"""Reading the answers of the reasoning-gym tasks: one form a kind, so that equality of texts is equality of answers.

The last ``####`` of a response counts. Spaces may stand before the answer, white space alone after it. What is read is
compared whole: there is no containment, no tolerance, no second candidate, and none of the package's own scorers.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["DECIMAL", "DECIMALS", "DIGITS", "FACTORS", "FRACTION", "HEXADECIMAL", "INTEGER", "INTEGER_OR_WEEKDAY"]
__all__ += ["MARKER", "WEEKDAYS", "WORD", "WORDS", "Kind"]

MARKER = "####"
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_BLANKS = " \t\r\n"
_MAX_LENGTH = 1000  # characters of an answer; numbers in it have at most 64 digits

# ASCII digits, no plus, no leading zero, no "-0", no thousands separators.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,63}")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,63})(?:\.[0-9]{1,64})?")
_FRACTION = re.compile(r"[1-9][0-9]{0,63}/[1-9][0-9]{0,63}")
_DIGITS = re.compile(r"0|[1-9a-z][0-9a-z]{0,63}")
_HEXADECIMAL = re.compile(r"0x0|-?0x[1-9a-f][0-9a-f]{0,63}")
_FACTOR = re.compile(r"[1-9][0-9]{0,15}")
_WORD = re.compile(r"[A-Za-z0-9_]{1,64}")


def _whole(pattern: re.Pattern[str]) -> Callable[[str], str | None]:
    return lambda text: text if pattern.fullmatch(text) else None


def _decimal(text: str) -> str | None:
    """Drop trailing zeros: ``7.140`` is ``7.14`` and ``-0.0`` is ``0``."""
    if not _DECIMAL.fullmatch(text):
        return None
    plain = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if plain == "-0" else plain


def _factors(text: str) -> str | None:
    """Sort the factors: ``3 * 2*2`` is ``2*2*3``."""
    parts = [part.strip(" ") for part in text.split("*")]
    return "*".join(map(str, sorted(map(int, parts)))) if all(map(_FACTOR.fullmatch, parts)) else None


def _list_of(entry: Callable[[str], str | None]) -> Callable[[str], str | None]:
    def read(text: str) -> str | None:
        entries = [entry(part.strip(" ")) for part in text.split(",")]
        known = [part for part in entries if part is not None]
        return ", ".join(known) if len(known) == len(entries) else None

    return read


@dataclass(frozen=True)
class Kind:
    """A kind of answer.

    Attributes:
        form: what the prompt asks for, e.g. "an integer in plain digits".
        canonical: the text that all spellings of one answer share; None where a text is no answer of the kind.
    """

    form: str
    canonical: Callable[[str], str | None]

    def read(self, response: str) -> str | None:
        """Return the canonical answer of a response, None where there is none."""
        _, marker, text = response.rpartition(MARKER)
        text = text.lstrip(" \t").rstrip(_BLANKS)
        return self.canonical(text) if marker and len(text) <= _MAX_LENGTH else None


INTEGER = Kind("an integer in plain digits", _whole(_INTEGER))
DECIMAL = Kind("a decimal number, exact", _decimal)
FRACTION = Kind("a fraction in lowest terms, written a/b", _whole(_FRACTION))
DIGITS = Kind("the digits alone, lower case, without prefix", _whole(_DIGITS))
HEXADECIMAL = Kind("a hexadecimal integer in lower case with 0x, after - if negative", _whole(_HEXADECIMAL))
FACTORS = Kind("the prime factors with * between them, each as often as it divides", _factors)
WORD = Kind("the word alone, upper and lower case as in the question", _whole(_WORD))
DECIMALS = Kind("the numbers alone, in order, with commas between them", _list_of(_decimal))
WORDS = Kind("the words alone, in order, with commas between them", _list_of(_whole(_WORD)))
INTEGER_OR_WEEKDAY = Kind(
    "an integer in plain digits, or a weekday as Monday to Sunday",
    lambda text: text if text in WEEKDAYS or _INTEGER.fullmatch(text) else None,
)
