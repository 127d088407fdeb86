"""Tokens read as a value: lists, relations, brackets, matrices, numbers with a base, expressions with a unit."""

import re
from collections.abc import Sequence

from tasks.answers.latex import UnreadableError
from tasks.answers.nodes import Node, literal
from tasks.answers.parser import parse
from tasks.answers.tokens import CLOSE, OPEN, is_text, tokenise
from tasks.answers.units import split_unit
from tasks.answers.values import (
    Based,
    Collection,
    Expression,
    Matrix,
    Ordered,
    Relation,
    Union,
    Unparsed,
    Value,
    Words,
)
from tasks.answers.words import PHRASE, bare_words, label_of, unwrapped

__all__ = ["SEPARATORS", "read", "split"]

Tokens = tuple[str, ...]

SEPARATORS = frozenset({",", ";", "or", "and", r"\text{,}"})
_FLIPPED = {">": "<", ">=": "<="}
_SIGNS = frozenset({"=", "!=", "<", ">", "<=", ">=", r"\in"})
_MOST_SEPARATORS = 63
_CHOICE = re.compile(r"\(?([A-Z])\)")
_BASES = re.compile(r"[2-9]|[1-3][0-9]")


def read(text: str, thousands: bool = True, loose: bool = False) -> tuple[Tokens, Value]:
    """Return the tokens and the value of a cleaned answer.

    Args:
        text: what ``latex.clean`` returned.
        thousands: whether ``1,000`` is one number.
        loose: whether any word behind a number is a unit.

    Raises:
        UnreadableError: brackets that do not match.
    """
    if choice := _CHOICE.fullmatch(text):
        return (choice[1],), Words(choice[1])
    tokens = tokenise(text, thousands)
    if len(tokens) == 1 and is_text(tokens[0]):
        inside = tokens[0][6:-1].strip()
        if choice := _CHOICE.fullmatch(inside):
            return (choice[1],), Words(choice[1])
        if PHRASE.fullmatch(inside):
            return tokens, Words(" ".join(inside.split()))
        tokens = tokenise(inside, thousands)
    try:
        return tokens, _value(tokens, loose)
    except UnreadableError as error:
        return tokens, Unparsed(tokens, str(error))


def split(tokens: Sequence[str], separators: frozenset[str]) -> tuple[list[Tokens], list[str]]:
    """Return the parts between separators outside all brackets, and the separators."""
    parts, found, depth, start = list[Tokens](), list[str](), 0, 0
    for place, token in enumerate(tokens):
        depth += (token in OPEN) - (token in CLOSE)
        if depth == 0 and unwrapped(token) in separators:
            parts.append(tuple(tokens[start:place]))
            found.append(unwrapped(token))
            start = place + 1
    return [*parts, tuple(tokens[start:])], found


def _value(tokens: Tokens, loose: bool) -> Value:
    if not tokens:
        raise UnreadableError("a part of the answer is empty")
    if words := bare_words(tokens):  # before "or" and "and" separate
        return words
    parts, separators = split(tokens, SEPARATORS)
    if len(separators) > _MOST_SEPARATORS:
        raise UnreadableError(f"a list has at most {_MOST_SEPARATORS + 1} values")
    if separators:
        pairs = zip(separators, [*separators[1:], ""], strict=True)
        doubled = {place for place, pair in enumerate(pairs, 1) if pair in ((",", "and"), (",", "or"))}
        parts = [part for place, part in enumerate(parts) if part or place not in doubled]
        items = tuple(item for part in parts for item in _items(part, loose))
        return (_united(items) if set(separators) == {"or"} else None) or Collection(items, braced=False)
    items = _items(tokens, loose)
    return items[0] if len(items) == 1 else Collection(items, braced=False)


def _united(items: tuple[Value, ...]) -> Relation | None:
    """Return ``x < 2 or x > 3`` as ``in`` a union; None where the parts are not of this kind and of one name."""
    ranges = [item for item in items if isinstance(item, Relation) and item.sign == "in"]
    if len(ranges) < len(items) or len({item.label for item in ranges}) > 1:
        return None
    return Relation("in", ranges[0].label, ranges[0].left, Union(tuple(item.right for item in ranges)))


def _items(tokens: Tokens, loose: bool) -> tuple[Value, ...]:
    r"""Return one value, or the two that ``\pm`` stands for."""
    a_set = bool(tokens) and tokens[0] == r"\{" and _closes(tokens)
    if a_set or (r"\pm" not in tokens and r"\mp" not in tokens):
        return (_single(tokens, loose),)
    signs = ({r"\pm": "+", r"\mp": "-"}, {r"\pm": "-", r"\mp": "+"})
    return tuple(_single(tuple(sign.get(token, token) for token in tokens), loose) for sign in signs)


def _single(tokens: Tokens, loose: bool) -> Value:
    if not tokens:
        raise UnreadableError("a part of the answer is empty")
    if words := bare_words(tokens):
        return words
    parts, signs = split(tokens, _SIGNS)
    if signs:
        return _relation(parts, signs, loose)
    parts, signs = split(tokens, frozenset({r"\cup"}))
    if signs:
        return Union(tuple(_single(part, loose) for part in parts))
    if tokens in ((r"\emptyset",), (r"\varnothing",)):
        return Collection((), braced=True)
    if tokens[0] == r"\begin{matrix}" and _closes(tokens):
        return _matrix(tokens[1:-1])
    if tokens[0] in ("(", "[", r"\{") and _closes(tokens):
        return _bracketed(tokens, loose)
    return _based(tokens) or _expression(tokens, loose)


def _closes(tokens: Tokens) -> bool:
    """Return whether the bracket at the beginning closes at the end."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token in OPEN) - (token in CLOSE)
        if depth == 0:
            return place == len(tokens) - 1
    return False


def _bracketed(tokens: Tokens, loose: bool) -> Value:
    left, right, inside = tokens[0], tokens[-1], tokens[1:-1]
    if left == r"\{":
        if right != r"\}":
            raise UnreadableError("a set's bracket does not match")
        parts = split(inside, frozenset({",", ";"}))[0] if inside else []
        return Collection(tuple(item for part in parts for item in _items(part, loose)), braced=True)
    parts, commas = split(inside, frozenset({",", ";"}))
    if right not in (")", "]"):
        raise UnreadableError("a bracket does not match")
    if not commas:
        return _single(inside, loose) if left + right in ("()", "[]") else _expression(tokens, loose)
    return Ordered(left, right, tuple(_single(part, loose) for part in parts))


def _matrix(tokens: Tokens) -> Matrix:
    rows = split(tokens, frozenset({r"\\"}))[0]
    if len(rows) > 1 and not rows[-1]:
        rows.pop()
    return Matrix(tuple(tuple(_single(cell, False) for cell in split(row, frozenset({"&"}))[0]) for row in rows))


def _relation(parts: list[Tokens], signs: list[str], loose: bool) -> Relation:
    if signs in (["="], ["!="], [r"\in"]):
        left, right = parts
        if signs == ["="] and not label_of(left) and label_of(right):
            left, right = right, left
        label = label_of(left)
        if signs == [r"\in"] and not label:
            raise UnreadableError("expected a name before the sign of membership")
        value = Words(label) if signs == [r"\in"] else _side(left, label)
        return Relation({r"\in": "in"}.get(signs[0], signs[0]), label, value, _right(right, loose))
    if "=" in signs or "!=" in signs or r"\in" in signs:
        raise UnreadableError("a chain of relations is no single answer")
    if all(sign in _FLIPPED for sign in signs):
        parts, signs = parts[::-1], [_FLIPPED[sign] for sign in signs[::-1]]
    if any(sign in _FLIPPED for sign in signs):
        raise UnreadableError("inequalities that point both ways")
    return _inequality(parts, signs)


def _side(tokens: Tokens, label: str) -> Value:
    return Words(label) if label else _expression(tokens, False)


def _right(tokens: Tokens, loose: bool) -> Value:
    items = _items(tokens, loose)
    return items[0] if len(items) == 1 else Collection(items, braced=False)


def _inequality(parts: list[Tokens], signs: list[str]) -> Relation:
    """Return ``in`` an interval where one variable stands alone, else the two sides."""
    ends = {"<": ("(", ")"), "<=": ("[", "]")}
    infinite = (("-", r"\infty"), (r"\infty",))
    between = 2
    if len(signs) == between and label_of(parts[1]):
        items = tuple(_expression(part, False) for part in (parts[0], parts[2]))
        interval = Ordered(ends[signs[0]][0], ends[signs[1]][1], items)
        return Relation("in", label_of(parts[1]), Words(label_of(parts[1])), interval)
    if len(signs) != 1:
        raise UnreadableError("a chain of inequalities is no single answer")
    left, right = parts
    if label := label_of(left):
        interval = Ordered("(", ends[signs[0]][1], (_expression(infinite[0], False), _expression(right, False)))
    elif label := label_of(right):
        interval = Ordered(ends[signs[0]][0], ")", (_expression(left, False), _expression(infinite[1], False)))
    else:
        return Relation(signs[0], "", _expression(left, False), _expression(right, False))
    return Relation("in", label, Words(label), interval)


def _based(tokens: Tokens) -> Based | None:
    """Return a number with its base: digits and capital letters, an index in braces or without."""
    if "_" not in tokens:
        return None
    place = tokens.index("_")
    index = tokens[place + 1 :]
    base = re.sub(r"^\{\(?|\)?\}$", "", "".join(unwrapped(token) for token in index))
    digits = re.sub(r"^\((.*)\)$", r"\1", "".join(unwrapped(token) for token in tokens[:place]))
    if not re.fullmatch("[0-9]+[0-9A-Z]*", digits) or not _BASES.fullmatch(base):
        return None
    return Based(digits.lstrip("0") or "0", int(base))


def _expression(tokens: Tokens, loose: bool) -> Expression:
    stem, unit = split_unit(tokens, loose)
    node: Node = parse(stem)
    return Expression(node, literal(node), unit)
