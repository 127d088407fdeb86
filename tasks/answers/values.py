r"""What a final answer can be, each kind with its parts.

``Expression`` covers all single values, numbers among them; ``Unparsed`` is text with readable tokens and no reading.
"""

from dataclasses import dataclass
from fractions import Fraction

from tasks.answers.nodes import Node

__all__ = [
    "Based",
    "Collection",
    "Expression",
    "Matrix",
    "Ordered",
    "Relation",
    "Union",
    "Unparsed",
    "Value",
    "Words",
    "parts_of",
]


@dataclass(frozen=True, slots=True)
class Expression:
    """A single value.

    Attributes:
        node: its tree.
        number: its value where it is a number written out (``nodes.literal``), else None.
        unit: the name of its unit, "" for none.
    """

    node: Node
    number: Fraction | None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    r"""Plain text or a choice's letter, spaces single; ``bare`` where it stood outside ``\text``."""

    text: str
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Based:
    """A number with its base as index, such as ``52_8``."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Collection:
    """Values without order; of a set (``braced``) equal ones count once."""

    items: tuple["Value", ...]
    braced: bool


@dataclass(frozen=True, slots=True)
class Ordered:
    """A tuple or an interval: the brackets and what stands between them."""

    left: str
    right: str
    items: tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class Union:
    """A union of intervals and sets."""

    parts: tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix or column vector, row by row."""

    rows: tuple[tuple["Value", ...], ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """Two sides and what stands between them.

    Attributes:
        sign: ``=``, ``!=``, ``<``, ``<=`` or ``in``; an inequality for one variable is ``in`` an interval.
        label: the name on the left (``x``, ``f(x)``), "" where the left side is no name.
        left: the left side.
        right: the right side.
    """

    sign: str
    label: str
    left: "Value"
    right: "Value"


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Tokens that are no answer of the other kinds, and why."""

    tokens: tuple[str, ...]
    reason: str


Value = Expression | Words | Based | Collection | Ordered | Union | Matrix | Relation | Unparsed


def parts_of(value: Value) -> tuple[Value, ...]:
    """Return the values that a value consists of, () for a single one."""
    match value:
        case Collection() | Ordered():
            return value.items
        case Union():
            return value.parts
        case Matrix():
            return tuple(cell for row in value.rows for cell in row)
        case Relation():
            return (value.left, value.right)
        case _:
            return ()
