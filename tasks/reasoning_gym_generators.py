"""Which generators of reasoning-gym are used, how an item of each is read, and which items are fit to be problems."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks import reasoning_gym_answers as answers
from tasks import reasoning_gym_checks as checks
from tasks import reasoning_gym_package as package
from tasks.splits import Draws

__all__ = ["GENERATORS", "Generator"]

Item = Mapping[str, Any]
_SEEDS = 2**62
_EVEN_BELOW = 10


def _metadata(name: str) -> Callable[[Item], str]:
    return lambda item: str(item["metadata"][name])


def _in_any_order(item: Item) -> str:
    return str(sorted(item["metadata"]["numbers"]))


def _without_hints(item: Item) -> str:
    """The line on the list's form, which the task states itself, is cut."""
    return re.split("\nPlease follow|\nReturn the new list", item["question"])[0]


def _spiral_question(item: Item) -> str:
    return re.sub("Your output should be .*\n\n", "", item["question"])


def _equation(item: Item) -> str:
    return item["metadata"]["equation"].replace(item["metadata"]["variable"], "x")


def _facts(item: Item) -> str:
    """The wording of a calendar question does not make a second problem."""
    facts = {name: value for name, value in item["metadata"].items() if name not in ("source_index", "difficulty")}
    return str(sorted(facts.items()))


def _even_gcd(item: Item) -> bool:
    """Keep 1 % of the items whose answer is 1, 4 % of those with 2 and so on to 10: else "1" alone earns a quarter."""
    kept = Draws("rg_gcd", _in_any_order(item)).below(_EVEN_BELOW**2) < int(item["answer"]) ** 2
    return kept and checks.gcd(item)


@dataclass(frozen=True)
class Generator:
    """How one generator of the package becomes a task.

    Attributes:
        dataset: its name in the package.
        kind: of its answers; decides the scorer.
        right: works the answer out again; False: the item is not used.
        ranges: setting -> (least, largest); settings go to the generator under the same name.
        fixed: settings of the generator that are not the task's.
        key: the text that decides split and duplicates.
        question: what is shown.
        gold: the answer, in a form that ``kind`` reads.
        label: the difficulty.
    """

    dataset: str
    kind: answers.Kind
    right: Callable[[Item], bool]
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    key: Callable[[Item], str] = lambda item: item["question"]
    question: Callable[[Item], str] = lambda item: item["question"]
    gold: Callable[[Item], str] = lambda item: item["answer"]
    label: Callable[[Item], str] = lambda item: ""

    def draw(self, stream: Draws, settings: tuple[tuple[str, int], ...]) -> tuple[str, Item]:
        """Return (key, item) for the next hashed seed of the stream; raises ValueError where the package is missing."""
        item = package.item(self.dataset, (*settings, *self.fixed.items()), stream.below(_SEEDS))
        return self.key(item), item

    def shown(self, item: Item) -> str:
        """Return the question as it is shown."""
        return self.question(item).replace("\u00d7", "*").strip()

    def usable(self, item: Item) -> bool:
        """Tell whether the answer is right and readable, and the question plain ASCII that does not show the answer."""
        question, answer = self.shown(item), self.kind.canonical(self.gold(item))
        if answer is None or not question.isascii() or not self.right(item):
            return False
        return not re.search(rf"(?<![\w.]){re.escape(answer)}(?!\w|\.\d)", question)


# Not is_leap_year, where "No" earns 3 of 4, and not the date after a January 1 of an unknown year.
_CALENDAR = ("weekday_offset", "weekday_of_date", "recurring_event_day", "count_days", "count_business_days")
_TERMS = {"max_terms": (2, 8), "max_digits": (1, 6)}


def _terms(item: Item) -> str:
    return f"{item['metadata']['num_terms']} terms"


def _factors(item: Item) -> str:
    return str(sorted(map(int, item["metadata"]["expression"].split(" * "))))


def _numbers(item: Item) -> str:
    return f"{item['metadata']['numbers']} numbers"


GENERATORS: Mapping[str, Generator] = {
    generator.dataset: generator
    for generator in (
        Generator("chain_sum", answers.INTEGER, checks.chain, _TERMS, key=_metadata("expression"), label=_terms),
        Generator(
            "basic_arithmetic",
            answers.INTEGER,
            checks.expression,
            # The package tries divisors up to the square root of a dividend: more digits can take it minutes an item.
            {"max_terms": (2, 5), "max_digits": (1, 3)},
            key=_metadata("expression"),
            label=_terms,
        ),
        Generator("products", answers.INTEGER, checks.product, _TERMS, key=_factors, label=_terms),
        Generator(
            "decimal_chain_sum", answers.DECIMAL, checks.chain, _TERMS, key=_metadata("expression"), label=_terms
        ),
        Generator("gcd", answers.INTEGER, _even_gcd, {"max_value": (100, 10**6)}, key=_in_any_order),
        Generator("lcm", answers.INTEGER, checks.lcm, {"max_value": (30, 10**6)}, key=_in_any_order),
        Generator(
            "prime_factorization",
            answers.FACTORS,
            checks.prime_factors,
            {"max_value": (100, 10**6)},
            key=_metadata("number"),
            gold=lambda item: "*".join(map(str, item["metadata"]["factors"])),
            label=lambda item: f"{len(item['metadata']['factors'])} factors",
        ),
        Generator(
            "fraction_simplification",
            answers.FRACTION,
            checks.fraction,
            {"max_value": (10, 10**6), "max_factor": (2, 10**4)},
            {"styles": ("plain",)},
        ),
        Generator("dice", answers.FRACTION, checks.dice, {"num_dice": (2, 6), "max_dice_size": (6, 30)}),
        Generator(
            "base_conversion",
            answers.DIGITS,
            checks.base_conversion,
            {"max_base": (3, 36), "max_value": (100, 10**9)},
            {"min_value": 1},  # the package writes 0 as an empty text
        ),
        Generator(
            "bitwise_arithmetic",
            answers.HEXADECIMAL,
            checks.bitwise,
            {"difficulty": (1, 3)},
            key=_metadata("problem"),
        ),
        Generator(
            "simple_equations",
            answers.INTEGER,
            checks.equation,
            {"max_terms": (2, 8), "max_value": (10, 10**6)},
            key=_equation,
        ),
        Generator("count_primes", answers.INTEGER, checks.primes, {"max_n": (100, 100_000)}),
        Generator(
            "calendar_arithmetic",
            answers.INTEGER_OR_WEEKDAY,
            checks.calendar,
            {"year": (1900, 2200), "offset_upper_bound": (30, 300)},
            {"tasks": _CALENDAR},
            key=_facts,
            label=_metadata("task"),
        ),
        Generator(
            "number_sorting",
            answers.DECIMALS,
            checks.sorting,
            {"max_numbers": (3, 50)},
            question=_without_hints,
            gold=lambda item: ", ".join(item["metadata"]["sorted_numbers"]),
            label=_numbers,
        ),
        Generator(
            "number_filtering",
            answers.DECIMALS,
            checks.filtering,
            {"max_numbers": (3, 50)},
            question=_without_hints,
            gold=lambda item: ", ".join(item["metadata"]["result"]),
            label=_numbers,
        ),
        Generator(
            "spiral_matrix",
            answers.DECIMALS,
            checks.spiral,
            {"max_n": (2, 10)},
            question=_spiral_question,
            gold=lambda item: item["answer"].replace(" ", ", "),
            label=lambda item: f"{item['metadata']['n']} rows",
        ),
        Generator(
            "word_sorting",
            answers.WORDS,
            lambda item: (
                item["metadata"]["sorted_words"]
                == sorted(item["metadata"]["original_words"], reverse=item["metadata"]["direction"] == "descending")
            ),
            {"max_words": (3, 30)},
            label=lambda item: f"{item['metadata']['num_words']} words",
        ),
        Generator(
            "spell_backward",
            answers.WORD,
            lambda item: item["metadata"]["word"] == item["answer"][::-1],
            {"max_word_len": (4, 10)},
            key=lambda item: item["metadata"]["word"].lower(),
            label=lambda item: f"{item['metadata']['word_len']} letters",
        ),
    )
}
