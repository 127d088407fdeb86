"""The verdict on a final answer, and the form of an answer that equal answers share."""

import functools
import math
import re
from collections.abc import Callable

from tasks.answers.algebra import Algebra, TooLargeError
from tasks.answers.echo import echoes
from tasks.answers.equivalence import Comparison, is_number, is_undone
from tasks.answers.evaluate import evaluate
from tasks.answers.latex import UnreadableError, clean
from tasks.answers.nodes import is_constant, spell
from tasks.answers.reading import read
from tasks.answers.tokens import tokenise
from tasks.answers.unevaluated import as_radians, why_not
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
)
from tasks.base import Score, Verdict

__all__ = ["canonical", "grade", "is_numeric", "is_understood", "readable"]

_PLAIN = re.compile(r"-?(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]{1,15})")
_PASS = Score(1.0, "pass")
_CHOICE = re.compile(r"\(([A-Za-z])\)")
_SHOWN = 60  # characters of an answer in a reason
_DEEPEST = 6  # containers inside each other in a normal form


@functools.lru_cache(maxsize=4096)
def _gold(gold: str) -> tuple[str, tuple[str, ...], Value, bool] | str:
    """Return a gold answer: its text, tokens, value, whether units are read loosely; a text says what is wrong."""
    try:
        text = clean(gold)
        tokens, value = read(text)
    except UnreadableError as error:
        return str(error)
    loose = is_number(value) or (isinstance(value, Expression) and bool(value.unit))
    return text, tokens, value, loose


def readable(gold: str) -> bool:
    """Return whether ``grade`` can judge by a gold answer; one it can only compare as text counts."""
    return not isinstance(_gold(gold), str)


def is_understood(gold: str) -> bool:
    """Return whether a gold answer is read as a value of some kind, so that more than its own spelling can pass."""
    expected = _gold(gold)
    return not isinstance(expected, str) and not isinstance(expected[2], Unparsed)


def is_numeric(gold: str) -> bool:
    """Return whether a gold answer is a number written out, maybe with a unit or currency."""
    expected = _gold(gold)
    return not isinstance(expected, str) and isinstance(expected[2], Expression) and is_number(expected[2])


def grade(gold: str, answer: str, question: str = "", symbolic: Callable[[str, str], Verdict] | None = None) -> Score:
    """Judge a final answer by the gold one, which decides how they are compared (see README.md).

    Args:
        gold: the right answer as the data set has it.
        answer: what was extracted from a response.
        question: the problem's text; it fixes units, percents and bases that the gold answer leaves out.
        symbolic: asked last, with both answers cleaned, where they may be equal expressions and own means cannot tell.

    Returns:
        1 and pass; 0 and wrong; 0 and format for an answer that is empty, too long or no answer of any kind; 0 and the
        verdict of ``symbolic`` where it is not pass; NaN and infra for a gold answer that is not ``readable``.
    """
    if _PLAIN.fullmatch(gold) and _PLAIN.fullmatch(answer):
        if gold == answer or int(gold.replace(",", "")) == int(answer.replace(",", "")):
            return _PASS
        return Score(0.0, "wrong", f"expected {gold}, got {answer}")
    expected = _gold(gold)
    if isinstance(expected, str):
        return Score(math.nan, "infra", f"the gold answer cannot be read: {_ascii(expected)}")
    gold_text, tokens, value, loose = expected
    try:
        text = clean(answer)
        if tokenise(text) == tokens:
            return _PASS
        comparison = Comparison(question)
        outcome, read_answer = _compare(comparison, value, gold_text, text, loose)
    except UnreadableError as error:
        return Score(0.0, "format", _ascii(str(error)))
    if outcome and echoes(value, read_answer, text, question):
        return _refuse(gold_text, text, "the question's own expression, not worked out")
    if outcome:
        return _PASS
    kind: Verdict = "format" if isinstance(read_answer, Unparsed) else "wrong"
    if outcome is None and symbolic is not None:
        if reason := why_not(value, gold_text, read_answer, text, question):
            return _refuse(gold_text, text, reason, kind)
        return _judged(symbolic(as_radians(gold_text), as_radians(text)), gold_text, text)
    reason = comparison.reason or ("not equal as far as can be told" if outcome is None else "")
    return _refuse(gold_text, text, reason, kind)


def _compare(comparison: Comparison, gold: Value, gold_text: str, text: str, loose: bool) -> tuple[bool | None, Value]:
    """Return the outcome and the answer's value; a list is also tried with plain commas as separators."""
    answer = read(text, loose=loose)[1]
    outcome = comparison.equal(gold, answer)
    if not outcome and isinstance(gold, Collection) and "," in text:
        plain = comparison.equal(read(gold_text, thousands=False)[1], read(text, thousands=False)[1])
        outcome = True if plain else outcome
    return outcome, answer


def _refuse(gold: str, answer: str, reason: str, verdict: Verdict = "wrong") -> Score:
    shown = f"expected {_shown(gold)}, got {_shown(answer)}"
    return Score(0.0, verdict, _ascii(f"{shown}: {reason}" if reason else shown))


def _ascii(line: str) -> str:
    return line if line.isascii() else ascii(line)[1:-1].replace("\\\\", "\\")


def _shown(text: str) -> str:
    line = ascii(" ".join(text.split()))[1:-1].replace("\\\\", "\\")
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def _judged(verdict: Verdict, gold: str, answer: str) -> Score:
    if verdict == "pass":
        return _PASS
    refused = _refuse(gold, answer, "symbolic comparison", verdict)
    return Score(math.nan, verdict, refused.reason) if verdict == "infra" else refused


def canonical(answer: str, question: str = "") -> str:
    r"""Return a form that equal simple answers share, for majority votes.

    ``0.5``, ``\frac12``, ``1/2`` and ``x = 1/2`` become ``1/2``; ``1,000`` becomes ``1000``; lists and sets are sorted;
    words lose their case; a unit is dropped where the question fixes it, or where no question is given; ``2+3`` is not
    5. Never raises: what cannot be read comes back with its white space collapsed. The text can be written as UTF-8.
    """
    if _PLAIN.fullmatch(answer):
        return str(int(answer.replace(",", "")))
    plain = " ".join(answer.split())
    try:
        text = clean(answer)
        choice = _CHOICE.fullmatch(text)
        plain = (choice[1].upper() if choice else _form(read(text)[1], question, _DEEPEST)) or plain
    except (UnreadableError, TooLargeError):
        pass
    return plain.encode("utf-8", "backslashreplace").decode("utf-8")


def _form(value: Value, question: str, depth: int) -> str:
    """Return a value's normal form; "" where it has none."""
    if depth == 0:
        return ""

    def forms(values: tuple[Value, ...]) -> list[str]:
        return [_form(item, question, depth - 1) for item in values]

    match value:
        case Expression():
            number = _number(value)
            return number if not (value.unit and question) or fixes(question, value.unit) else f"{number} {value.unit}"
        case Words():
            return value.text.casefold() if len(value.text) > 1 else value.text.upper()
        case Based():
            return f"{value.digits}_{value.base}"
        case Collection():
            items = sorted(set(forms(value.items))) if value.braced else sorted(forms(value.items))
            return f"{{{', '.join(items)}}}"
        case Ordered():
            return f"{value.left}{', '.join(forms(value.items))}{value.right}"
        case Union():
            return " u ".join(sorted(forms(value.parts)))
        case Matrix():
            return "; ".join(", ".join(forms(row)) for row in value.rows)
        case Relation():
            right = _form(value.right, question, depth - 1)
            if value.sign in ("=", "in") and value.label and _names_only(value):
                return right
            return f"{value.label or _form(value.left, question, depth - 1)} {value.sign} {right}"
        case Unparsed():
            return ""


def _number(value: Expression) -> str:
    """Return the normal form of an expression; of arithmetic left undone its spelling, since it is no number."""
    if value.number is not None and not is_undone(value):
        return str(value.number)
    worked_out = evaluate(value.node, Algebra())
    return worked_out.key() if worked_out.rational() is None else spell(value.node)


def _names_only(relation: Relation) -> bool:
    """Return whether a relation only names a value: ``x = 5`` does, ``y = 2x`` is an equation."""
    right = relation.right
    return relation.sign == "in" or not isinstance(right, Expression) or is_constant(right.node)
