"""Runs untrusted programs in pydantic-monty, an interpreter in a worker process without files, network or clock.

A program is judged by what its entry function returns: plain data, walked under a budget before anything compares or
prints it (a 28-character nested list can stand for a thousand million entries). An exit status is never a verdict.
"""

import atexit
import datetime
import functools
import os
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tasks.base import Verdict

if TYPE_CHECKING:
    import pydantic_monty

__all__ = ["Limits", "Outcome", "run_program"]

_MAX_DEPTH = 32
_MAX_ARGUMENTS = 10_000_000
_REASON_CHARACTERS = 160
_CHECKOUTS_PER_WORKER = 2000
_GRACE_SECONDS = 5.0
_TRIES = 2
_MAX_INTEGER_BITS = 4096  # an int that prints without the interpreter's limit on digits
# What crossing over raises for a value that has no counterpart here, e.g. a set of instances.
_UNCONVERTIBLE = (TypeError, ValueError, OverflowError, RecursionError)


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
        RuntimeError: this process was forked after its parent had used the sandbox, which cannot run in both.
        ValueError: ``entry`` is no identifier, or ``calls`` is not plain data.
    """
    if not entry.isidentifier():
        raise ValueError(f"entry is {entry!r}, expected the name of a function, e.g. 'f'")
    arguments = [list(call) for call in calls]
    if problem := _not_plain(arguments, _MAX_ARGUMENTS):
        raise ValueError(f"calls: {problem.replace('returned', 'holds')}; pass built-in values")
    import pydantic_monty

    limits = limits or Limits()
    reason = ""
    for _ in range(_TRIES):
        try:
            return _attempt(code, arguments, limits, entry)
        except pydantic_monty.MontyCrashedError as error:
            if error.timed_out:
                return Outcome("timeout", reason="the worker did not answer and was killed")
            reason = _line(str(error))
        except FileNotFoundError:
            raise
        except (OSError, *_UNCONVERTIBLE) as error:
            reason = _line(f"{type(error).__name__}: {error}")
    # The program is to blame only where another one runs.
    if _healthy():
        return Outcome("error", reason=f"its value or its interpreter was lost: {reason}")
    return Outcome("infra", reason=f"the sandbox does not run: {reason}")


def _attempt(code: str, calls: list[list[Any]], limits: Limits, entry: str) -> Outcome:
    import pydantic_monty

    discard = functools.partial(pydantic_monty.CollectString, limits.print_bytes)
    with _checkout(limits) as session:
        try:
            session.feed_run(code, print_callback=discard())
        except pydantic_monty.MontyError as error:
            return _failure(error, while_calling=False)
        try:
            driver = f"[{entry}(*_arguments) for _arguments in _calls]"
            values = session.feed_run(driver, inputs={"_calls": calls}, print_callback=discard())
        except pydantic_monty.MontyError as error:
            return _failure(error, while_calling=True)
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
        children: Collection[object] = ()
        if type(value) in (list, tuple, set, frozenset):
            children = cast("Collection[object]", value)
        elif type(value) is dict:
            children = cast("dict[object, object]", value).items()
        elif type(value) in (str, bytes):
            budget -= len(cast("str | bytes", value))
        elif type(value) is int:
            if cast(int, value).bit_length() > _MAX_INTEGER_BITS:
                return f"returned an int of more than {_MAX_INTEGER_BITS} bits"
        elif type(value) not in (bool, float, complex, type(None)):
            return f"returned {_line(type(value).__name__)}, expected plain data"
        budget -= len(children)
        if budget < 0:
            return "returned more data than the limit"
        if depth > _MAX_DEPTH:
            return f"returned data nested deeper than {_MAX_DEPTH}"
        stack.extend((child, depth + 1) for child in children)
    return ""


def _healthy() -> bool:
    """Say whether the sandbox runs a program that is known to be right."""
    import pydantic_monty

    try:
        return _attempt("def f(x):\n return x + 1\n", [[1]], Limits(), "f").values == (2,)
    except (pydantic_monty.MontyCrashedError, OSError, *_UNCONVERTIBLE):
        return False


class _Pool:
    """The process's worker pool: started at first use, closed at exit, unusable in a fork of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: pydantic_monty.Monty | None = None
        self._pid = -1

    def get(self) -> "pydantic_monty.Monty":
        import pydantic_monty

        with self._lock:
            if self._pool is not None and self._pid != os.getpid():
                raise RuntimeError(
                    "the sandbox was started before this process was forked; start processes by 'spawn' or "
                    "'forkserver', or fork before the first program runs"
                )
            if self._pool is None:
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
