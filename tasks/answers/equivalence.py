"""Whether an answer's value is the gold one: the gold decides how it is compared; a third outcome is "cannot tell"."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tasks.answers.algebra import Algebra, Ratio, TooLargeError
from tasks.answers.evaluate import evaluate
from tasks.answers.latex import UnreadableError
from tasks.answers.nodes import Node
from tasks.answers.parser import parse
from tasks.answers.reading import SEPARATORS, split
from tasks.answers.relations import compare_relations
from tasks.answers.units import fixes
from tasks.answers.values import (
    Based,
    Collection,
    Expression,
    Matrix,
    Ordered,
    Relation,
    Union,
    Unparsed,
    Value,
    Words,
    parts_of,
)
from tasks.answers.words import single_letter

__all__ = ["Comparison", "is_number", "is_undone"]

_MOST_PAIRS = 400  # comparisons of the members of two collections


def is_number(value: Value) -> bool:
    """Return whether a value is a number written out, under a name or not."""
    if isinstance(value, Relation) and value.sign == "=":
        value = value.right
    return isinstance(value, Expression) and value.number is not None


def is_undone(value: Expression) -> bool:
    """Return whether a whole number is written as a quotient, a division left undone."""
    node = value.node.parts[0] if value.node.op == "negative" else value.node
    return node.op == "quotient" and value.number is not None and value.number.denominator == 1


def _several(value: Unparsed) -> bool:
    return len(split(value.tokens, SEPARATORS)[0]) > 1


def _every(outcomes: Sequence[bool | None]) -> bool | None:
    """Return False where one outcome is, else None where one is, else True."""
    if False in outcomes:
        return False
    return None if None in outcomes else True


@dataclass
class Comparison:
    """Compares values of one gold answer and one response.

    Attributes:
        question: fixes units; "" where it is not known.
        reason: why the last comparison was not equal, one line; "" where nothing beyond the values is to be said.
    """

    question: str = ""
    reason: str = ""
    algebra: Algebra = field(default_factory=Algebra)

    def equal(self, gold: Value, answer: Value) -> bool | None:
        """Return whether ``answer`` is ``gold``; None where own means cannot tell."""
        if isinstance(answer, Unparsed):
            return self._unparsed(gold, answer)
        if isinstance(gold, Collection) and not gold.braced and len(gold.items) == 1:
            gold = gold.items[0]
        if isinstance(answer, Collection) and len(answer.items) == 1 and not isinstance(gold, Collection):
            answer = answer.items[0]
        if isinstance(gold, Relation) or isinstance(answer, Relation):
            return compare_relations(self, gold, answer)
        if isinstance(answer, Collection) and not isinstance(gold, Collection):
            return self.no("several answers where one was expected")
        match gold:
            case Expression():
                return self._expression(gold, answer)
            case Words():
                return self._words(gold, answer)
            case Based():
                return self._based(gold, answer)
            case Unparsed():
                return None
            case _:
                return self._composed(gold, answer)

    def no(self, reason: str) -> bool:
        """Note why two values differ, and return False."""
        self.reason = reason
        return False

    def _unparsed(self, gold: Value, answer: Unparsed) -> bool | None:
        self.reason = answer.reason
        single = isinstance(gold, Expression) or (isinstance(gold, Unparsed) and not _several(gold))
        if is_number(gold) or isinstance(gold, Words | Based) or (single and _several(answer)):
            return False
        return None

    def _expression(self, gold: Expression, answer: Value) -> bool | None:
        if isinstance(answer, Based):
            ten = gold.number is not None and answer == Based(str(gold.number), 10)
            fixed = gold.number is not None and answer.digits == str(gold.number) and self._names_base(answer.base)
            return ten or fixed or self.no("a number in another base")
        if isinstance(answer, Words) and single_letter(answer):
            return single_letter(answer) == single_letter(gold)
        if isinstance(answer, Words):
            product = _product_of_letters(answer)
            return self._values(gold.node, product) if product else self.no("words where a value was expected")
        if not isinstance(answer, Expression):
            return self.no("not a single value")
        if answer.unit and answer.unit != gold.unit and (gold.unit or not fixes(self.question, answer.unit)):
            expected = f"in {gold.unit}" if gold.unit else "without one"
            return self.no(f"the unit is {answer.unit[:40]}, expected the value {expected}")
        if gold.number is not None:
            if answer.number is None:
                return self.no("not a number written out")
            if is_undone(answer) and answer.node != gold.node:
                return self.no("a division left undone")
            return answer.number == gold.number
        equal = self._values(gold.node, answer.node)
        decimal = answer.node.op == "number" and answer.node.value.denominator > 1
        return self.no("a decimal number where an exact value was expected") if equal is None and decimal else equal

    def _names_base(self, base: int) -> bool:
        names = "two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
        text = self.question.lower().replace("$", "").replace("-", " ")
        word = names[base - 2] if base - 2 < len(names) else str(base)
        return f"base {base}" in text or f"base {word}" in text

    def worked_out(self, *nodes: Node) -> list[Ratio] | None:
        """Return the values; None where one has none or is too large, with the reason."""
        try:
            return [evaluate(node, self.algebra) for node in nodes]
        except (TooLargeError, UnreadableError) as error:
            self.reason = str(error)
            return None

    def _values(self, gold: Node, answer: Node) -> bool | None:
        if gold == answer:
            return True
        values = self.worked_out(gold, answer)
        try:
            return None if values is None else self.algebra.equal(*values)
        except TooLargeError as error:
            self.reason = str(error)
            return None

    def _words(self, gold: Words, answer: Value) -> bool | None:
        if isinstance(answer, Words):
            return answer.text.casefold() == gold.text.casefold()
        product = _product_of_letters(gold)
        if product and isinstance(answer, Expression) and not answer.unit:
            return self._values(product, answer.node)
        letter = single_letter(gold)
        return bool(letter) and single_letter(answer).casefold() == letter.casefold()

    def _based(self, gold: Based, answer: Value) -> bool:
        if isinstance(answer, Expression) and answer.number is not None:
            if not self._names_base(gold.base):
                return self.no(f"the base {gold.base} is missing")
            return str(answer.number) == gold.digits and not answer.unit
        return answer == gold

    def _composed(self, gold: Value, answer: Value) -> bool | None:
        match gold, answer:
            case Collection(), Collection():
                return self._collections(gold, answer)
            case Collection(), _:
                return self._collections(gold, Collection((answer,), gold.braced))
            case Ordered(), Ordered():
                if (gold.left, gold.right) != (answer.left, answer.right):
                    return self.no(f"the brackets are {answer.left} {answer.right}, expected {gold.left} {gold.right}")
                return self._all(gold.items, answer.items)
            case Union(), Union():
                return self._matched(gold.parts, answer.parts)
            case Matrix(), Matrix():
                if [len(row) for row in gold.rows] != [len(row) for row in answer.rows]:
                    return self.no("a matrix of another shape")
                return self._all([c for row in gold.rows for c in row], [c for row in answer.rows for c in row])
            case _:
                return self.no("an answer of another kind")

    def _all(self, gold: Sequence[Value], answer: Sequence[Value]) -> bool | None:
        if len(gold) != len(answer):
            return self.no(f"expected {len(gold)} parts, got {len(answer)}")
        return _every([self.equal(first, second) for first, second in zip(gold, answer, strict=True)])

    def _collections(self, gold: Collection, answer: Collection) -> bool | None:
        labels = [item.label for item in answer.items if isinstance(item, Relation)]
        if not any(isinstance(item, Relation) for item in gold.items) and len(set(labels)) > 1:
            return self.no("values of several names")
        if _depth(answer) > _depth(gold):
            return self.no("answers inside an answer")
        if len(answer.items) > _MOST_PAIRS // max(1, len(gold.items)):
            return self.no("too many answers")
        first, second = gold.items, answer.items
        if gold.braced:
            first = self._distinct(first, len(first))
            second = self._distinct(second, len(first))
        return self._matched(first, second)

    def _distinct(self, items: Sequence[Value], most: int) -> tuple[Value, ...]:
        """Return the values without repetitions, at most one more than ``most``."""
        kept: list[Value] = []
        for item in items:
            if len(kept) <= most and not any(self.equal(other, item) for other in kept):
                kept.append(item)
        return tuple(kept)

    def _matched(self, gold: Sequence[Value], answer: Sequence[Value]) -> bool | None:
        """Pair every gold value with one of the answer's; sure pairs first."""
        if len(gold) != len(answer):
            return self.no(f"expected {len(gold)} values, got {len(answer)}")
        left = list(answer)
        open_ones: list[Value] = []
        for item in gold:
            found = next((place for place, other in enumerate(left) if self.equal(item, other)), None)
            if found is None:
                open_ones.append(item)
            else:
                left.pop(found)
        if not open_ones:
            return True
        possible = all(any(self.equal(item, other) is None for other in left) for item in open_ones)
        return None if possible else False


def _depth(value: Value) -> int:
    """Return how many sets, lists, tuples, unions and matrices stand inside each other."""
    deepest = max((_depth(part) for part in parts_of(value)), default=0)
    return deepest + isinstance(value, Collection | Ordered | Union | Matrix)


def _product_of_letters(words: Words) -> Node | None:
    """Return a bare ``abc`` as a product; None for any other text."""
    try:
        return parse((words.text,)) if words.bare and words.text.isalpha() else None
    except UnreadableError:
        return None
