"""Judges a program by a suite of checks: what it is asked runs in one process, what it is held against in another."""

import concurrent.futures
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import tasks.sandbox.monty as monty
import tasks.sandbox.relay as relay
import tasks.sandbox.servers as servers
from tasks.base import Verdict
from tasks.sandbox.checks import TEST_MODULES, Check, Suite
from tasks.sandbox.child.wire import WireError, encode
from tasks.sandbox.outcome import Failure, Limits, line
from tasks.sandbox.program import Program, SandboxError

__all__ = ["TRIES", "WORKERS", "Candidate", "Result", "Tier", "judge", "judge_many"]

Tier = Literal["cpython", "monty"]
TRIES = 2
_KEPT = 100  # characters of a failure's reason that reach the judge's own
_IMPORTS = f"import {', '.join(sorted(TEST_MODULES))}"
WORKERS = min(16, os.cpu_count() or 1)


@dataclass(frozen=True)
class Result:
    """The verdict of one check, or of a program that has none.

    Attributes:
        verdict: pass, wrong (another value), or what stopped the program there.
        reason: one line for a reader, "" where it passed.
    """

    verdict: Verdict
    reason: str = ""


class Candidate(Protocol):
    """A program that can be asked, in either tier."""

    def load(self, code: str) -> Failure | None:
        """Run the program's text."""
        ...

    def run(self, text: str) -> Failure | None:
        """Run statements after it, such as a data set's set-up."""
        ...

    def evaluate(self, text: str) -> Any:
        """Return an expression's value, or the failure."""
        ...

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """Return what a function returns for plain arguments, or the failure."""
        ...


def judge_many(
    programs: Sequence[tuple[str, Suite]], limits: Limits, *, tier: Tier = "cpython", whole: bool = False
) -> list[list[Result]]:
    """Return what ``judge`` gives for each program, in order; as many at a time as there are processors."""
    if len(programs) <= 1:
        return [judge(code, suite, limits, tier=tier, whole=whole) for code, suite in programs]
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as threads:
        return list(threads.map(lambda pair: judge(pair[0], pair[1], limits, tier=tier, whole=whole), programs))


def judge(code: str, suite: Suite, limits: Limits, *, tier: Tier = "cpython", whole: bool = False) -> list[Result]:
    """Judge one program.

    Args:
        code: Python source; any text.
        suite: the checks.
        limits: of the program.
        tier: "cpython", or "monty" for machines without the locks of that; what Monty lacks is "unsupported" there, and
            what it is lax about (names in annotations, the order of a set) passes.
        whole: judge all checks; else the first one that is not passed is the last one.

    Returns:
        One result a check, in order; one "infra" where the sandbox itself does not run, one failure where the program
        does not load.
    """
    if tier == "monty" and monty.forked():
        return _relayed(code, suite, limits, whole)
    reason = ""
    for _ in range(TRIES):
        try:
            return _in_monty(code, suite, limits, whole) if tier == "monty" else _in_cpython(code, suite, limits, whole)
        except (SandboxError, OSError) as error:
            reason = line(str(error))
    return [Result("infra", reason)]


def _relayed(code: str, suite: Suite, limits: Limits, whole: bool) -> list[Result]:
    try:
        return relay.call(_in_monty, code, suite, limits, whole)
    except OSError as error:
        return [Result("infra", line(str(error)))]


def _in_monty(code: str, suite: Suite, limits: Limits, whole: bool) -> list[Result]:
    import pydantic_monty

    if any(check.driver or check.expression for check in suite.checks):
        return [Result("unsupported", "tests that are more than equalities need the CPython tier")]
    try:
        with monty.checkout(limits) as session:
            return _ask(monty.InMonty(session, limits), code, suite, limits, whole)
    except pydantic_monty.MontyCrashedError as error:
        raise SandboxError(line(str(error))) from None


def _in_cpython(code: str, suite: Suite, limits: Limits, whole: bool) -> list[Result]:
    with servers.process(limits) as program:
        return _ask(servers.InCPython(program), code, suite, limits, whole)


def _ask(candidate: Candidate, code: str, suite: Suite, limits: Limits, whole: bool) -> list[Result]:
    """Judge a program in a fresh process."""
    failure = candidate.load(code) or (candidate.run(suite.setup) if suite.setup else None)
    if failure:
        return [Result(failure.verdict, failure.reason)]
    results: list[Result] = []
    for check in suite.checks:
        results.append(_check(candidate, check, suite, limits))
        if results[-1].verdict != "pass" and not whole:
            break
    return results


def _check(candidate: Candidate, check: Check, suite: Suite, limits: Limits) -> Result:
    if check.driver:
        return _drive(candidate, check, suite, limits)
    values = [candidate.evaluate(call) for call in check.calls]
    for value in values:
        if isinstance(value, Failure):
            return Result(value.verdict, value.reason)
    if not check.expression:
        right = values[0] == check.expected
        return Result("pass") if right else _wrong(check, values[0])
    with servers.process(limits) as judging:
        return _held(judging, check, suite, values)


def _held(judging: Program, check: Check, suite: Suite, values: Sequence[Any]) -> Result:
    """Evaluate the judge's side of an assertion over the program's values."""
    if failure := _prepare(judging, suite, []):
        return failure
    try:
        inputs = encode({f"_value{i}": value for i, value in enumerate(values)})
    except WireError as error:
        return Result("error", line(str(error)))
    held = judging.ask("judge", text=f"bool({check.expression})", inputs=inputs)
    if isinstance(held, Failure):
        return Result("wrong", f"{_shown(check)}: {held.reason}"[:200])
    return Result("pass") if held is True else _wrong(check, values[0])


def _drive(candidate: Candidate, check: Check, suite: Suite, limits: Limits) -> Result:
    """Run a test program that calls the candidate's functions; where a call stops it, that says why."""
    failures: list[Failure] = []

    def answer(asked: list[Any]) -> Any:
        value = candidate.call(str(asked[0]), asked[1])
        if isinstance(value, Failure):
            failures.append(value)
        return value

    with servers.process(limits) as judging:
        if failure := _prepare(judging, suite, check.names):
            return failure
        done = judging.do("run", on_ask=answer, text=check.driver)
    if not done:
        return Result("pass")
    # A test may expect a call to fail; only what it did not catch stopped it.
    stopped = next((failure for failure in reversed(failures) if failure.reason[:_KEPT] in done.reason), None)
    if stopped:
        return Result(stopped.verdict, stopped.reason)
    return Result("wrong", line(f"{_shown(check)}: {done.reason}"))


def _prepare(judging: Program, suite: Suite, names: Sequence[str]) -> Result | None:
    failure = judging.do("load", code=_IMPORTS, main=False, judged=[]) or judging.do(
        "load", code=suite.support, main=False, judged=list(names)
    )
    return Result("infra", f"the tests' own helpers do not run: {failure.reason}") if failure else None


def _wrong(check: Check, value: Any) -> Result:
    try:
        got = repr(value)[:60]
    except ValueError:  # an int of more digits than are shown
        got = f"a {type(value).__name__}"
    return Result("wrong", line(f"{_shown(check)}: got {got}"))


def _shown(check: Check) -> str:
    return " ".join(check.text.split())[:90]
