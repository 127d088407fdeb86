"""The tree of an expression, and which trees are a number written out."""

from dataclasses import dataclass
from fractions import Fraction

from tasks.answers.latex import UnreadableError

__all__ = ["MAX_BITS", "Node", "is_constant", "literal", "negate", "number", "spell"]

MAX_BITS = 4_096  # of a numerator or denominator; what grows beyond is not worked out


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression.

    Attributes:
        op: number, symbol, negative, sum, product, quotient, inverse, power, root, call, factorial, absolute, binomial.
        parts: operands; a root's are radicand and index, a power's base and exponent.
        name: of a symbol or function.
        value: of a number.
    """

    op: str
    parts: tuple["Node", ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)


def number(value: Fraction | int | str) -> Node:
    """Return a number's node."""
    return Node("number", value=Fraction(value))


def negate(node: Node, negative: bool) -> Node:
    """Return ``node``, under a minus where ``negative``."""
    return Node("negative", (node,)) if negative else node


def literal(node: Node) -> Fraction | None:
    r"""Return the value of a number written out, None for everything else.

    Written out are, with at most one sign each: whole, decimal and mixed numbers, a fraction of two such numbers, a
    power of one (``2^{10}``), and a number times a power of ten. Sums, other products, roots and fractions of fractions
    are arithmetic left undone.

    Raises:
        UnreadableError: the denominator is 0.
    """
    if node.op == "negative":
        value = _unsigned(node.parts[0])
        return None if value is None else -value
    return _unsigned(node)


def _unsigned(node: Node) -> Fraction | None:
    if node.op == "quotient":
        above, below = (_signed_power(part) for part in node.parts)
        if below == 0:
            raise UnreadableError("division by zero")
        return None if above is None or below is None else above / below
    if node.op == "product":
        first, *rest = node.parts
        if first.op == "number" and len(rest) == 1 and rest[0].op == "power" and rest[0].parts[0] == _TEN:
            scale = _power(rest[0])
            return None if scale is None else first.value * scale
        return None
    return _power(node)


def _signed_power(node: Node) -> Fraction | None:
    if node.op == "negative":
        value = _power(node.parts[0])
        return None if value is None else -value
    return _power(node)


def _power(node: Node) -> Fraction | None:
    if node.op == "number":
        return node.value
    if node.op != "power" or node.parts[0].op != "number":
        return None
    base, exponent = node.parts[0].value, _exponent(node.parts[1])
    if exponent is None or (not base and exponent <= 0):
        return None
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    return base**exponent if bits * abs(exponent) <= MAX_BITS else None


def _exponent(node: Node) -> int | None:
    sign = 1
    if node.op == "negative":
        sign, node = -1, node.parts[0]
    if node.op != "number" or node.value.denominator != 1:
        return None
    return sign * node.value.numerator


_TEN = number(10)
_CONSTANTS = frozenset({r"\pi", "e", "i", r"\infty", r"\degree"})


def is_constant(node: Node) -> bool:
    """Return whether an expression holds no variable."""
    return not (node.op == "symbol" and node.name not in _CONSTANTS) and all(is_constant(part) for part in node.parts)


def spell(node: Node) -> str:
    """Return an expression as text, arithmetic as it was written: ``2+3`` gives ``sum(2,3)``."""
    if node.op == "number":
        return str(node.value)
    name = node.name or node.op
    return f"{name}({','.join(spell(part) for part in node.parts)})" if node.parts else name
