r"""An expression's tokens as a tree; juxtaposition multiplies, ``1\frac12`` and ``1 1/2`` are mixed numbers."""

from collections.abc import Sequence
from fractions import Fraction

from tasks.answers.latex import UnreadableError
from tasks.answers.names import APPLIED, FUNCTIONS, SYMBOLS, letters
from tasks.answers.nodes import Node, negate, number
from tasks.answers.tokens import is_number

__all__ = ["parse"]

_MAX_NESTING = 40
_CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|"}
_TWO_ARGUMENTS = {r"\frac": "quotient", r"\binom": "binomial"}


def parse(tokens: Sequence[str]) -> Node:
    """Return the tree of an expression.

    Raises:
        UnreadableError: the tokens are no expression, or it is nested too deeply.
    """
    parser = _Parser(letters(tokens))
    node = parser.sum()
    if parser.here:
        raise UnreadableError(f"cannot read on at {parser.here[:20]!a}")
    return node


class _Parser:
    """Recursive descent; every recursion passes ``power`` or ``exponent``, which count it."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.place = 0
        self.nesting = 0

    @property
    def here(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.here
        if not token or (expected and token != expected):
            raise UnreadableError(f"expected {expected or 'more'!a}, got {token[:20] or 'the end'!a}")
        self.place += 1
        return token

    def sum(self) -> Node:
        parts = [self.product()]
        while self.here in ("+", "-"):
            negative = self.take() == "-"
            parts.append(negate(self.product(), negative))
        return parts[0] if len(parts) == 1 else Node("sum", tuple(parts))

    def product(self) -> Node:
        negative = self.sign()
        parts = [self.power()]
        while True:
            if self.here == "/":
                self.take()
                parts.append(Node("inverse", (self.signed(),)))
            elif self.here == "*":
                self.take()
                parts.append(self.signed())
            elif self.starts():
                parts.append(self.power())
            else:
                break
        if [part.op for part in parts[1:]] == ["inverse"]:
            return negate(Node("quotient", (parts[0], parts[1].parts[0])), negative)
        return negate(parts[0] if len(parts) == 1 else Node("product", tuple(parts)), negative)

    def sign(self) -> bool:
        """Move behind a sign, if one is here, and return whether it is a minus."""
        return self.here in ("+", "-") and self.take() == "-"

    def signed(self) -> Node:
        negative = self.sign()
        return negate(self.power(), negative)

    def starts(self) -> bool:
        """Return whether a factor begins here without a sign of multiplication; a number does only behind a bracket."""
        token = self.here
        if token and is_number(token):
            return self.tokens[self.place - 1] == ")"
        opens = token in ("(", "[", "{", r"\sqrt") or token in _TWO_ARGUMENTS
        return opens or token.isalpha() or token in SYMBOLS or token in FUNCTIONS

    def deeper(self) -> None:
        self.nesting += 1
        if self.nesting > _MAX_NESTING:
            raise UnreadableError(f"an expression is nested deeper than {_MAX_NESTING}")

    def power(self) -> Node:
        self.deeper()
        node = self.atom()
        if self.here == "!":
            self.take()
            node = Node("factorial", (node,))
        node = self.raised(node)
        self.nesting -= 1
        return node

    def raised(self, base: Node) -> Node:
        return Node("power", (base, self.exponent())) if self.here == "^" else base

    def exponent(self) -> Node:
        """Return the exponent here: a group, or a whole number or symbol with a sign; a tower leans to the right."""
        self.deeper()
        self.take("^")
        negative = self.sign()
        node = self.group("{") if self.here == "{" else self.bare()
        node = negate(self.raised(node), negative)
        self.nesting -= 1
        return node

    def bare(self) -> Node:
        """Return what a root or an exponent without braces covers: a whole number, a symbol, a bracket, a root."""
        if self.here and is_number(self.here):
            return number(self.take())
        return self.power() if self.here in (r"\sqrt", r"\frac") else self.atom()

    def group(self, left: str) -> Node:
        self.take(left)
        node = self.sum()
        if self.here == r"\over":
            self.take()
            node = Node("quotient", (node, self.sum()))
        self.take(_CLOSING[left])
        return node

    def atom(self) -> Node:
        token = self.here
        if token and is_number(token):
            return self.number()
        if token in ("(", "[", "{"):
            return self.group(token)
        if token == "|":
            return Node("absolute", (self.group("|"),))
        if token in _TWO_ARGUMENTS:
            self.take()
            return Node(_TWO_ARGUMENTS[token], (self.argument(), self.argument()))
        if token == r"\sqrt":
            self.take()
            index = self.group("[") if self.here == "[" else number(2)
            return Node("root", (self.group("{") if self.here == "{" else self.bare(), index))
        if token in FUNCTIONS:
            return self.call()
        if token.isalpha() or token in SYMBOLS:
            return self.symbol()
        raise UnreadableError(f"cannot read on at {token[:20] or 'the end'!a}")

    def number(self) -> Node:
        token = self.take()
        following = self.tokens[self.place : self.place + 2]
        if following[:1] == [r"\overline"] or following == [".", r"\overline"]:
            return number(Fraction(token) + self.repeating(token))
        if "." not in token and self.here == r"\frac":
            return self.mixed(number(token))
        if "." not in token and self.here == " " and self.tokens[self.place + 2 : self.place + 3] == ["/"]:
            self.take(" ")
            above, _, below = self.digits(), self.take("/"), self.digits()
            if int(above) >= int(below):
                raise UnreadableError("two numbers with nothing between them")
            return number(Fraction(token) + Fraction(int(above), int(below)))
        return number(token)

    def mixed(self, whole: Node) -> Node:
        """Return a mixed number where a proper fraction of two whole numbers follows, else a product."""
        part = self.atom()
        above, below = part.parts
        digits = above.op == below.op == "number" and above.value.denominator == below.value.denominator == 1
        if digits and 0 < above.value < below.value and self.here != "^":
            return number(whole.value + above.value / below.value)
        return Node("product", (whole, self.raised(part)))

    def repeating(self, token: str) -> Fraction:
        r"""Return what ``\overline{3}`` adds to ``0.`` or ``0.1``."""
        decimals = len(token.partition(".")[2])
        if "." not in token:
            self.take(".")
        self.take(r"\overline")
        braced = self.here == "{" and self.take()
        digits = self.digits()
        if braced:
            self.take("}")
        return Fraction(int(digits), 10**decimals * (10 ** len(digits) - 1))

    def digits(self) -> str:
        digits = self.take()
        if not is_number(digits) or "." in digits:
            raise UnreadableError(f"expected digits, got {digits[:20]!a}")
        return digits

    def argument(self) -> Node:
        r"""Return one argument of ``\frac``: braces, one digit as in ``\frac12``, or a symbol."""
        token = self.here
        if token == " ":
            self.take()
            token = self.here
        if token == "{":
            return self.group("{")
        if token and is_number(token):
            if "." in token:
                raise UnreadableError(f"cannot tell the argument in {token[:20]!a}")
            self.tokens[self.place : self.place + 1] = [token[0], token[1:]] if token[1:] else [token]
            return number(self.take())
        return self.symbol() if token.isalpha() or token in SYMBOLS else self.power()

    def symbol(self) -> Node:
        name = self.take()
        if self.here == "_":
            name += self.subscript()
        if name in APPLIED and self.here == "(":
            return Node("call", (self.group("("),), name)
        return Node("symbol", name=name)

    def subscript(self) -> str:
        self.take("_")
        if self.here != "{":
            return f"_{self.take()}"
        self.take()
        inside: list[str] = []
        while self.here != "}":
            if self.here == "{":
                raise UnreadableError("a subscript holds no braces")
            inside.append(self.take())
        self.take("}")
        return f"_{' '.join(inside)}"

    def call(self) -> Node:
        name = self.take()
        if self.here == "_":
            name += self.subscript()
        exponent = self.exponent() if self.here == "^" else None
        if self.here == " ":  # as in \sin^2 2x
            self.take()
        if self.here in ("(", "{"):
            operand = self.group(self.here)
        else:
            parts = [self.power()]
            while self.starts() and self.here not in ("(", "[") and self.here not in FUNCTIONS:
                parts.append(self.power())
            operand = Node("product", tuple(parts))
        node = Node("call", (operand,), name)
        return node if exponent is None else Node("power", (node, exponent))
