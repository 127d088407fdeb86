r"""Answers that are equal only because the question has said so: ``2/4`` to "simplify $2/4$" for ``1/2``."""

import re

from tasks.answers.nodes import Node
from tasks.answers.values import Expression, Relation, Value

__all__ = ["echoes", "stands_in"]

_LEAST = 3  # characters of an expression that counts as the question's own
_COSMETIC = re.compile(r"\\left(?![a-z])|\\right(?![a-z])|\\[,!;]")
_UNDONE = re.compile(r"/|\\[dt]?frac|\^|\*|\\times|\\cdot")
_FACTOR = re.compile(r"\bfactor(?:ed|ise|ize)?\b", re.IGNORECASE)
_EXPAND = re.compile(r"\bexpan(?:d|ded|sion)\b|\bmultiply out\b", re.IGNORECASE)


def _has_bracket(node: Node) -> bool:
    """Return whether an expression is a product with a sum, or a power of one, among its factors."""
    factors = node.parts if node.op == "product" else (node,)
    bases = [factor.parts[0] if factor.op == "power" else factor for factor in factors]
    return any(base.op == "sum" for base in bases) and node.op in ("product", "power")


def _squeezed(text: str) -> str:
    return _COSMETIC.sub("", text).replace(r"\dfrac", r"\frac").replace(r"\tfrac", r"\frac")


def stands_in(answer: str, question: str) -> bool:
    """Return whether an answer stands in the question by itself, not within a longer number or word."""
    found = "".join(_squeezed(answer).split())
    if len(found) < _LEAST:
        return False
    spaced = r"\s*".join(re.escape(character) for character in found)
    return bool(re.search(rf"(?<![0-9A-Za-z.\\]){spaced}(?![0-9]|\.[0-9])", _squeezed(question)))


def echoes(gold: Value, answer: Value, text: str, question: str) -> bool:
    """Return whether an answer, equal to the gold one, only repeats what the question asks to rework.

    It does where it stands in the question and is written otherwise than the gold answer (a whole number has to be a
    fraction or power there); where the question says factor, the gold answer is a product of brackets and the answer
    has none; and where it says expand, the gold answer is a sum and the answer has brackets.

    Args:
        gold: the gold answer's value.
        answer: the value of the answer.
        text: the answer as it was written, cleaned.
        question: "" where it is not known; then nothing is an echo.
    """
    if isinstance(answer, Relation) and answer.label:
        answer, text = answer.right, text.rpartition("=")[2]
    if isinstance(gold, Relation):
        gold = gold.right
    if not question or not isinstance(gold, Expression) or not isinstance(answer, Expression):
        return False
    if gold.node == answer.node:
        return False
    whole = gold.number is not None and gold.number.denominator == 1
    if (not whole or _UNDONE.search(text)) and stands_in(text, question):
        return True
    brackets = "(" in text
    wants_brackets = _has_bracket(gold.node) and bool(_FACTOR.search(question))
    wants_none = gold.node.op == "sum" and bool(_EXPAND.search(question))
    return (wants_brackets and not brackets) or (wants_none and brackets)
