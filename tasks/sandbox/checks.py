"""Reads a data set's tests into checks whose expected values never reach the program that is judged.

``assert f([1, 2]) == 3`` is parted into what the program is asked, the text ``f([1, 2])``, and what the answer is held
against. What is asked is evaluated where the program runs; the rest where it does not.
"""

import ast
import builtins
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["TEST_MODULES", "Check", "Suite", "defined_names", "parsed", "read_checks"]

TEST_MODULES = frozenset(
    {"cmath", "collections", "copy", "decimal", "fractions", "itertools", "math", "random", "re", "string", "sys"}
)
"""What tests may use without importing it."""
_WRAPPERS = frozenset({"dict", "frozenset", "len", "list", "next", "repr", "set", "sorted", "str", "tuple"})


@dataclass(frozen=True)
class Check:
    """One assertion, or a whole test program.

    Attributes:
        text: as published, for the reader of a verdict.
        calls: expressions that the program is asked for, in order.
        expected: where ``expression`` is "", the value that the one call must equal, a literal.
        expression: else what the judge evaluates, with ``_value0``, ``_value1`` ... for the values; must be true.
        driver: else statements that the judge runs, which call the program's functions themselves.
        names: the functions that ``driver`` calls.
    """

    text: str
    calls: tuple[str, ...] = ()
    expected: Any = None
    expression: str = ""
    driver: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suite:
    """What a program is judged by.

    Attributes:
        checks: at least one.
        setup: statements that run where the program runs, after it.
        support: statements that run where the judge runs: helpers and imports of the tests.
    """

    checks: tuple[Check, ...]
    setup: str = ""
    support: str = ""


def read_checks(tests: Iterable[str], known: Iterable[str] = (), defined: Iterable[str] = ()) -> tuple[Check, ...]:
    """Part each test into what is asked and what is known.

    Args:
        tests: statements, usually one ``assert`` each.
        known: names that the tests' own helpers define; every other name that is neither a builtin nor a usual module
            is the program's.
        defined: names that are the program's all the same, such as a function called ``sum``.

    Returns:
        One check a test.

    Raises:
        ValueError: a test is no Python, or asks nothing of the program.
    """
    return tuple(_read(test.strip(), frozenset(known), frozenset(defined)) for test in tests)


def parsed(text: str) -> list[ast.stmt]:
    """Return the statements of a data set's Python text, without its warnings; ValueError where it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"is no Python ({error})") from None


def defined_names(code: str) -> frozenset[str]:
    """Return the functions, classes and variables of a program's top level, none where it is no Python."""
    try:
        statements = parsed(code)
    except ValueError:
        return frozenset()
    names = _Names()
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names.bound.add(statement.name)
        elif isinstance(statement, ast.Assign):
            names.visit(statement)
    return frozenset(names.bound)


def _read(text: str, known: frozenset[str], defined: frozenset[str]) -> Check:
    try:
        statements = parsed(text)
    except ValueError as error:
        raise ValueError(f"test {text[:80]!a} {error}") from None
    free = _free_names(statements)
    theirs = sorted((free - known - TEST_MODULES - frozenset(dir(builtins))) | (free & defined))
    if not theirs:
        raise ValueError(f"test {text[:80]!a} calls nothing of the program's")
    if len(statements) == 1 and isinstance(statements[0], ast.Assert):
        parter = _Parter(frozenset(theirs), known)
        rest = parter.visit(statements[0].test)
        if not _free_names([rest]) & set(theirs):
            return _parted(text, rest, parter.calls)
    return Check(text, driver=text, names=tuple(theirs))


def _parted(text: str, rest: ast.expr, calls: Sequence[str]) -> Check:
    """Return the check of an assertion whose calls are replaced by placeholders."""
    if isinstance(rest, ast.Compare) and len(rest.ops) == 1 and isinstance(rest.ops[0], ast.Eq) and len(calls) == 1:
        sides = [rest.left, rest.comparators[0]]
        for value, other in (sides, sides[::-1]):
            if isinstance(value, ast.Name) and value.id == "_value0":
                try:
                    return Check(text, tuple(calls), expected=ast.literal_eval(other))
                except ValueError:
                    break
    return Check(text, tuple(calls), expression=ast.unparse(rest))


class _Parter(ast.NodeTransformer):
    """Replaces every outermost call of the program's that stands on its own by a placeholder."""

    def __init__(self, theirs: frozenset[str], known: frozenset[str]) -> None:
        self.calls: list[str] = []
        self._theirs, self._known = theirs, known

    def visit(self, node: ast.AST) -> Any:
        """Replace or descend."""
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return node  # a call in there may hang on its variables, and may be made many times
        if isinstance(node, ast.Compare):
            sides: list[ast.expr] = [
                self._ask(side) if self._is_variable(side) else self.visit(side) for side in _sides(node)
            ]
            return ast.Compare(sides[0], node.ops, sides[1:])
        if self._is_theirs(node):
            if _free_names([node]) & self._known:
                return node  # a helper's value must not be the program's to make
            return self._ask(node)
        return super().visit(node)

    def _ask(self, node: ast.AST) -> ast.Name:
        self.calls.append(ast.unparse(node))
        return ast.Name(id=f"_value{len(self.calls) - 1}", ctx=ast.Load())

    def _is_variable(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in self._theirs

    def _is_theirs(self, node: ast.AST) -> bool:
        """Tell a call of the program's, an attribute of its value, and one in a plain wrapper such as ``list(f(x))``.

        A generator, say, does not cross, and what ``list`` makes of it does.
        """
        if isinstance(node, ast.Attribute | ast.Subscript):
            return self._is_theirs(node.value) and (isinstance(node, ast.Attribute) or _is_literal(node.slice))
        if not isinstance(node, ast.Call):
            return False
        if _root(node.func) in self._theirs:
            return True
        wraps = isinstance(node.func, ast.Name) and node.func.id in _WRAPPERS and not node.keywords
        return wraps and len(node.args) == 1 and self._is_theirs(node.args[0])


def _sides(node: ast.Compare) -> list[ast.expr]:
    return [node.left, *node.comparators]


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def _root(node: ast.expr) -> str:
    """Return the name that an attribute chain or a call starts from, "" where it starts from none."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


@dataclass
class _Names(ast.NodeVisitor):
    """Collects the names that are read and those that are bound."""

    read: set[str] = field(default_factory=set[str])
    bound: set[str] = field(default_factory=set[str])

    def visit_Name(self, node: ast.Name) -> None:
        (self.read if isinstance(node.ctx, ast.Load) else self.bound).add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        self.bound.add(node.arg)

    def visit_alias(self, node: ast.alias) -> None:
        self.bound.add((node.asname or node.name).partition(".")[0])

    def _define(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self.bound.add(node.name)
        self.generic_visit(node)

    visit_FunctionDef = visit_ClassDef = _define  # noqa: N815


def _free_names(nodes: Sequence[ast.AST]) -> set[str]:
    names = _Names()
    for node in nodes:
        names.visit(node)
    return names.read - names.bound
