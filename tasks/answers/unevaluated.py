r"""What keeps a symbolic comparison from being asked, and what it is asked.

It evaluates whatever it reads and drops what it cannot read, so that it would hold ``3 = 4 = \sqrt{2}`` for
``\sqrt{2}``, and the question's own expression for its value.
"""

import re

from tasks.answers.echo import stands_in
from tasks.answers.nodes import Node, is_constant
from tasks.answers.values import Expression, Relation, Unparsed, Value, parts_of

__all__ = ["as_radians", "why_not"]

_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mbox|mathbf|textit)\s*\{([^{}]*)\}")
_PARTS = re.compile(r"\$|\\(?:boxed|fbox)")
_FUNCTIONS = frozenset({"call", "factorial", "binomial", "absolute"})
_DECIMAL = re.compile(r"\.[0-9]")
_DEGREES = re.compile(r"([0-9]+(?:\.[0-9]+)?)?\s*(?:\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\circ\s*\})|\\degree(?![A-Za-z]))")


def as_radians(text: str) -> str:
    r"""Return ``text`` with ``20^\circ`` as a fraction of pi, since a symbolic comparison drops the sign."""

    def fraction(match: re.Match[str]) -> str:
        return rf"\left(\frac{{{match[1] or ''}\pi}}{{180}}\right)"

    return _DEGREES.sub(fraction, text)


def why_not(gold: Value, gold_text: str, answer: Value, text: str, question: str) -> str:
    """Return why a symbolic comparison is not to be asked, one line; "" where it may be.

    Args:
        gold: the gold answer's value.
        gold_text: the gold answer, cleaned.
        answer: the value of the answer.
        text: the answer, cleaned.
        question: "" where it is not known.
    """
    if isinstance(answer, Unparsed) and not isinstance(gold, Unparsed):
        return answer.reason
    if _PARTS.search(gold_text) or _PARTS.search(text):
        return "a dollar sign or box inside the answer"
    if not _words(text) <= _words(gold_text):
        return "not equal as far as can be told"
    if _DECIMAL.search(text) and not _DECIMAL.search(gold_text):
        return "a decimal number where an exact value was expected"
    named = isinstance(answer, Relation) and bool(answer.label)
    if question and stands_in(text.rpartition("=")[2] if named else text, question):
        return "the question's own expression, not worked out"
    nodes = _nodes(gold)
    closed = all(is_constant(node) and not _calls(node) for node in nodes)
    if nodes and closed and any(_calls(node) for node in _nodes(answer)):
        return "a function that is not worked out"
    return ""


def _words(text: str) -> frozenset[str]:
    """Return the words of a text, which a symbolic comparison drops, so that 5 km and 5 would be one."""
    return frozenset(word.lower() for part in _TEXT.findall(text) for word in part.split())


def _nodes(value: Value) -> list[Node]:
    """Return the trees of all expressions in a value."""
    if isinstance(value, Expression):
        return [value.node]
    return [node for part in parts_of(value) for node in _nodes(part)]


def _calls(node: Node) -> bool:
    return node.op in _FUNCTIONS or any(_calls(part) for part in node.parts)
