"""Judges a program by what it prints for what it reads, one fresh process a case."""

import concurrent.futures
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tasks.sandbox.servers as servers
from tasks.sandbox.judge import TRIES, WORKERS, Result
from tasks.sandbox.outcome import Failure, Limits, line
from tasks.sandbox.program import SandboxError

__all__ = ["CHECKERS", "Case", "judge_cases", "judge_cases_many"]

_INTEGER = re.compile(r"[-+]?[0-9]{1,400}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][-+]?[0-9]{1,4})?")
_TOLERANCE = 1e-6  # of the checker "numbers", absolute and relative


@dataclass(frozen=True)
class Case:
    """One run of a program.

    Attributes:
        input: standard input.
        output: what a right program prints.
    """

    input: str
    output: str


def _lines(text: str) -> list[str]:
    return [part.rstrip() for part in text.rstrip().splitlines()]


def _close(expected: str, got: str) -> bool:
    """Compare whole numbers exactly, other numbers within a tolerance, and anything else as text."""
    if expected == got or not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(got)):
        return expected == got
    a, b = float(expected), float(got)
    if _INTEGER.fullmatch(expected) and _INTEGER.fullmatch(got):
        return expected.lstrip("+") == got.lstrip("+")
    return math.isfinite(a) and math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _numbers(expected: str, got: str) -> bool:
    ours, theirs = expected.split(), got.split()
    return len(ours) == len(theirs) and all(map(_close, ours, theirs))


CHECKERS: dict[str, Callable[[str, str], bool]] = {
    "lines": lambda expected, got: _lines(expected) == _lines(got),
    "exact": lambda expected, got: expected == got,
    "tokens": lambda expected, got: expected.split() == got.split(),
    "numbers": _numbers,
}
"""(expected, got) -> right: "lines" forgives blanks at the ends of lines and of the text, "tokens" all white space,
"numbers" besides that differences of 1e-6, absolute and relative, where one of two is no whole number."""


def judge_cases_many(
    programs: Sequence[tuple[str, Sequence[Case], str]], limits: Limits, whole: bool = False
) -> list[list[Result]]:
    """Return what ``judge_cases`` gives for each (code, cases, checker), in order."""
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as threads:
        return list(threads.map(lambda run: judge_cases(run[0], run[1], run[2], limits, whole), programs))


def judge_cases(code: str, cases: Sequence[Case], checker: str, limits: Limits, whole: bool = False) -> list[Result]:
    """Run a program once a case in CPython.

    Args:
        code: Python source; any text.
        cases: at least one.
        checker: a name of ``CHECKERS``, or the source of a function ``check(input, expected, output)`` that says
            whether an output is right; it runs in a locked-in process of its own.
        limits: of each run; ``print_bytes`` bounds the output.
        whole: judge all cases up to one that takes too long; else the first that is not passed is the last one.

    Returns:
        One result a case, in order. A program's exit status and what it prints to
        standard error count for nothing.
    """
    results: list[Result] = []
    for case in cases:
        results.append(_judge(code, case, checker, limits))
        if results[-1].verdict == "timeout" or (results[-1].verdict != "pass" and not whole):
            break
    return results


def _judge(code: str, case: Case, checker: str, limits: Limits) -> Result:
    reason = ""
    for _ in range(TRIES):
        try:
            return _run(code, case, checker, limits)
        except (SandboxError, OSError) as error:
            reason = line(str(error))
    return Result("infra", reason)


def _run(code: str, case: Case, checker: str, limits: Limits) -> Result:
    with servers.process(limits, case.input.encode()) as program:
        failure = program.do("load", code=code, main=True, judged=[])
        printed = program.output()
    if failure is not None:
        return Result(failure.verdict, failure.reason)
    got = printed.decode(errors="replace")
    if checker in CHECKERS:
        right = CHECKERS[checker](case.output, got)
    else:
        right = _checked(checker, case, got, limits)
        if isinstance(right, Failure):  # it runs on right output, as the load has shown
            return Result("wrong", line(f"the checker cannot read {got[:60]!r}: {right.reason}"))
    return Result("pass") if right else Result("wrong", line(f"for input {case.input[:40]!r} got {got[:60]!r}"))


def _checked(checker: str, case: Case, got: str, limits: Limits) -> bool | Failure:
    with servers.process(limits) as program:
        failure = program.do("load", code=checker, main=False, judged=[])
        asked = servers.InCPython(program).call("check", [case.input, case.output, got]) if failure is None else failure
    return asked if isinstance(asked, Failure) else asked is True
