"""The first tier: pydantic-monty, an interpreter in a worker process without files, network, processes or clock."""

import atexit
import datetime
import functools
import os
import secrets
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.sandbox.outcome import Failure, Limits, line, not_plain

if TYPE_CHECKING:
    import pydantic_monty

__all__ = ["LOST", "InMonty", "checkout", "forked"]

_CHECKOUTS_PER_WORKER = 2000
_GRACE_SECONDS = 0.25
LOST = (OSError,)
"""What is raised, besides MontyCrashedError, where a worker or its pool is lost."""
# Bounds a value before it crosses: a dict of 50,000 integers of one hash would be built here for ten seconds. It takes
# the builtins as they are before the program runs, and has a name that the program does not know.
_GUARD = """
def {name}(value, budget, type=type, len=len, int=int, str=str, bytes=bytes, dict=dict, list=list, tuple=tuple, set=set,
           frozenset=frozenset, Error=ValueError):
    stack = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        budget -= 1
        if kind is int and not -1152921504606846976 < item < 1152921504606846976:
            budget -= 64
        elif kind in (str, bytes, list, tuple, set, frozenset):
            budget -= len(item)
        elif kind is dict:
            budget -= 2 * len(item)
        if budget < 0:
            raise Error("returned more data than the limit")
        if kind in (list, tuple, set, frozenset):
            stack.extend(item)
        elif kind is dict:
            stack.extend(item.keys())
            stack.extend(item.values())
        if kind in (dict, set, frozenset):
            for key in item:
                if type(key) not in (int, str, bytes, bool, float, type(None)):
                    budget -= 64
    return value
"""
# What crossing over raises for a value that has no counterpart here, e.g. a set of instances.
_UNCONVERTIBLE = (TypeError, ValueError, OverflowError, RecursionError)


class InMonty:
    """A program in a fresh interpreter (a ``Candidate``)."""

    def __init__(self, session: Any, limits: Limits) -> None:
        import pydantic_monty

        self._session, self._budget = session, limits.values
        self._discard = functools.partial(pydantic_monty.CollectString, limits.print_bytes)
        self._guard = f"_guard_{secrets.token_hex(8)}"
        self._feed(_GUARD.format(name=self._guard))

    def load(self, code: str) -> Failure | None:
        """Run the program's text."""
        outcome = self._feed(code, loading=True)
        return outcome if isinstance(outcome, Failure) else None

    def run(self, text: str) -> Failure | None:
        """Run statements after it."""
        outcome = self._feed(text)
        return outcome if isinstance(outcome, Failure) else None

    def evaluate(self, text: str) -> Any:
        """Return an expression's value, or the failure."""
        return self._plain(self._feed(f"{self._guard}({text}, {self._budget})"))

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """Return what a function returns for plain arguments, or the failure."""
        return self._plain(
            self._feed(f"{self._guard}({name}(*_arguments), {self._budget})", {"_arguments": list(arguments)})
        )

    def call_each(self, name: str, calls: Sequence[Sequence[Any]]) -> Any:
        """Return what a function returns for each tuple of arguments, a list, or the first failure."""
        text = f"{self._guard}([{name}(*_arguments) for _arguments in _calls], {2 * self._budget})"
        return self._plain(self._feed(text, {"_calls": calls}))

    def _feed(self, text: str, inputs: dict[str, Any] | None = None, *, loading: bool = False) -> Any:
        import pydantic_monty

        try:
            return self._session.feed_run(text, inputs=inputs, print_callback=self._discard())
        except pydantic_monty.MontyCrashedError as error:
            if error.timed_out:
                return Failure("timeout", "the worker did not answer and was killed")
            raise
        except pydantic_monty.MontyError as error:
            return _failure(error, loading)
        except _UNCONVERTIBLE as error:
            return Failure("error", f"its value was lost: {line(f'{type(error).__name__}: {error}')}")

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Failure):
            return value
        problem = not_plain(value, self._budget)
        return Failure("error", problem) if problem else value


def _failure(error: "pydantic_monty.MontyError", loading: bool) -> Failure:
    import pydantic_monty

    inner = error.exception()
    message = str(inner)
    reason = line(f"{type(inner).__name__}: {message}")
    if isinstance(error, pydantic_monty.MontySyntaxError):
        return Failure("format" if loading else "error", reason)
    if isinstance(inner, TimeoutError) and message.startswith("feed time limit exceeded"):
        return Failure("timeout", reason)
    if isinstance(inner, MemoryError):
        return Failure("memory", reason)
    beyond = message.startswith(("The monty syntax parser", "Internal error in monty"))
    if isinstance(inner, ModuleNotFoundError) or beyond or message.startswith("module '"):
        return Failure("unsupported", reason)
    return Failure("error", reason)


class _Pool:
    """The process's worker pool: started at first use, closed at exit, unusable in a fork of the process.

    Its threads do not survive a fork, and a new pool beside the remains of the old one hangs: a forked process relays.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: pydantic_monty.Monty | None = None
        self._pid = -1

    def get(self) -> "pydantic_monty.Monty":
        import pydantic_monty

        with self._lock:
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

    def after_fork(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held it

    def forked(self) -> bool:
        return self._pool is not None and self._pid != os.getpid()

    def close(self) -> None:
        if self._pool is not None and self._pid == os.getpid():
            self._pool.__exit__(None, None, None)
            self._pool = None


_POOL = _Pool()
atexit.register(_POOL.close)
os.register_at_fork(after_in_child=_POOL.after_fork)


def checkout(limits: Limits) -> "pydantic_monty.MontySession":
    """Return a fresh session: frozen clock, sleeps that take no time, a seeded random module."""
    return _POOL.get().checkout(
        limits={
            "max_feed_duration_secs": limits.seconds,
            "max_memory": limits.memory_bytes,
            "max_recursion_depth": limits.recursion,
        },
        os_policy={"datetime": datetime.datetime(2000, 1, 1), "sleep": "zero", "random_start": {"seed": 0}},
    )


def forked() -> bool:
    """Say whether a process that this one was forked from has used the interpreter, so that this one cannot."""
    return _POOL.forked()
