"""An expression's tree worked out exactly; functions stay calls, named by what they are called on."""

import functools
import math
from collections.abc import Mapping
from fractions import Fraction

from tasks.answers.algebra import (
    ONE,
    Algebra,
    Exponent,
    Monomial,
    Ratio,
    TooLargeError,
    constant,
    generator,
    monomial,
)
from tasks.answers.nodes import Node

__all__ = ["evaluate"]

_LARGEST_TRIAL = 2_000  # trial divisors of a number under a root
_LARGEST_BITS = 200  # of a number under a root
_LARGEST_KEY = 2_000  # characters of a call's name
_SQUARE = 2
_LARGEST_INDEX = 12
_LARGEST_FACTORIAL = 60
_LARGEST_EXPONENT = 1_000_000
_POSITIVE = frozenset({r"\pi", "e"})


def evaluate(node: Node, algebra: Algebra) -> Ratio:
    """Return the value of a tree.

    Raises:
        UnreadableError: it has no value (division by zero).
        TooLargeError: working it out would take too long.
    """
    if node.op == "number":
        return constant(node.value)
    if node.op == "symbol":
        return generator(node.name)
    parts = [evaluate(part, algebra) for part in node.parts]
    if node.op in ("sum", "product"):
        total = parts[0]
        for part in parts[1:]:
            total = algebra.add(total, part) if node.op == "sum" else algebra.multiply(total, part)
        return total
    if node.op == "negative":
        return algebra.negate(parts[0])
    if node.op == "inverse":
        return algebra.invert(parts[0])
    if node.op == "quotient":
        return algebra.multiply(parts[0], algebra.invert(parts[1]))
    if node.op == "power":
        return _power(parts[0], parts[1], algebra)
    if node.op == "root":
        index = parts[1].rational()
        return _call("root", *parts) if index is None else _root(parts[0], index)
    return _function(node, parts)


def _call(name: str, *arguments: Ratio) -> Ratio:
    key = ",".join(argument.key() for argument in arguments)
    if len(key) > _LARGEST_KEY:
        raise TooLargeError("the argument of a function is too long to work out")
    return generator(f"{name}({key})")


def _function(node: Node, parts: list[Ratio]) -> Ratio:
    """Return a call; factorials and binomials of small whole numbers and absolute values are worked out."""
    values = [part.rational() for part in parts]
    if node.op == "absolute" and values[0] is not None:
        return constant(abs(values[0]))
    if node.op in ("factorial", "binomial"):
        whole = [int(v) for v in values if v is not None and v.denominator == 1 and 0 <= v <= _LARGEST_FACTORIAL]
        if len(whole) == len(values):
            return constant(Fraction(math.factorial(*whole) if node.op == "factorial" else math.comb(*whole)))
    return _call(node.name or node.op, *parts)


def _power(base: Ratio, exponent: Ratio, algebra: Algebra) -> Ratio:
    value = exponent.rational()
    if value is None:
        return _open_power(base, exponent, algebra)
    if abs(value.numerator) > _LARGEST_EXPONENT:
        raise TooLargeError("an exponent is too large to work out")
    root = base if value.denominator == 1 else _root(base, Fraction(value.denominator))
    return algebra.power(root, value.numerator)


def _open_power(base: Ratio, exponent: Ratio, algebra: Algebra) -> Ratio:
    """Return a power such as ``2^{n+1}`` as ``2 * 2^n``, so that both spellings agree."""
    shift = exponent.above.get((), Fraction(0)) if exponent.below == ONE else Fraction(0)
    if not base.above or shift.denominator != 1 or abs(shift) > _LARGEST_EXPONENT:
        return _call("power", base, exponent)
    rest = algebra.add(exponent, constant(-shift))
    return algebra.multiply(_call("power", base, rest), algebra.power(base, shift.numerator))


def _root(radicand: Ratio, index: Fraction) -> Ratio:
    """Return a root: exact for rational numbers, and for one term whose parts may be taken out."""
    if index.denominator != 1 or not _SQUARE <= index <= _LARGEST_INDEX:
        return _call("root", radicand, constant(index))
    if not radicand.above:
        return radicand
    exact = _exact_root(radicand, int(index))
    return _call("root", radicand, constant(index)) if exact is None else exact


def _exact_root(radicand: Ratio, index: int) -> Ratio | None:
    """Return the root of a rational number or of one term; None where it cannot be taken apart."""
    if len(radicand.above) > 1 or radicand.below != ONE:
        return None
    (powers, factor), *_ = radicand.above.items()
    roots = _term_root(powers, index)
    above, below = _factors(abs(factor.numerator)), _factors(factor.denominator)
    real = factor > 0 or (not powers and (index == _SQUARE or index % 2 == 1))
    if roots is None or above is None or below is None or not real:
        return None
    for primes, sign in ((above, 1), (below, -1)):
        for prime, power in primes.items():
            name = f"#{prime}"
            roots[name] = roots.get(name, 0) + Fraction(sign * power, index)
    if factor < 0 and index == _SQUARE:
        roots["i"] = 1
    return monomial(roots, Fraction(-1 if factor < 0 and index % 2 else 1))


def _term_root(powers: Monomial, index: int) -> dict[str, Exponent] | None:
    """Return the exponents under a root of positive generators and at most one other to the first power, else None."""
    others = [power for name, power in powers if name not in _POSITIVE and name[0] != "#"]
    if others not in ([], [1]) or any("(" in name or name == "i" for name, _ in powers):
        return None
    return {name: Fraction(power) / index for name, power in powers}


@functools.lru_cache(maxsize=4096)
def _factors(number: int) -> Mapping[int, int] | None:
    """Return the prime factors; None where trial division does not find them all."""
    found: dict[int, int] = {}
    if number.bit_length() > _LARGEST_BITS:
        return None
    for divisor in (2, *range(3, _LARGEST_TRIAL, 2)):
        if divisor * divisor > number:
            break
        while number % divisor == 0:
            found[divisor] = found.get(divisor, 0) + 1
            number //= divisor
    if number == 1:
        return found
    root = math.isqrt(number)
    for prime, power in ((number, 1), (root, 2)):
        if prime**power == number and prime < _LARGEST_TRIAL * _LARGEST_TRIAL:
            found[prime] = found.get(prime, 0) + power
            return found
    return None
