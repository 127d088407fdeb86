"""Runs untrusted programs in pydantic-monty, an interpreter in a worker process without files, network or clock.

A program is judged by what its entry function returns: plain data, walked under a budget before anything compares or
prints it (a 28-character nested list can stand for a thousand million entries). An exit status is never a verdict.
"""

import atexit
import datetime
import functools
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.base import Verdict

if TYPE_CHECKING:
    import pydantic_monty

__all__ = ["Limits", "Outcome", "run_program"]

_MAX_DEPTH = 32
_REASON_CHARACTERS = 160
_CHECKOUTS_PER_WORKER = 2000
_GRACE_SECONDS = 5.0
_TRIES = 2


@dataclass(frozen=True)
class Limits:
    """What one program may use.

    Attributes:
        seconds: running time of the program text, and again of all its calls together; generous, since a loaded
            machine must not turn a right program into a wrong one.
        memory_bytes: heap of the interpreter.
        recursion: calls on the stack.
        print_bytes: output that is thrown away before it counts as too much memory.
        values: entries and characters of all returned values together.
    """

    seconds: float = 0.5
    memory_bytes: int = 20_000_000
    recursion: int = 200
    print_bytes: int = 65_536
    values: int = 20_000


@dataclass(frozen=True)
class Outcome:
    """What a program did.

    Attributes:
        failure: None where every call returned plain data, else the verdict that this failure is.
        values: one value a call, of exact built-in types; empty after a failure.
        reason: one line for a reader.
    """

    failure: Verdict | None
    values: tuple[Any, ...] = ()
    reason: str = ""


def run_program(code: str, calls: Sequence[Sequence[Any]], limits: Limits | None = None, entry: str = "f") -> Outcome:
    """Run a program, then call its entry function once for each tuple of arguments, in a fresh interpreter.

    Args:
        code: Python source that defines ``entry``; any text.
        calls: arguments of each call, plain data.
        limits: None for the defaults.
        entry: name of the function.

    Returns:
        The values, or the failure: format (not Python), error (raised, no such function, or not plain data), timeout,
        memory, unsupported (beyond this interpreter, not necessarily wrong), infra (the sandbox itself is broken).

    Raises:
        ImportError: pydantic-monty is not installed.
        FileNotFoundError: its executable is missing.
        ValueError: ``entry`` is no identifier.
    """
    if not entry.isidentifier():
        raise ValueError(f"entry is {entry!r}, expected the name of a function, e.g. 'f'")
    import pydantic_monty

    limits = limits or Limits()
    reason = ""
    for _ in range(_TRIES):
        try:
            return _attempt(code, calls, limits, entry)
        except pydantic_monty.MontyCrashedError as error:
            if error.timed_out:
                return Outcome("timeout", reason="the worker did not answer and was killed")
            reason = _line(str(error))
        except (FileNotFoundError, ImportError):
            raise
        except OSError as error:
            reason = _line(str(error))
    if _healthy():
        return Outcome("error", reason=f"killed its interpreter {_TRIES} times: {reason}")
    return Outcome("infra", reason=f"the sandbox does not run: {reason}")


def _attempt(code: str, calls: Sequence[Sequence[Any]], limits: Limits, entry: str) -> Outcome:
    import pydantic_monty

    discard = functools.partial(pydantic_monty.CollectString, limits.print_bytes)
    with _checkout(limits) as session:
        try:
            session.feed_run(code, print_callback=discard())
        except pydantic_monty.MontyError as error:
            return _failure(error, while_calling=False)
        except ValueError as error:  # an integer too long to cross, as value of the last line
            return Outcome("error", reason=_line(str(error)))
        try:
            driver = f"[{entry}(*_arguments) for _arguments in _calls]"
            values = session.feed_run(driver, inputs={"_calls": [list(c) for c in calls]}, print_callback=discard())
        except pydantic_monty.MontyError as error:
            return _failure(error, while_calling=True)
        except ValueError as error:
            return Outcome("error", reason=_line(str(error)))
    problem = _not_plain(values, limits.values)
    if problem or not isinstance(values, list) or len(values) != len(calls):
        return Outcome("error", reason=problem or f"expected {len(calls)} values")
    return Outcome(None, tuple(values))


def _failure(error: "pydantic_monty.MontyError", while_calling: bool) -> Outcome:
    """Return the verdict of an exception; raises it where the worker died, which the caller handles."""
    import pydantic_monty

    if isinstance(error, pydantic_monty.MontyCrashedError):
        raise error
    inner = error.exception()
    message = str(inner)
    reason = _line(f"{type(inner).__name__}: {message}")
    if isinstance(error, pydantic_monty.MontySyntaxError):
        return Outcome("error" if while_calling else "format", reason=reason)
    if isinstance(inner, TimeoutError) and message.startswith("feed time limit exceeded"):
        return Outcome("timeout", reason=reason)
    if isinstance(inner, MemoryError):
        return Outcome("memory", reason=reason)
    beyond = message.startswith(("The monty syntax parser", "Internal error in monty"))
    if isinstance(inner, ModuleNotFoundError) or beyond or message.startswith("module '"):
        return Outcome("unsupported", reason=reason)
    return Outcome("error", reason=reason)


def _line(text: str) -> str:
    """Return ``text`` as one short line of printable ASCII."""
    return ascii(text[:_REASON_CHARACTERS])[1:-1]


def _not_plain(root: object, budget: int) -> str:
    """Return why a value is no plain data of bounded size, "" where it is."""
    stack: list[tuple[object, int]] = [(root, 0)]
    while stack:
        value, depth = stack.pop()
        kind = type(value)
        budget -= 1
        if kind in (str, bytes):
            budget -= len(value)  # pyright: ignore[reportArgumentType]
        elif kind in (list, tuple, set, frozenset, dict):
            children = value.items() if isinstance(value, dict) else value
            budget -= len(children)  # pyright: ignore[reportArgumentType]
            if budget >= 0:
                stack.extend((child, depth + 1) for child in children)  # pyright: ignore[reportGeneralTypeIssues]
        elif kind not in (int, bool, float, complex, type(None)):
            return f"returned {kind.__name__}, expected plain data"
        if budget < 0:
            return "returned more data than the limit"
        if depth > _MAX_DEPTH:
            return f"returned data nested deeper than {_MAX_DEPTH}"
    return ""


def _healthy() -> bool:
    """Say whether the sandbox runs a program that is known to be right."""
    import pydantic_monty

    try:
        return _attempt("def f(x):\n return x + 1\n", [(1,)], Limits(), "f").values == (2,)
    except (pydantic_monty.MontyCrashedError, OSError):
        return False


class _Pool:
    """The process's worker pool: started at first use, one a process also after a fork, closed at exit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: pydantic_monty.Monty | None = None
        self._pid = -1

    def get(self) -> "pydantic_monty.Monty":
        import pydantic_monty

        with self._lock:
            if self._pool is None or self._pid != os.getpid():
                pool = pydantic_monty.Monty(
                    request_timeout=None,
                    checkout_timeout=60.0,
                    max_checkouts_per_worker=_CHECKOUTS_PER_WORKER,
                    feed_duration_limit_grace=_GRACE_SECONDS,
                )
                pool.__enter__()
                self._pool, self._pid = pool, os.getpid()
            return self._pool

    def close(self) -> None:
        if self._pool is not None and self._pid == os.getpid():
            self._pool.__exit__(None, None, None)
        self._pool = None


_POOL = _Pool()
atexit.register(_POOL.close)


def _checkout(limits: Limits) -> "pydantic_monty.MontySession":
    """Return a fresh session: frozen clock, sleeps that take no time, a seeded random module."""
    return _POOL.get().checkout(
        limits={
            "max_feed_duration_secs": limits.seconds,
            "max_memory": limits.memory_bytes,
            "max_recursion_depth": limits.recursion,
        },
        os_policy={"datetime": datetime.datetime(2000, 1, 1), "sleep": "zero", "random_start": {"seed": 0}},
    )
