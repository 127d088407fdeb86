r"""Exact arithmetic of closed forms: quotients of polynomials over the rationals in named generators.

Generators are variables, ``\pi``, ``e``, ``i``, primes under a root (``#2`` with exponents between 0 and 1), and calls
that are not worked out, named by their text (``\sin(x)``). Powers of distinct primes with such exponents are linearly
independent over the rationals (Besicovitch 1940), so that without calls two forms are equal only if they agree here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from tasks.answers.latex import UnreadableError
from tasks.answers.nodes import MAX_BITS

__all__ = ["ONE", "Algebra", "Monomial", "Polynomial", "Ratio", "TooLargeError", "constant", "generator", "monomial"]

Exponent = Fraction | int
Monomial = tuple[tuple[str, Exponent], ...]
Polynomial = Mapping[Monomial, Fraction]

_WORK = 600  # products of two terms in one expression
_MAX_TERMS = 200


class TooLargeError(ValueError):
    """Working an expression out would take too long."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quotient of two polynomials; ``below`` is not zero, and 1 where it can be."""

    above: Polynomial
    below: Polynomial

    def rational(self) -> Fraction | None:
        """Return the value where it is a rational number."""
        if not self.above:
            return Fraction(0)
        plain = len(self.above) == 1 and () in self.above and self.below == ONE
        return self.above[()] if plain else None

    def generators(self) -> set[str]:
        """Return the names of all generators."""
        return {name for terms in (self.above, self.below) for powers in terms for name, _ in powers}

    def key(self) -> str:
        """Return a text; equal texts mean equal values."""
        below = "" if self.below == ONE else f"/({_text(self.below)})"
        return f"({_text(self.above)}){below}" if below else _text(self.above)


ONE: Polynomial = {(): Fraction(1)}


def constant(value: Fraction) -> Ratio:
    """Return a rational number."""
    return Ratio({(): value} if value else {}, ONE)


def generator(name: str, exponent: Exponent = 1) -> Ratio:
    """Return a generator, maybe to a power."""
    return Ratio({((name, exponent),): Fraction(1)}, ONE)


def monomial(powers: Mapping[str, Exponent], scale: Fraction) -> Ratio:
    """Return one term, in normal form."""
    factor, kept = _settle(powers)
    return Ratio({kept: _checked(scale * factor)}, ONE)


def _text(terms: Polynomial) -> str:
    def term(powers: Monomial, factor: Fraction) -> str:
        names = [name if power == 1 else f"{name}^({power})" for name, power in powers]
        return "*".join(names if names and factor == 1 else [str(factor), *names])

    return "+".join(term(powers, terms[powers]) for powers in sorted(terms, key=str)) or "0"


def _checked(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise TooLargeError("a number grows too large to work out")
    return value


def rational_power(base: Fraction, exponent: int) -> Fraction:
    """Return ``base**exponent``.

    Raises:
        TooLargeError: the result would be too large.
    """
    if base in (1, -1):
        return base if exponent % 2 else Fraction(1)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits * abs(exponent) > 2 * MAX_BITS:
        raise TooLargeError("a power is too large to work out")
    return _checked(base**exponent)


def _settle(powers: Mapping[str, Exponent]) -> tuple[Fraction, Monomial]:
    """Return the rational factor and the normal form of a product of powers."""
    scale, kept = Fraction(1), list[tuple[str, Exponent]]()
    for name, power in powers.items():
        if name[0] == "#" and not 0 <= power < 1:
            whole = math.floor(power)
            scale *= rational_power(Fraction(int(name[1:])), whole)
            power -= whole
        elif name == "i" and power not in (0, 1):
            power %= 4
            scale, power = (-scale, power - 2) if power >= 2 else (scale, power)  # noqa: PLR2004
        if power:
            kept.append((name, power))
    return scale, tuple(sorted(kept))


class Algebra:
    """The operations, with a bound on the work they may do together."""

    def __init__(self, work: int = _WORK) -> None:
        self._work = work

    def _spend(self, steps: int) -> None:
        self._work -= steps
        if self._work < 0:
            raise TooLargeError("an expression takes too long to work out")

    def _plus(self, first: Polynomial, second: Polynomial) -> Polynomial:
        self._spend(len(second))
        terms = dict(first)
        for powers, factor in second.items():
            terms[powers] = _checked(terms.get(powers, Fraction(0)) + factor)
        return self._kept(terms)

    def _kept(self, terms: Mapping[Monomial, Fraction]) -> Polynomial:
        kept = {powers: factor for powers, factor in terms.items() if factor}
        if len(kept) > _MAX_TERMS:
            raise TooLargeError("an expression has too many terms")
        return kept

    def _times(self, first: Polynomial, second: Polynomial) -> Polynomial:
        if first == ONE or second == ONE:
            return second if first == ONE else first
        self._spend(len(first) * len(second))
        terms: dict[Monomial, Fraction] = {}
        for left, factor in first.items():
            for right, other in second.items():
                powers: dict[str, Exponent] = dict(left)
                for name, power in right:
                    powers[name] = powers.get(name, 0) + power
                scale, kept = _settle(powers)
                terms[kept] = _checked(terms.get(kept, Fraction(0)) + factor * other * scale)
        return self._kept(terms)

    def add(self, first: Ratio, second: Ratio) -> Ratio:
        """Return the sum."""
        if first.below == second.below:
            return Ratio(self._plus(first.above, second.above), first.below)
        above = self._plus(self._times(first.above, second.below), self._times(second.above, first.below))
        return Ratio(above, self._times(first.below, second.below))

    def multiply(self, first: Ratio, second: Ratio) -> Ratio:
        """Return the product."""
        return Ratio(self._times(first.above, second.above), self._times(first.below, second.below))

    def negate(self, value: Ratio) -> Ratio:
        """Return the value with the other sign."""
        return Ratio({powers: -factor for powers, factor in value.above.items()}, value.below)

    def invert(self, value: Ratio) -> Ratio:
        """Return the reciprocal.

        Raises:
            UnreadableError: the value is zero.
        """
        if not value.above:
            raise UnreadableError("division by zero")
        if len(value.above) > 1:
            return Ratio(value.below, value.above)
        (powers, factor), *_ = value.above.items()
        reciprocal = monomial({name: -power for name, power in powers}, 1 / factor)
        return Ratio(self._times(value.below, reciprocal.above), ONE)

    def power(self, value: Ratio, exponent: int) -> Ratio:
        """Return a whole power; 0^0 is unreadable, as is a negative power of 0."""
        if exponent < 0:
            return self.power(self.invert(value), -exponent)
        if exponent == 0 and not value.above:
            raise UnreadableError("zero to the power of zero")
        if len(value.above) <= 1 and value.below == ONE:
            if not value.above:
                return value
            (powers, factor), *_ = value.above.items()
            self._spend(1)
            return monomial({name: power * exponent for name, power in powers}, rational_power(factor, exponent))
        result = Ratio(ONE, ONE)
        self._spend(exponent)
        for _ in range(exponent):
            result = self.multiply(result, value)
        return result

    def equal(self, first: Ratio, second: Ratio) -> bool | None:
        """Return whether two values are equal; None where calls are left that may be."""
        left = self._times(first.above, second.below)
        if left == self._times(second.above, first.below):
            return True
        decided = not any("(" in name for name in first.generators() | second.generators())
        return False if decided else None

    def proportional(self, first: Ratio, second: Ratio) -> bool:
        """Return whether the zeros' equations agree: one numerator is a rational multiple of the other."""
        if first.below != ONE or second.below != ONE or first.above.keys() != second.above.keys():
            return self.equal(first, second) is True
        factors = {first.above[powers] / second.above[powers] for powers in first.above}
        return len(factors) <= 1
