"""The libraries that the objectives are held against (U32). Where one is missing its tests fail and say what to run."""

import contextlib
import importlib
import importlib.metadata
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
PINNED = dict(re.findall(r"^(trl|verl)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
INSTALL = "run the command of the README that sets up and passes the tests"


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Take back what an import does to this process: handlers of the root logger, excepthook, warning filters."""
    root = logging.getLogger()
    handlers, level, hook = list(root.handlers), root.level, sys.excepthook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook = hook


def peer(library: str) -> ModuleType:
    """Import what speaks to ``library``, or fail with the command that installs it."""
    try:
        found = importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    wanted = PINNED[library]
    if found != wanted:
        pytest.fail(f"the parity tests need {library}=={wanted} and found {found}: {INSTALL}", pytrace=False)
    try:
        with undisturbed():
            return importlib.import_module(f"tests.objectives.parity.{library}_peer")
    except ImportError as error:
        pytest.fail(f"{library} does not import ({error}): {INSTALL}", pytrace=False)


@pytest.fixture(scope="session")
def trl() -> ModuleType:
    return peer("trl")


@pytest.fixture(scope="session")
def verl() -> ModuleType:
    return peer("verl")
