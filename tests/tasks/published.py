"""The published data sets, where they lie beside the project."""

import ast
import pathlib

import pytest

from tasks.sandbox import parsed

DATA = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"


def file(name):
    """Return a data set's file as text; skips where it is not there."""
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not beside the project")
    return str(DATA / name)


def emptied(code):
    """Return a program with nothing in its functions."""
    tree = ast.Module(parsed(code), [])
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = [ast.Pass()]
    return ast.unparse(tree)


def off_by_one(code, entry):
    """Return a program whose function called ``entry`` returns something that no test expects."""
    return f"{code}\n\n_right = {entry}\ndef {entry}(*a, **k):\n    return [_right(*a, **k), 'x']\n"
