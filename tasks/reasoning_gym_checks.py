"""Is an item of reasoning-gym right? Each answer is worked out again, exactly, before it becomes a gold one.

An item that fails is not used. In 0.1.25 these are quotients that its floor division rounds, day counts whose end lies
in a year that the question does not name, and ambiguous dates such as 05/06/2022. Only text that the package generated
comes here, never a response.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from tasks.reasoning_gym_answers import WEEKDAYS

__all__ = ["base_conversion", "bitwise", "calendar", "chain", "dice", "equation", "exact", "expression", "filtering"]
__all__ += ["fraction", "gcd", "is_prime", "lcm", "prime_factors", "primes", "product", "sorting", "spiral"]

Item = Mapping[str, Any]

_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: Fraction,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_SIEVE = 100_001
_ORDINALS = ("first", "second", "third", "fourth")


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError(f"{ast.dump(node)[:80]} is no integer expression")


def exact(text: str) -> Fraction:
    """Return the value of an integer expression that the package generated; raises ValueError on any other."""
    return Fraction(_value(ast.parse(text, mode="eval").body))


def expression(item: Item) -> bool:
    """Tell whether the answer is the exact value; its own evaluation rounds quotients down."""
    return exact(item["metadata"]["expression"]) == int(item["answer"])


def bitwise(item: Item) -> bool:
    """Tell whether the answer is the value of the shifts, sums, differences and products."""
    return exact(item["metadata"]["problem"]) == int(item["answer"], 16)


def chain(item: Item) -> bool:
    """Tell whether the answer is the sum of the signed terms, decimals included."""
    first, *rest = item["metadata"]["expression"].split(" ")
    signed = zip(rest[::2], rest[1::2], strict=True)
    total = Fraction(first) + sum(Fraction(term) if sign == "+" else -Fraction(term) for sign, term in signed)
    return total == Fraction(item["answer"])


def product(item: Item) -> bool:
    """Tell whether the answer is the product of the terms."""
    return math.prod(map(int, item["metadata"]["expression"].split(" * "))) == int(item["answer"])


def equation(item: Item) -> bool:
    """Tell whether the answer, and no other number, solves the linear equation."""
    left, right = item["metadata"]["equation"].split(" = ")
    at = [exact(left.replace(item["metadata"]["variable"], f"({int(item['answer']) + step})")) for step in (0, 1)]
    return at[0] == int(right) != at[1]


def gcd(item: Item) -> bool:
    """Tell whether the answer is the greatest common divisor."""
    return math.gcd(*item["metadata"]["numbers"]) == int(item["answer"])


def lcm(item: Item) -> bool:
    """Tell whether the answer is the least common multiple."""
    return math.lcm(*item["metadata"]["numbers"]) == int(item["answer"])


def is_prime(number: int) -> bool:
    """Tell whether ``number`` is prime, by trial division."""
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def prime_factors(item: Item) -> bool:
    """Tell whether the factors are prime, two or more, and multiply to the number; 12 is the question's example."""
    number, factors = item["metadata"]["number"], item["metadata"]["factors"]
    return len(factors) > 1 and all(map(is_prime, factors)) and math.prod(factors) == number and factors != [2, 2, 3]


@lru_cache(maxsize=1)
def _primes_up_to() -> Sequence[int]:
    """Return how many primes there are up to each index."""
    sieve = bytearray([0, 0]) + bytearray([1]) * (_SIEVE - 2)
    for number in range(2, math.isqrt(_SIEVE) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, _SIEVE, number)))
    counts = [0]
    for flag in sieve[1:]:
        counts.append(counts[-1] + flag)
    return counts


def primes(item: Item) -> bool:
    """Tell whether the answer is the number of primes from start to end."""
    counts = _primes_up_to()
    return counts[item["metadata"]["end"]] - counts[item["metadata"]["start"] - 1] == int(item["answer"])


def fraction(item: Item) -> bool:
    """Tell whether the answer is the fraction in lowest terms, no integer, and not the question itself."""
    data = item["metadata"]
    value = Fraction(data["numerator"], data["denominator"])
    lowest = f"{value.numerator}/{value.denominator}"
    return item["answer"] == lowest != f"{data['numerator']}/{data['denominator']}" and value.denominator > 1


def dice(item: Item) -> bool:
    """Tell whether the answer is the share of rolls that reach the target."""
    puzzle = item["metadata"]["puzzle"]
    sides = [int(die.removeprefix("1d")) for die in puzzle["dice_str"].split(", ")]
    ways = [1]
    for count in sides:
        ways = [sum(ways[max(0, total - count) : total]) for total in range(len(ways) + count)]
    share = Fraction(sum(ways[puzzle["target"] :]), math.prod(sides))
    return item["answer"] == f"{share.numerator}/{share.denominator}" and share.denominator > 1


def base_conversion(item: Item) -> bool:
    """Tell whether question and answer are the same number in their bases."""
    data = item["metadata"]
    return int(data["source_repr"], data["source_base"]) == int(item["answer"], data["target_base"])


def sorting(item: Item) -> bool:
    """Tell whether the numbers are all there and in order."""
    data = item["metadata"]
    numbers = sorted(map(Decimal, data["original_numbers"]), reverse=data["direction"] == "descending")
    return numbers == list(map(Decimal, data["sorted_numbers"]))


def filtering(item: Item) -> bool:
    """Tell whether the numbers that should stay stay; not all of them and not none."""
    data = item["metadata"]
    bound, (verb, side) = Decimal(data["filter_value"]), data["operation"].split("_")
    given = list(map(Decimal, data["original_numbers"]))
    kept = [n for n in given if (n > bound if side == "larger" else n < bound) == (verb == "keep")]
    return kept == list(map(Decimal, data["result"])) and 0 < len(kept) < len(given)


def spiral(item: Item) -> bool:
    """Tell whether the answer peels the matrix clockwise, and is not its rows one after the other."""
    rows = list(map(tuple, item["metadata"]["matrix"]))
    by_rows = [entry for row in rows for entry in row]
    found: list[int] = []
    while rows:
        found += rows[0]
        rows = list(zip(*rows[1:], strict=True))[::-1]
    return found == item["metadata"]["solution"] != by_rows


def _days(data: Mapping[str, Any]) -> list[date]:
    start, end = date.fromisoformat(data["start_date"]), date.fromisoformat(data["end_date"])
    return [start + timedelta(days=day) for day in range((end - start).days + 1)]


def _day_of_month(data: Mapping[str, Any]) -> int:
    first = date(data["year"], data["month"], 1)
    days = [first + timedelta(days=day) for day in range(31)]
    fitting = [d.day for d in days if d.month == first.month and WEEKDAYS[d.weekday()] == data["weekday"]]
    return fitting[-1] if data["ordinal"] == "last" else fitting[_ORDINALS.index(data["ordinal"])]


def calendar(item: Item) -> bool:
    """Tell whether the weekday, day or count is right and the question names its dates without doubt."""
    data, question, answer = item["metadata"], item["question"], item["answer"]
    if re.search("[0-9]/[0-9]", question):
        return False
    if data["task"] in ("weekday_of_date", "weekday_offset"):
        start = date.fromisoformat(data.get("start_date", data["target_date"]))
        return answer == WEEKDAYS[(start + timedelta(days=data.get("offset_days", 0))).weekday()]
    if data["task"] == "recurring_event_day":
        return int(answer) == _day_of_month(data)
    days = _days(data)
    if data["task"] == "count_business_days":
        fitting = [day for day in days if day.weekday() < WEEKDAYS.index("Saturday")]
    else:
        named = re.search("How many ([A-Z][a-z]+)s are|occurrences of ([A-Z][a-z]+)|does ([A-Z][a-z]+) occur", question)
        fitting = [day for day in days if named and WEEKDAYS[day.weekday()] in named.groups()]
    return int(answer) == len(fitting) and days[0].year == days[-1].year
