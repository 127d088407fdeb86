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
    return [result.verdict for result in judge(code, suite, limits, whole=whole)]


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


CLASSES = (
    "class A: pass\nclass B(A):\n    def twice(self, x): return 2 * x\ndef f(x): return B().twice(x)",
    "from __future__ import annotations\ndef f(x: Unknown) -> Unknown: return 2 * x",
    "from dataclasses import dataclass\n@dataclass\nclass N:\n    v: int\n    nxt: 'N' = None\n"
    "def f(x): return N(2 * x).v",
    "import sys\ndef f(x): return 2 * x if sys.modules[__name__].f is f else 0",
)


def test_the_first_tier_alone_says_what_it_lacks():
    def verdicts_of(code, suite=DOUBLE):
        return [result.verdict for result in judge(code, suite, LIMITS, tier="monty", whole=True)]

    assert verdicts_of("def f(x): return 2 * x") == ["pass"] * 3
    assert verdicts_of("def f(x): return x") == ["wrong", "pass", "wrong"]
    assert verdicts_of("def f(x): yield x") == ["unsupported"]
    assert verdicts_of("def f(x): return 2 * x", Suite(read_checks(["assert abs(f(1)) < 3"]))) == ["unsupported"]


def test_what_python_refuses_does_not_pass():
    """Monty is lax about these."""
    assert verdicts("def f(x: List[int]): return 2 * x") == ["error"]
    ordered = Suite(read_checks(["assert f([3, 20, 3, 1]) == [3, 20, 1]"]))
    assert verdicts("def f(x): return list(set(x))", ordered) == ["wrong"]


@pytest.mark.parametrize("code", CLASSES)
def test_programs_of_every_style_pass(code):
    assert verdicts(code) == ["pass"] * 3


@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("def f(): return {'a': 1}.keys()", "assert f() == {'a'}"),
        ("def f(): return {'a': 1}.items()", "assert f() == {('a', 1)}"),
        ("from decimal import Decimal\ndef f(): return Decimal('1.5')", "assert f() == 1.5"),
        ("from collections import ChainMap\ndef f(): return ChainMap({1: 2})", "assert f() == {1: 2}"),
        ("from collections import UserList\ndef f(): return UserList([1])", "assert f() == [1]"),
        ("def f(): return memoryview(b'ab')", "assert f() == b'ab'"),
        ("def f():\n    yield 1\n    yield 2", "assert list(f()) == [1, 2]"),
        ("from collections import deque\ndef f(): return deque([1])", "assert list(f()) == [1]"),
        ("class A: total = 3\ndef f(): return A()", "assert f().total == 3"),
    ],
)
def test_values_that_python_holds_for_equal_are(code, test):
    assert verdicts(code, Suite(read_checks([test]))) == ["pass"]


FORGED = [
    '{"value":' + '{"list":[' * 400 + "]}" * 400 + "}",
    '{"value":{"fraction":["1e5000"]}}',
    '{"value":{"fraction":["1e30000000"]}}',
    '{"value":{"set":[' + ",".join(str(k * (2**61 - 1)) for k in range(5000)) + "]}}",
    '{"value":{"set":[' + ",".join(f'{{"complex":[{-1000003.0 * k},{float(k)}]}}' for k in range(2000)) + "]}}",
    '{"value":' + "9" * 5000 + "}",
    '{"value":{"decimal":"' + "9" * 5000 + '"}}',
    '{"value":{"decimal":"1e999999999"}}',
    '{"failure":"infra","reason":"x"}',
    '{"ask":[1]}',
    "[]",
    "3",
]


@pytest.mark.parametrize("frame", FORGED, ids=range(len(FORGED)))
def test_a_forged_frame_is_no_pass_no_infra_and_no_exception(frame):
    code = (
        "import os, struct\n"
        f"text = {frame!r}.encode()\n"
        "data = struct.pack('>I', len(text)) + text\n"
        "def f(x):\n    os.write(3, data)\n    return 1\n"
    )
    for result in judge(code, DOUBLE, Limits(seconds=1.0, wall_seconds=8.0, values=200_000), whole=True):
        assert result.verdict not in ("pass", "infra")
        assert len(result.reason) < 300


@pytest.mark.parametrize(
    "code",
    [
        "import heapq\ndef f(x): return heapq.nsmallest(1, [2 * x])[0]",
        "def g(x):\n    yield 2 * x\ndef f(x): return next(g(x))",
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
    monkeypatch.setenv("EVENGRAD_UNSANDBOXED", "0")
    assert verdicts("def f(x): return 3") == ["infra"]
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


@pytest.mark.parametrize("end", ["exit()", "raise SystemExit", "import sys; sys.exit(0)"])
def test_a_program_that_exits_has_no_function_to_call(end):
    assert verdicts(f"def f(x): return 2 * x\n{end}") == ["error"]


def test_what_a_program_does_as_the_main_one_is_left_out_where_its_functions_are_called():
    code = "def f(x): return 2 * x\nif __name__ == '__main__':\n    def f(x): return int(input())"
    assert verdicts(code) == ["pass"] * 3


def test_a_thread_that_ends_takes_no_server_with_it():
    found = []
    thread = threading.Thread(target=lambda: found.append(_mixed()))
    thread.start()
    thread.join()
    assert found == [EXPECTED]
    assert _mixed() == EXPECTED


def test_a_value_that_an_assertion_cannot_take_is_wrong_and_never_masked():
    close = Suite(read_checks(["assert abs(f(3) - 1.5) < 1e-9", "assert not f(0)"]))
    assert verdicts("class A: pass\ndef f(x): return A()", close) == ["wrong", "wrong"]
    assert verdicts("def f(x): return 'x'", close) == ["wrong", "wrong"]


def test_helpers_of_the_tests_never_stand_in_for_a_value():
    suite = Suite(read_checks(["assert abs(f(3) - 6) < 1e-9"]), support="_value0 = 6")
    assert verdicts("def f(x): return 100", suite) == ["wrong"]
    assert verdicts("def f(x): return 6", suite) == ["pass"]


def test_values_are_compared_and_not_how_they_are_written():
    assert verdicts("def f(x): return str(2 * x)") == ["wrong"] * 3
    assert verdicts("def f(x): return 2.0 * x") == ["pass"] * 3


def _report_monty(queue):
    queue.put([judge(code, DOUBLE, QUICK, tier="monty")[-1].verdict for code in MIXED[:4]])


def test_a_forked_process_has_the_verdicts_of_its_parent_in_monty_too():
    here = [judge(code, DOUBLE, QUICK, tier="monty")[-1].verdict for code in MIXED[:4]]
    assert here == EXPECTED[:4]
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_report_monty, args=(queue,))
    child.start()
    child.join(30)
    child.kill()
    child.join()
    assert not queue.empty()
    assert queue.get() == here
