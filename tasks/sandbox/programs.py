"""Runs a program and calls one function of it: what tasks over small values need."""

from collections.abc import Sequence
from typing import Any

import tasks.sandbox.monty as monty
import tasks.sandbox.relay as relay
from tasks.sandbox.outcome import Failure, Limits, Outcome, line, not_plain

__all__ = ["run_program"]

_MAX_ARGUMENTS = 10_000_000
_TRIES = 2


def run_program(code: str, calls: Sequence[Sequence[Any]], limits: Limits | None = None, entry: str = "f") -> Outcome:
    """Run a program, then call its entry function once for each tuple of arguments, in a fresh interpreter (Monty).

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
        ValueError: ``entry`` is no identifier, or ``calls`` is not plain data.
    """
    if not entry.isidentifier():
        raise ValueError(f"entry is {entry!r}, expected the name of a function, e.g. 'f'")
    arguments = [list(call) for call in calls]
    if problem := not_plain(arguments, _MAX_ARGUMENTS):
        raise ValueError(f"calls: {problem.replace('returned', 'holds')}; pass built-in values")
    if monty.forked():
        return _relayed(code, arguments, limits, entry)
    import pydantic_monty

    reason = ""
    for _ in range(_TRIES):
        try:
            return _attempt(code, arguments, limits or Limits(), entry)
        except FileNotFoundError:
            raise
        except (pydantic_monty.MontyCrashedError, *monty.LOST) as error:
            reason = line(f"{type(error).__name__}: {error}")
    # The program is to blame only where another one runs.
    if _healthy():
        return Outcome("error", reason=f"its interpreter was lost: {reason}")
    return Outcome("infra", reason=f"the sandbox does not run: {reason}")


def _relayed(code: str, calls: list[list[Any]], limits: Limits | None, entry: str) -> Outcome:
    reason = ""
    for _ in range(_TRIES):
        try:
            return relay.call(run_program, code, calls, limits, entry)
        except OSError as error:
            reason = line(str(error))
    return Outcome("infra", reason=reason)


def _attempt(code: str, calls: list[list[Any]], limits: Limits, entry: str) -> Outcome:
    with monty.checkout(limits) as session:
        program = monty.InMonty(session, limits)
        failure = program.load(code)
        values = failure or program.call_each(entry, calls)
    if isinstance(values, Failure):
        return Outcome(values.verdict, reason=values.reason)
    if not isinstance(values, list) or len(values) != len(calls):
        return Outcome("error", reason=f"expected {len(calls)} values")
    return Outcome(None, tuple(values))


def _healthy() -> bool:
    """Say whether the sandbox runs a program that is known to be right."""
    import pydantic_monty

    try:
        return _attempt("def f(x):\n return x + 1\n", [[1]], Limits(), "f").values == (2,)
    except (pydantic_monty.MontyCrashedError, *monty.LOST):
        return False
