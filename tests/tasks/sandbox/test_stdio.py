"""Programs that read and print."""

import pytest

from tasks.sandbox import Case, Limits, judge_cases, judge_cases_many, servers
from tasks.sandbox.program import SandboxError

LIMITS = Limits(seconds=0.5, wall_seconds=5.0, memory_bytes=100_000_000, print_bytes=10_000)


def verdict(code, output, given="", checker="lines"):
    return judge_cases(code, [Case(given, output)], checker, LIMITS)[0].verdict


@pytest.mark.parametrize(
    ("code", "verdict_"),
    [
        ("print(int(input()) + int(input()))", "pass"),
        ("import sys\nprint(sum(map(int, sys.stdin)))", "pass"),
        ("import sys\nprint(sum(map(int, sys.stdin.read().split())))\nsys.exit(3)", "pass"),
        ("import sys\nsys.stdout.write('7')", "pass"),
        ("if __name__ == '__main__': print(7)", "pass"),
        ("print(8)", "wrong"),
        ("print(7); print(7)", "wrong"),
        ("import sys\nprint(7, file=sys.stderr)", "wrong"),
        ("print(7)\n1 / 0", "error"),
        ("import os\nprint(7, flush=True)\nos._exit(0)", "error"),
        ("input(); input(); input()", "error"),
        ("print(7", "format"),
        ("while True: print(7)", "error"),
        ("while True: pass", "timeout"),
        ("", "wrong"),
    ],
)
def test_a_program_is_judged_by_its_output(code, verdict_):
    assert verdict(code, "7\n", "3\n4\n") == verdict_


@pytest.mark.parametrize(
    ("checker", "expected", "got", "right"),
    [
        ("lines", "NO\nYES\nYES", "YES\nNO\nYES", False),
        ("lines", "1 2\n3\n", "1 2  \n3\n\n", True),
        ("lines", "1 2", "1  2", False),
        ("lines", "1\n 2", "1\n2", False),
        ("exact", "1\n", "1", False),
        ("exact", "1\n", "1\n", True),
        ("tokens", "1 2\n3", "1\n2 3", True),
        ("tokens", "1 2", "2 1", False),
        ("numbers", "0.3333333", "0.33333333333", True),
        ("numbers", "0.3333", "0.3334", False),
        ("numbers", "1 x", "1.0 x", True),
        ("numbers", "1", "nan", False),
        ("numbers", "1 2", "1", False),
    ],
)
def test_checkers(checker, expected, got, right):
    assert verdict(f"print({got!r}, end='')", expected, checker=checker) == ("pass" if right else "wrong")


EVEN = "def check(input, expected, output):\n    return output.strip().isdigit() and int(output) % 2 == 0"


@pytest.mark.parametrize(("printed", "expected"), [("4", "pass"), ("12", "pass"), ("3", "wrong"), ("x", "wrong")])
def test_several_answers_may_be_right(printed, expected):
    assert verdict(f"print({printed!r})", "", checker=EVEN) == expected


def test_a_checker_that_an_output_breaks_says_wrong():
    assert verdict("print(1)", "", checker="def check(input, expected, output): return 1 / 0") == "wrong"


def test_a_checker_must_say_true():
    assert verdict("print(1)", "", checker="def check(input, expected, output): return 'yes'") == "wrong"


def test_every_case_is_a_fresh_process():
    cases = [Case("1\n", "1\n"), Case("2\n", "2\n"), Case("3\n", "4\n"), Case("4\n", "4\n")]
    code = "import builtins\nn = getattr(builtins, 'n', 0)\nbuiltins.n = 1\nprint(int(input()) + n)"
    assert [r.verdict for r in judge_cases(code, cases, "lines", LIMITS, whole=True)] == [
        "pass",
        "pass",
        "wrong",
        "pass",
    ]
    assert [r.verdict for r in judge_cases(code, cases, "lines", LIMITS)] == ["pass", "pass", "wrong"]


def test_many_keep_their_order():
    programs = [(f"print({i})", [Case("", f"{i % 3}")], "lines") for i in range(6)]
    found = [results[0].verdict for results in judge_cases_many(programs, LIMITS)]
    assert found == ["pass"] * 3 + ["wrong"] * 3


def test_no_sandbox_is_infra(monkeypatch):
    def refuse(*_):
        raise SandboxError("no processes")

    monkeypatch.setattr(servers._POOL, "program", refuse)
    assert verdict("print(7)", "7") == "infra"
