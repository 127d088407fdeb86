"""Units behind and before a value: one name for all spellings, and which unit a question fixes.

Nothing is converted: 500 cm is not 5 m. ``unit`` and ``units`` are no unit.
"""

import functools
import re
from collections.abc import Sequence

from tasks.answers.names import is_function
from tasks.answers.phrases import fits
from tasks.answers.tokens import is_number, is_text

__all__ = ["asks_for_percent", "fixes", "split_unit"]

_TABLE = """
length m meter metre|cm centimeter centimetre|mm millimeter millimetre|km kilometer kilometre
length inch inches|ft foot feet|yd yard|mile mi
mass g gram|kg kilogram|mg milligram|lb lbs pound|oz ounce|ton
time s sec second|min minute|h hr hrs hour|day|week|month|year
money dollar usd|cent|euro|sterling gbp
volume l liter litre|ml milliliter millilitre|gallon|quart|pint|cup
angle degree deg|rad radian
share percent pct
"""
_DIMENSIONS: dict[str, str] = {}
_SPELLINGS: dict[str, tuple[str, ...]] = {}
for _line in _TABLE.strip().splitlines():
    _dimension, *_ = _line.split()
    for _group in _line.removeprefix(_dimension).split("|"):
        _name, *_others = _group.split()
        _DIMENSIONS[_name], _SPELLINGS[_name] = _dimension, (_name, *_others)
_NAMES = {s: name for name, spellings in _SPELLINGS.items() for word in spellings for s in (word, f"{word}s")}

_CURRENCIES = {"$": "dollar", r"\euro": "euro", r"\pounds": "sterling"}
_CURRENCY_SIGNS_BEHIND = (r"\euro", r"\pounds")
_CURRENCY_SIGNS = {"euro": "\u20ac", "sterling": "\u00a3"}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3, "squared": 2, "cubed": 3}
_MAX_WORDS = 4
_LONG = 4  # letters of a bare word that is read as a unit though it is not in the table
_SHORT = 2  # letters of an abbreviation that needs no \text
_ARTICLES = r"(?:(?:the|a|an|its|his|her|their|total|overall|average|exact|approximate|nearest|whole) ){0,3}"
_PERCENT = re.compile(
    rf"\b(?:what|which|how many|find|express|calculate|determine|compute|give|as|in|to)\b (?:is |was |are )?{_ARTICLES}"
    r"percent|\b(?:as|in) (?:a |the )?\\?%"
)


def _spaced(question: str) -> str:
    return " ".join(question.lower().split())


@functools.lru_cache(maxsize=1024)
def asks_for_percent(question: str) -> bool:
    """Return whether a question asks for a percentage; one that only mentions percents does not."""
    return bool(_PERCENT.search(_spaced(question)))


def _word(word: str) -> str:
    """Return the name of a unit, or the singular of a noun."""
    least = 4
    name = word if word in _NAMES else word.removesuffix("s") if len(word) >= least else word
    return _NAMES.get(word, name)


def _canonical(phrase: str, exponent: int) -> str:
    """Return one name of a unit, such as ``cm^2`` or ``mile/h``."""
    phrase = re.sub(r"\bmph\b", "miles per hour", phrase.lower().replace(".", " ").strip())
    above, *below = re.split(r" ?/ ?| per ", phrase)
    parts: list[str] = []
    for part in (above, *below):
        words = part.split()
        power = exponent
        for word in words:
            power = _POWERS.get(word, power)
        name = " ".join(_word(word) for word in words if word not in _POWERS)
        if name == "unit":
            continue
        parts.append(f"{name}^{power}" if power > 1 else name)
    return "/".join(parts)


def _exponent(tokens: Sequence[str]) -> tuple[Sequence[str], int]:
    """Return the tokens without an exponent 2 or 3 at their end, and the exponent (1 where there is none)."""
    for exponent in ("2", "3"):
        for ending in (("^", exponent), ("^", "{", exponent, "}")):
            if tuple(tokens[-len(ending) :]) == ending:
                return tokens[: -len(ending)], int(exponent)
    return tokens, 1


def _is_unit(token: str, before: str, loose: bool) -> bool:
    """Return whether a word behind a value is a unit; ``before`` is the token before all words."""
    if is_text(token):
        words = token[6:-1].strip()
        return words != "i" and bool(re.fullmatch(r"[^\W\d_ ][^\W\d_ ./-]*(?:[ ./-]+[^\W\d_ ]+)*\.?", words))
    if not token.isalpha() or token in ("or", "and", "pi", "sqrt", "i", "infinity", "inf"):
        return False
    ends = is_number(before) or before in ("}", ")")
    return ends and (loose or len(token) >= _LONG or (token.lower() in _NAMES and len(token) >= _SHORT))


def split_unit(tokens: Sequence[str], loose: bool = False) -> tuple[tuple[str, ...], str]:
    r"""Return a value's tokens and the name of its unit, "" where it has none.

    Args:
        tokens: of a value with a dollar sign before it, or a percent or degree sign, ``\text{...}`` or words behind it.
        loose: whether any word behind a number is a unit, ``m`` and ``x`` among them. Else a bare word must be long or
            a known abbreviation, so that ``5 cm`` has a unit and ``2k`` has none.
    """
    unit = ""
    sign = tokens[:1] if tokens[:1] in (("-",), ["-"]) else tokens[:0]
    rest = tokens[len(sign) :]
    if rest and rest[0] in _CURRENCIES:
        unit, tokens = _CURRENCIES[rest[0]], (*sign, *rest[1:])
    elif tokens and tokens[-1] in _CURRENCY_SIGNS_BEHIND:
        return tuple(tokens[:-1]), _CURRENCIES[tokens[-1]]
    if tokens and tokens[-1] == r"\degree" and any(is_function(token) for token in tokens):
        return tuple(tokens), unit
    if tokens and tokens[-1] in ("%", r"\degree"):
        found = "percent" if tokens[-1] == "%" else "degree"
        return tuple(tokens[:-1]), found if not unit else f"{unit} {found}"
    stem, exponent = _exponent(tokens)
    start = len(stem)
    while start and (stem[start - 1].isalpha() or is_text(stem[start - 1]) or stem[start - 1] == "/"):
        start -= 1
    words = stem[start:]
    if not start or not words or not all(w == "/" or _is_unit(w, stem[start - 1], loose) for w in words):
        return tuple(tokens), unit
    phrase = " ".join(word[6:-1].strip() if is_text(word) else word for word in words)
    if len(phrase.split()) > _MAX_WORDS or words[0] == "/" or words[-1] == "/":
        return tuple(tokens), unit
    found = _canonical(phrase, exponent)
    return tuple(stem[:start]), unit if found in ("", unit) else f"{unit} {found}".strip()


def _mentions(question: str, name: str) -> bool:
    """Return whether a question names a known unit; abbreviations count behind a number or in text only.

    ``$5`` names dollars, ``$5$`` is a formula.
    """
    if name == "dollar" and re.search(r"\\\$|\$[0-9][^\s$]*(?=\s|$)", question):
        return True
    if name in _CURRENCY_SIGNS and _CURRENCY_SIGNS[name] in question:
        return True
    if name == "degree" and re.search(r"\\circ|\bangle|\u00b0", question):
        return True
    for word in _SPELLINGS[name]:
        before = r"\b" if len(word) >= _LONG else r"(?:[0-9,$] ?|[{] ?|square |cubic |many )"
        if re.search(rf"{before}{word}s?\b", question):
            return True
    return False


def _by_words(question: str, text: str, unit: str) -> bool:
    """Return whether a question's words fix a unit that is no single known one, or years for "how old"."""
    if unit in _SPELLINGS and unit != "year":
        return False
    return fits(text, unit, lambda name: name != unit and fixes(question, name), _SPELLINGS)


@functools.lru_cache(maxsize=1024)
def fixes(question: str, unit: str) -> bool:
    """Return whether a question fixes a unit for an answer that is a plain number.

    It does where it asks for it (``how many apples``, ``in square meters``), or where it names it and no other unit of
    the same dimension; squares need a question about an area, cubes one about a volume. For several words see
    ``phrases``.
    """
    text = _spaced(question)
    base, _, power = unit.partition("^")
    if unit == "percent":
        return asks_for_percent(question)
    if text and _by_words(question, text, unit):
        return True
    if not text or not base or base.startswith("dollar "):
        return False
    if base not in _SPELLINGS and len(base) <= _SHORT:  # a variable
        return False
    spellings = _SPELLINGS.get(base, (base,))
    words = "|".join(re.escape(word) for word in spellings)
    before = {"2": r"(?:square |sq\.? )", "3": r"(?:cubic |cu\.? )"}.get(power, "")
    if re.search(rf"\b(?:how many|number of|in|nearest) (?:[a-z-]+ ){{0,2}}{before}(?:{words})(?:e?s)?\b", text):
        return True
    if base not in _SPELLINGS or not _mentions(text, base):
        return False
    others = [name for name, kind in _DIMENSIONS.items() if kind == _DIMENSIONS[base] and name != base]
    asked = {"2": "area|square", "3": "volume|cubic"}.get(power)
    fits = re.search(asked, text) if asked else not re.search("area|square|volume|cubic", text)
    return bool(fits) and not any(_mentions(text, name) for name in others)
