"""Equations, inequalities, and values under a name such as ``x = 5``."""

from collections.abc import Sequence
from typing import Protocol

from tasks.answers.algebra import Algebra, Ratio, TooLargeError
from tasks.answers.nodes import Node
from tasks.answers.values import Expression, Relation, Value, Words
from tasks.answers.words import single_letter

__all__ = ["compare_relations"]


class Comparing(Protocol):
    """The comparison that relations are a part of; see ``equivalence.Comparison``."""

    algebra: Algebra
    reason: str

    def no(self, reason: str) -> bool:
        """Return False and keep the reason."""
        ...

    def equal(self, gold: Value, answer: Value) -> bool | None:
        """Return whether two values are equal; None where own means cannot tell."""
        ...

    def worked_out(self, *nodes: Node) -> Sequence[Ratio] | None:
        """Return the exact values of expressions."""
        ...


def compare_relations(comparison: Comparing, gold: Value, answer: Value) -> bool | None:
    """Return whether a relation, or a value under a name, is the gold one; None where own means cannot tell."""
    if not isinstance(gold, Relation):
        return _labelled(comparison, gold, answer)
    if not isinstance(answer, Relation):
        return _unlabelled(comparison, gold, answer)
    if gold.sign != answer.sign:
        return comparison.no("another relation")
    if gold.label and gold.sign in ("=", "in", "!="):
        if gold.label != answer.label:
            return comparison.no(f"expected a value of {gold.label[:40]}")
        return comparison.equal(gold.right, answer.right)
    if gold.sign != "=":
        sides = (comparison.equal(gold.left, answer.left), comparison.equal(gold.right, answer.right))
        return False if False in sides else None if None in sides else True
    return _equations(comparison, gold, answer)


def _labelled(comparison: Comparing, gold: Value, answer: Value) -> bool | None:
    r"""Compare ``x = 5`` or ``x \in [2, 5]`` with a gold value that has no name."""
    if not isinstance(answer, Relation) or not answer.label or answer.sign not in ("=", "in"):
        return comparison.no("a relation where a value was expected")
    letter = single_letter(gold)
    if isinstance(gold, Words) or (letter.isupper() and answer.label.isupper() and len(answer.label) == 1):
        return comparison.no("words and choices have no name before them")
    if answer.sign == "in" and isinstance(gold, Expression):
        return comparison.no("a set where a value was expected")
    if isinstance(answer.right, Expression) and answer.right.number is None:
        values = comparison.worked_out(answer.right.node)
        if values is not None and answer.label in values[0].generators():
            return comparison.no("an equation where a value was expected")
    return comparison.equal(gold, answer.right)


def _unlabelled(comparison: Comparing, gold: Relation, answer: Value) -> bool | None:
    r"""Compare a value without a name: right for ``x = 5``, ``f(x) = 2x`` and ``x \in S``, not for ``y = 2x``."""
    if not gold.label or gold.sign not in ("=", "in"):
        return comparison.no("expected both sides of a relation")
    whole = gold.sign == "in" or not isinstance(gold.right, Expression) or "(" in gold.label
    if not whole and isinstance(gold.right, Expression):
        values = comparison.worked_out(gold.right.node)
        whole = values is not None and all(_is_constant(name) for name in values[0].generators())
    return comparison.equal(gold.right, answer) if whole else comparison.no("expected both sides of an equation")


def _equations(comparison: Comparing, gold: Relation, answer: Relation) -> bool | None:
    """Compare equations without a name alone on the left: equal up to a rational factor."""
    nodes = [_difference(relation) for relation in (gold, answer)]
    values = None if None in nodes else comparison.worked_out(*[node for node in nodes if node is not None])
    if values is None:
        return None
    if any(not value.above for value in values):
        return comparison.no("an equation that always holds")
    try:
        return True if comparison.algebra.proportional(*values) else comparison.algebra.equal(*values)
    except TooLargeError as error:
        comparison.reason = str(error)
        return None


def _difference(relation: Relation) -> Node | None:
    left = Node("symbol", name=relation.label) if relation.label else getattr(relation.left, "node", None)
    right = getattr(relation.right, "node", None)
    return None if left is None or right is None else Node("sum", (left, Node("negative", (right,))))


def _is_constant(name: str) -> bool:
    return name[0] == "#" or name in (r"\pi", "e", "i")
