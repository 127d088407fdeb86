"""Endless problems from the generators of the package reasoning-gym, judged by our own scorers: ``#### 42``.

The package (extra ``reasoning-gym``) writes questions and answers; it never sees a response, since its scorers evaluate
model output and pay for answers that merely contain the right one. An answer is worked out again before it counts
(``reasoning_gym_checks.py``) and responses are read by kind of answer (``reasoning_gym_answers.py``).

Per-item seeds are hashed. What an item asks decides its split, however it is worded: no problem is in two splits.
"""

from dataclasses import dataclass
from typing import ClassVar

from tasks.base import Task
from tasks.reasoning_gym_base import GymTask
from tasks.reasoning_gym_generators import GENERATORS, Generator

__all__ = ["TASKS"]


@dataclass(frozen=True)
class ChainSum(GymTask):
    """Sums and differences; an integer."""

    max_terms: int = 6
    max_digits: int = 4
    generator: ClassVar[Generator] = GENERATORS["chain_sum"]


@dataclass(frozen=True)
class BasicArithmetic(GymTask):
    """Four operations with parentheses, quotients exact; an integer."""

    max_terms: int = 4
    max_digits: int = 2
    generator: ClassVar[Generator] = GENERATORS["basic_arithmetic"]


@dataclass(frozen=True)
class Products(GymTask):
    """Products; an integer."""

    max_terms: int = 2
    max_digits: int = 4
    generator: ClassVar[Generator] = GENERATORS["products"]


@dataclass(frozen=True)
class DecimalChainSum(GymTask):
    """Sums and differences of decimals; a decimal, equal in value (``7.14`` is ``7.140``)."""

    max_terms: int = 6
    max_digits: int = 4
    generator: ClassVar[Generator] = GENERATORS["decimal_chain_sum"]


@dataclass(frozen=True)
class GreatestCommonDivisor(GymTask):
    """Greatest common divisor; an integer. Small answers are thinned out so that no guess pays."""

    max_value: int = 1000
    generator: ClassVar[Generator] = GENERATORS["gcd"]


@dataclass(frozen=True)
class LeastCommonMultiple(GymTask):
    """Least common multiple; an integer."""

    max_value: int = 200
    generator: ClassVar[Generator] = GENERATORS["lcm"]


@dataclass(frozen=True)
class PrimeFactorization(GymTask):
    """Prime factors of a composite number; the primes with multiplicity, in any order."""

    max_value: int = 10_000
    generator: ClassVar[Generator] = GENERATORS["prime_factorization"]


@dataclass(frozen=True)
class FractionSimplification(GymTask):
    """Fractions to be reduced; numerator/denominator in lowest terms and nothing else."""

    max_value: int = 1000
    max_factor: int = 100
    generator: ClassVar[Generator] = GENERATORS["fraction_simplification"]


@dataclass(frozen=True)
class Dice(GymTask):
    """The chance to roll a total or more; a fraction in lowest terms."""

    num_dice: int = 4
    max_dice_size: int = 20
    generator: ClassVar[Generator] = GENERATORS["dice"]


@dataclass(frozen=True)
class BaseConversion(GymTask):
    """Numbers in another base; the digits in lower case, without prefix or leading zeros."""

    max_base: int = 16
    max_value: int = 1000
    generator: ClassVar[Generator] = GENERATORS["base_conversion"]


@dataclass(frozen=True)
class BitwiseArithmetic(GymTask):
    """Shifts, sums, differences and products; a hexadecimal integer with 0x in lower case."""

    difficulty: int = 2
    generator: ClassVar[Generator] = GENERATORS["bitwise_arithmetic"]


@dataclass(frozen=True)
class SimpleEquations(GymTask):
    """Linear equations in one unknown; its value, an integer."""

    max_terms: int = 4
    max_value: int = 100
    generator: ClassVar[Generator] = GENERATORS["simple_equations"]


@dataclass(frozen=True)
class CountPrimes(GymTask):
    """How many primes lie between two numbers; an integer."""

    max_n: int = 1000
    generator: ClassVar[Generator] = GENERATORS["count_primes"]


@dataclass(frozen=True)
class CalendarArithmetic(GymTask):
    """Weekdays and day counts of a year; the weekday's English name or an integer."""

    year: int = 2022
    offset_upper_bound: int = 100
    generator: ClassVar[Generator] = GENERATORS["calendar_arithmetic"]


@dataclass(frozen=True)
class NumberSorting(GymTask):
    """Numbers to sort; all of them in order, each equal in value."""

    max_numbers: int = 10
    generator: ClassVar[Generator] = GENERATORS["number_sorting"]


@dataclass(frozen=True)
class NumberFiltering(GymTask):
    """Numbers above or below a bound; all of them in the given order, each equal in value."""

    max_numbers: int = 10
    generator: ClassVar[Generator] = GENERATORS["number_filtering"]


@dataclass(frozen=True)
class SpiralMatrix(GymTask):
    """A matrix read in a spiral; all its entries in order."""

    max_n: int = 5
    generator: ClassVar[Generator] = GENERATORS["spiral_matrix"]


@dataclass(frozen=True)
class WordSorting(GymTask):
    """Words to sort by ASCII order; all of them in order, letter for letter."""

    max_words: int = 8
    generator: ClassVar[Generator] = GENERATORS["word_sorting"]


@dataclass(frozen=True)
class SpellBackward(GymTask):
    """A word backward; letter for letter."""

    max_word_len: int = 8
    generator: ClassVar[Generator] = GENERATORS["spell_backward"]


_CLASSES: tuple[type[GymTask], ...] = (
    ChainSum,
    BasicArithmetic,
    Products,
    DecimalChainSum,
    GreatestCommonDivisor,
    LeastCommonMultiple,
    PrimeFactorization,
    FractionSimplification,
    Dice,
    BaseConversion,
    BitwiseArithmetic,
    SimpleEquations,
    CountPrimes,
    CalendarArithmetic,
    NumberSorting,
    NumberFiltering,
    SpiralMatrix,
    WordSorting,
    SpellBackward,
)
TASKS: dict[str, type[Task]] = {f"rg_{cls.generator.dataset}": cls for cls in _CLASSES}
