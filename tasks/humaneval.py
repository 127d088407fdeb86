"""HumanEval (Chen et al. 2021, arXiv:2107.03374): Python functions from a signature and a docstring.

A response either goes on where the prompt ends, or holds the whole function, in a Markdown block or alone. The tests
run outside the process that runs it; only their arguments go in.
"""

import ast
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tasks.base import Example, Score
from tasks.code_task import CodeTask, read_program
from tasks.sandbox import Check, Result, Suite, defined_names, parsed, read_checks
from tasks.sources import Field, Item, Row

__all__ = ["HumanEval"]

# Where a completion has left the function: the paper's stop sequences.
_STOP = re.compile(r"\n(?:class |def |#|@|if |print\b|import |from )")


@dataclass(frozen=True)
class HumanEval(CodeTask):
    """Functions to complete; the data set is for evaluation alone and has no train split."""

    name: ClassVar[str] = "humaneval"
    hub: ClassVar[str] = "openai/openai_humaneval"
    fields: ClassVar[tuple[Field, ...]] = (
        Field("task_id", "str"),
        Field("prompt", "str"),
        Field("canonical_solution", "str"),
        Field("test", "str"),
        Field("entry_point", "str"),
    )
    id_fields: ClassVar[tuple[str, ...]] = ("task_id",)

    def parse(self, row: Row) -> Item:
        """Take an item over; its tests must define ``check`` and its prompt the function."""
        values = row.values
        data = {
            "prompt": values["prompt"],
            "solution": values["canonical_solution"],
            "test": values["test"],
            "entry": values["entry_point"],
        }
        if data["entry"] not in defined_names(data["prompt"] + data["solution"]):
            raise ValueError(f"prompt and canonical_solution do not define {data['entry']!a}, the entry_point")
        _suite_of(data)
        return Item(data["prompt"], "", data)

    def prompt(self, example: Example) -> str:
        """Return the signature and docstring, as published."""
        return example.data["prompt"]

    def gold(self, example: Example) -> str:
        """Return the published completion."""
        return example.data["solution"]

    def program(self, example: Example, response: str) -> str | Score:
        """Return the prompt with its function completed, or followed by the whole function where a response has it."""
        code = read_program(response)
        if isinstance(code, Score):
            return code
        data = example.data
        if re.search(rf"^(?:async )?def {re.escape(data['entry'])}\b", code, re.MULTILINE):
            return f"{data['prompt']}\n\n{code}"
        end = _STOP.search(code)
        return data["prompt"] + (code[: end.start()] if end else code)

    def judge(self, programs: Sequence[tuple[Example, str]]) -> Sequence[tuple[Sequence[Result], int]]:
        """Judge programs by the published ``check``."""
        suites = [(code, _suite_of(example.data)) for example, code in programs]
        results = self.judge_suites(suites)
        return [(found, len(suite.checks)) for found, (_, suite) in zip(results, suites, strict=True)]


def _suite_of(data: Mapping[str, Any]) -> Suite:
    return _suite(data["prompt"] + data["solution"], data["test"], data["entry"])


@functools.lru_cache(maxsize=1024)
def _suite(solution: str, test: str, entry: str) -> Suite:
    """Return the checks of a ``check(candidate)``: its assertions one by one, or all of it where it does more."""
    try:
        statements = parsed(test)
    except ValueError as error:
        raise ValueError(f"test {error}") from None
    found = [node for node in statements if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if len(found) != 1 or len(found[0].args.args) != 1:
        raise ValueError("test must define check(candidate)")
    candidate = found[0].args.args[0].arg
    rest = [node for node in statements if node is not found[0]]
    body = [node for node in found[0].body if not _says_nothing(node)]
    helpers = (defined_names(solution) | defined_names(test)) - {entry}
    plain = all(isinstance(node, ast.Assert) for node in body) and body
    if plain and not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in rest):
        texts = [ast.unparse(_Renamed(candidate, entry).visit(node)) for node in body]
        return Suite(read_checks(texts, known=helpers, defined=[entry]), support=solution)
    driver = f"{test}\n\ncheck({entry})\n"
    return Suite((Check("check(candidate)", driver=driver, names=(entry,)),), support=solution)


def _says_nothing(node: ast.stmt) -> bool:
    """Tell a docstring, ``pass``, and assertions that hold of every program: of a constant, of a call and itself."""
    if isinstance(node, ast.Assert):
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            return ast.dump(test.left) == ast.dump(test.comparators[0])
        return isinstance(test, ast.Constant) and bool(test.value)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


class _Renamed(ast.NodeTransformer):
    """Puts one name in place of another."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Rename a name."""
        return ast.copy_location(ast.Name(self._new if node.id == self._old else node.id, node.ctx), node)
