"""Units of several words, as word problems ask for them: ``cups of flour``, ``years old``, ``dollars per day``."""

import re
from collections.abc import Callable, Mapping, Sequence

__all__ = ["fits"]

_FILLERS = frozenset(["of", "the", "a", "an", "in", "total", "all", "altogether"])
_ALL = frozenset(["total", "all", "altogether"])
# Words that change a value, compare or take it back: they count only right behind "how many".
_CHANGING = (
    "not no nor never or and if but than at about less fewer least most more over under up to only almost nearly "
    "wrong half twice double triple quarter third tenth dozen hundred thousand million billion pair couple score "
    "times time squared cubed root factorial power plus minus negative percent one two three four five six seven "
    "eight nine ten mod modulo base"
)
_LOADED = frozenset(_CHANGING.split())
_SHORTEST = 3  # letters of a word that is no known unit, so that a variable is none
_SPEED = re.compile(r"\b(?:speed|fast|rate)\b")


def _stem(word: str) -> str:
    least = 4
    return word.removesuffix("s").removesuffix("e") if len(word) >= least else word


def _stems(text: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in re.findall(r"(?<!\\)\b[a-z]+", text))


def _asking(text: str) -> str:
    """Return the last sentence that ends with a question mark; all of the text where there is none."""
    asked = [sentence for sentence in re.split(r"(?<=[.?!]) ", text) if sentence.endswith("?")]
    return asked[-1] if asked else text


def fits(text: str, unit: str, fixes: Callable[[str], bool], spellings: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a question's words fix a unit for an answer that is a plain number.

    All words must stand in the question, one of them in the sentence that asks; a known unit has to be fixed by itself,
    and what follows ``per`` has to stand in the sentence that asks, or in the question where that asks for a speed.

    Args:
        text: the question in lower case, spaces single.
        unit: the name of the unit.
        fixes: whether the question fixes a known unit.
        spellings: of the known units.
    """
    asking = _asking(text)
    head, *rates = (part.split() for part in re.split(r"\bper\b|/", unit))
    if "^" in unit or len(rates) > 1 or not all(rates):
        return False
    where = text if _SPEED.search(asking) else asking
    if not all(_stands(word, where, spellings) for rate in rates for word in rate):
        return False
    known = [word for word in head if word in spellings]
    old = "how old" in asking and set(head) <= {"year", "old"}
    if len(known) > 1 or not (old or all(fixes(word) for word in known)):
        return False
    others = [word for word in head if word not in known and word not in _FILLERS]
    if not all(_stands(word, text, spellings) for word in others):
        return False
    if not others:
        return bool(known or rates or _ALL & set(head))
    return bool(known) or any(_stands(word, asking, spellings) for word in others)


def _stands(word: str, text: str, spellings: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a word stands in a text, in the singular or plural."""
    if word in spellings:
        return any(re.search(rf"\b{spelling}s?\b", text) for spelling in spellings[word])
    stem = _stem(word)
    if word in _LOADED or stem in _LOADED:
        return bool(re.search(rf"\bhow many (?:[a-z-]+ )?{re.escape(word)}(?:e?s)?\b", text))
    return len(word) >= _SHORTEST and stem in _stems(text)
