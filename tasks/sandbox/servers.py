"""The second tier: CPython programs in locked-in processes, and what this machine's locks are worth."""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tasks.sandbox.child.wire import WireError, encode
from tasks.sandbox.modules import PROGRAM_MODULES
from tasks.sandbox.outcome import Failure, Limits
from tasks.sandbox.probes import PROBES
from tasks.sandbox.program import Program, SandboxError
from tasks.sandbox.server import ServerPool

__all__ = ["UNSANDBOXED", "InCPython", "process", "self_test"]

UNSANDBOXED = "EVENGRAD_UNSANDBOXED"
"""Environment variable: "1" runs programs where the self-test fails, for machines that hold nothing of value."""


class InCPython:
    """A program in a fresh locked-in process (a ``Candidate``)."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def load(self, code: str) -> Failure | None:
        """Run the program's text."""
        return self._program.do("load", code=code, main=False, judged=[])

    def run(self, text: str) -> Failure | None:
        """Run statements after it."""
        return self._program.do("run", text=text)

    def evaluate(self, text: str) -> Any:
        """Return an expression's value, or the failure."""
        return self._program.ask("eval", text=text)

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """Return what a function returns for plain arguments, or the failure."""
        try:
            return self._program.ask("call", name=name, args=encode(list(arguments)))
        except WireError as error:
            return Failure("unsupported", f"an argument of a test does not cross: {error}")


_POOL = ServerPool(PROGRAM_MODULES)


@contextlib.contextmanager
def process(limits: Limits, stdin: bytes = b"", pool: ServerPool = _POOL) -> Iterator[Program]:
    """Give a fresh locked-in process.

    Raises:
        SandboxError: none can be had, or this machine's locks do not hold.
    """
    if broken := self_test():
        raise SandboxError(
            f"this machine does not lock programs in ({'; '.join(broken)}); {UNSANDBOXED}=1 runs them all the same"
        )
    with pool.program(limits, stdin) as program:
        yield program


_TESTING = threading.Lock()
_FOUND: list[tuple[str, ...]] = []


def self_test() -> tuple[str, ...]:
    """Return what programs can reach here that they must not, empty where all locks hold or are waived; tried once.

    Raises:
        SandboxError: no process can be started at all.
    """
    if os.environ.get(UNSANDBOXED) == "1":
        return ()
    with _TESTING:
        if not _FOUND:
            _FOUND.append(probe(_POOL))
        return _FOUND[0]


def _unlock() -> None:
    global _TESTING
    _TESTING = threading.Lock()


os.register_at_fork(after_in_child=_unlock)  # another thread of the parent may have held it


def probe(pool: ServerPool) -> tuple[str, ...]:
    """Run every probe in a pool's processes; return the names of those that got through."""
    limits = Limits(seconds=0.05, wall_seconds=5.0, memory_bytes=100_000_000)
    reached: list[str] = []
    for name, code in PROBES.items():
        with pool.program(limits) as program:
            failure = program.do("load", code=code, main=False, judged=[])
        if failure is None:
            reached.append(name)
    return tuple(reached)
