"""Suites of checks against programs, in both tiers."""

import asyncio
import concurrent.futures
import multiprocessing
import threading

import pytest

from tasks.sandbox import Check, Limits, Suite, judge, judge_many, read_checks, servers
from tasks.sandbox.program import SandboxError

LIMITS = Limits(seconds=1.0, wall_seconds=8.0, memory_bytes=200_000_000, recursion=1000, values=100_000)
DOUBLE = Suite(read_checks(["assert f(2) == 4", "assert f(0) == 0", "assert f(-3) == -6"]))


def verdicts(code, suite=DOUBLE, whole=True, limits=LIMITS):
    return [result.verdict for result in judge(code, suite, limits, whole)]


def test_a_right_program_passes_every_check():
    assert verdicts("def f(x): return 2 * x") == ["pass"] * 3


def test_each_check_has_its_own_verdict():
    assert verdicts("def f(x): return 4") == ["pass", "wrong", "wrong"]
    assert verdicts("def f(x): return 4", whole=False) == ["pass", "wrong"]
    assert verdicts("def f(x): return 2 * x if x else 1 / 0") == ["pass", "error", "pass"]


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        ("def f(x) return x", "format"),
        ("-" * 100_000 + "1", "format"),
        ("\x00", "format"),
        ("", "error"),
        ("raise SystemExit(0)", "error"),
        ("import sys; sys.exit(0)", "error"),
        ("import os; os._exit(0)", "error"),
        ("def f(x): return f(x)", "error"),
        ("a = [0] * 10**10", "memory"),
        ("while True: pass", "timeout"),
        ("import numpy", "unsupported"),
        ("import ctypes; ctypes.string_at(0)", "error"),
    ],
)
def test_what_stops_a_program_is_its_verdict(code, verdict):
    (result,) = judge(code, DOUBLE, Limits(seconds=0.3, wall_seconds=5, memory_bytes=100_000_000))
    assert result.verdict == verdict, result
    assert "\n" not in result.reason
    assert result.reason.isascii()


@pytest.mark.parametrize(
    "code",
    [
        "import heapq\ndef f(x): return heapq.nsmallest(1, [2 * x])[0]",
        "def g(x):\n    yield 2 * x\ndef f(x): return next(g(x))",
        "class A: pass\nclass B(A):\n    def twice(self, x): return 2 * x\ndef f(x): return B().twice(x)",
        "import cmath\ndef f(x): return int((2 * x * cmath.exp(0)).real)",
        "from collections import Counter\ndef f(x): return 2 * x + len(Counter())",
        "def f(x):\n    match x:\n        case _: return 2 * x",
        "import sys\nsys.setrecursionlimit(5000)\ndef f(x): return 2 * x",
    ],
)
def test_what_the_first_tier_lacks_passes_in_the_second(code):
    assert verdicts(code) == ["pass"] * 3


def test_the_order_of_a_set_is_that_of_cpython():
    suite = Suite(read_checks(["assert f() == " + repr(list({"pear", "fig", "plum"} - {"pear"}).__class__(["fig"]))]))
    assert verdicts("def f(): return ['fig']", suite) == ["pass"]
    numbers = Suite(read_checks([f"assert f() == {list({9, 1, 33, 4})}"]))
    assert verdicts("def f(): return list({9, 1, 33, 4})", numbers) == ["pass"]


def test_an_expression_is_judged_away_from_the_program():
    close = Suite(read_checks(["assert abs(f(3) - 1.5) < 1e-9", "assert not f(0)"]))
    assert verdicts("def f(x): return x / 2", close) == ["pass", "pass"]
    assert verdicts("abs = lambda x: 0\ndef f(x): return 1", close) == ["wrong", "wrong"]
    assert (
        verdicts("class A:\n    __sub__ = __abs__ = __lt__ = lambda *a: True\ndef f(x): return A()", close)
        != ["pass"] * 2
    )


def test_a_driver_calls_the_program_from_its_own_process():
    driver = Check(
        "loop",
        driver="import random\nfor x in random.sample(range(99), 9):\n    assert f(x) == secret(x)",
        names=("f",),
    )
    suite = Suite((driver,), support="def secret(x): return x * 7 + 3")
    assert verdicts("def f(x): return x * 7 + 3", suite) == ["pass"]
    assert verdicts("def f(x): return x * 7", suite) == ["wrong"]
    assert verdicts("def f(x): return secret(x)", suite) == ["error"]
    assert verdicts("def f(x): raise KeyError(x)", suite) == ["error"]
    assert verdicts("class A:\n    def __eq__(self, o): return True\ndef f(x): return A()", suite) != ["pass"]
    assert verdicts("def f(x):\n    while True: pass", suite, limits=Limits(seconds=0.3, wall_seconds=5)) == ["timeout"]


def test_objects_of_the_programs_own_stay_on_its_side():
    suite = Suite(
        read_checks(["assert total([Pair(1, 2), Pair(3, 4)]) == 10", "assert deep(root) == 2"]),
        setup="root = Pair(1, 2)\nroot.left = Pair(0, 0)",
    )
    code = (
        "class Pair:\n    def __init__(self, a, b): self.a, self.b = a, b\n"
        "def total(pairs): return sum(p.a + p.b for p in pairs)\n"
        "def deep(node): return 1 + (deep(node.left) if hasattr(node, 'left') else 0)\n"
    )
    assert verdicts(code, suite) == ["pass", "pass"]


def test_a_broken_test_is_infra_and_not_the_programs_fault():
    suite = Suite((Check("t", driver="f(1)", names=("f",)),), support="1 / 0")
    assert verdicts("def f(x): return x", suite) == ["infra"]


def test_no_sandbox_is_infra(monkeypatch):
    def refuse(*_):
        raise SandboxError("no processes")

    monkeypatch.setattr(servers._POOL, "program", refuse)
    (result,) = judge("def f(x): return 3", DOUBLE, LIMITS)
    assert (result.verdict, result.reason) == ("infra", "no processes")


def test_locks_that_do_not_hold_refuse_to_run(monkeypatch):
    monkeypatch.setattr(servers, "_FOUND", [("opens a socket",)])
    (result,) = judge("def f(x): return 3", DOUBLE, LIMITS)
    assert result.verdict == "infra"
    assert "opens a socket" in result.reason
    assert "EVENGRAD_UNSANDBOXED=1" in result.reason
    monkeypatch.setenv("EVENGRAD_UNSANDBOXED", "1")
    assert verdicts("def f(x): return 3", whole=False) == ["wrong"]


MIXED = [
    "def f(x): return 2 * x",
    "def f(x): return x",
    "def f(x) return",
    "while True: pass",
    "import os; os._exit(1)",
    "x",
]
EXPECTED = ["pass", "wrong", "format", "timeout", "error", "error"]
QUICK = Limits(seconds=0.2, wall_seconds=5.0, memory_bytes=100_000_000)


def _mixed():
    return [results[-1].verdict for results in judge_many([(code, DOUBLE) for code in MIXED], QUICK)]


def _last(results):
    return results[-1].verdict


def test_many_at_once_keep_their_order():
    assert _mixed() == EXPECTED


def test_verdicts_from_threads_are_the_same():
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda code: judge(code, DOUBLE, QUICK), MIXED))
    assert list(map(_last, found)) == EXPECTED


def test_verdicts_from_a_loop_are_the_same_and_the_loop_lives():
    async def main():
        direct = _mixed()
        threaded = await asyncio.gather(*(asyncio.to_thread(judge, code, DOUBLE, QUICK) for code in MIXED))
        await asyncio.sleep(0)
        return direct, list(map(_last, threaded))

    assert asyncio.run(main()) == (EXPECTED, EXPECTED)


def _report(queue):
    queue.put(_mixed())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("daemon", [True, False])
def test_verdicts_from_processes_are_the_same(method, daemon):
    assert _mixed() == EXPECTED
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    child = context.Process(target=_report, args=(queue,), daemon=daemon)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert queue.get() == EXPECTED
    assert _mixed() == EXPECTED


def test_a_thread_that_ends_takes_no_server_with_it():
    found = []
    thread = threading.Thread(target=lambda: found.append(_mixed()))
    thread.start()
    thread.join()
    assert found == [EXPECTED]
    assert _mixed() == EXPECTED
