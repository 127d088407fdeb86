"""The sandbox: what comes back, what stops a program, and that nothing reaches the host."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from tasks.sandbox import Limits, Outcome, monty, run_program
from tasks.sandbox.outcome import not_plain


def test_one_value_a_call_in_order():
    outcome = run_program("def f(x, y):\n return x - y", [(5, 2), (1, 9)])
    assert outcome == Outcome(None, (3, -8))


def test_values_keep_their_exact_types():
    outcome = run_program("def f(x): return x", [(v,) for v in (1, True, 1.0, "1", None, [1, (2, {3})], {"a": b"c"})])
    assert outcome.failure is None
    assert [type(v) for v in outcome.values] == [int, bool, float, str, type(None), list, dict]
    assert outcome.values[5:] == ([1, (2, {3})], {"a": b"c"})


def test_entry_may_have_another_name():
    assert run_program("def solve(x): return x+1", [(1,)], entry="solve").values == (2,)
    with pytest.raises(ValueError, match="entry is 'a b', expected"):
        run_program("", [], entry="a b")


def test_no_calls_no_values():
    assert run_program("def f(x): return x", []) == Outcome(None, ())


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("def f(x) return x", "format"),
        ("\x00", "format"),
        ("\ud800", "format"),
        ("-" * 100_000 + "1", "format"),
        ("", "error"),
        ("f = 3", "error"),
        ("def f(x): return g(x)", "error"),
        ("def f(x): return f(x)", "error"),
        ("def f(x): return print", "error"),
        ("class A: pass\ndef f(x): return [A()]", "error"),
        ("def f(x): return 10**5000", "error"),
        ("def f(x): return -(10**5000)", "error"),
        ("class A: pass\n{A()}", "error"),
        ("class A: pass\ndef f(x): return {A(): 1}", "error"),
        ("from collections import namedtuple\nA = namedtuple('A', 'x')\ndef f(x): return A(1)", "error"),
        ("raise KeyboardInterrupt", "error"),
        ("def f(x): raise TimeoutError", "error"),
        ("raise ValueError('one\\ntwo \u00e9')", "error"),
        ("assert False", "error"),
        ("import os\nos.remove('/tmp/nothing')\ndef f(x): return x", "error"),
        ("while True: pass", "timeout"),
        ("def f(x):\n while True: pass", "timeout"),
        ("a = [0] * 10**9", "memory"),
        ("def f(x): return 'a' * 10**9", "memory"),
        ("try:\n a = [0] * 10**9\nexcept MemoryError: pass\ndef f(x): return x", "memory"),
        ("def f(x): print('a' * 10**6); return x", "memory"),
        ("import ctypes\ndef f(x): return x", "unsupported"),
        ("class A(int): pass\ndef f(x): return x", "unsupported"),
        ("def f(x): yield x", "unsupported"),
        ("raise SystemExit(0)", "unsupported"),
    ],
)
def test_failure(code, failure):
    outcome = run_program(code, [(1,)], Limits(seconds=0.1))
    assert outcome.failure == failure, outcome
    assert outcome.values == ()
    assert outcome.reason
    assert outcome.reason.isascii()
    assert "\n" not in outcome.reason


def test_reasons_stay_short():
    assert len(run_program("_" * 70_000, [(1,)]).reason) < 200


def test_returned_data_is_bounded():
    limits = Limits(values=100)
    assert run_program("def f(x): return [0] * x", [(90,)], limits).failure is None
    assert run_program("def f(x): return [0] * x", [(110,)], limits).failure == "error"
    assert run_program("def f(x): return [0] * x", [(60,), (60,)], limits).failure == "error"
    assert run_program("def f(x): return [0] * x", [(45,), (45,)], limits).failure is None
    assert run_program("def f(x): return 'a' * x", [(110,)], limits).failure == "error"
    assert run_program("def f(x): return [[0] * 50] * x", [(50,)], limits).failure == "error"
    assert run_program("def f(x): return {i: i for i in range(x)}", [(60,)], limits).failure == "error"


def test_nesting_is_bounded():
    code = "def f(x):\n l = 0\n for _ in range(x): l = [l]\n return l"
    assert run_program(code, [(20,)]).failure is None
    assert run_program(code, [(40,)]).failure == "error"


def test_nothing_is_printed(capfd):
    assert run_program("print('loud')\ndef f(x):\n print('loud')\n return x", [(1,)]).values == (1,)
    assert capfd.readouterr() == ("", "")


def test_programs_share_no_state():
    assert run_program("g = 7\ndef f(x): return g", [(1,)]).values == (7,)
    assert run_program("def f(x): return g", [(1,)]).failure == "error"


def test_clock_sleep_and_chance_are_the_same_every_time():
    code = "import random, time\ntime.sleep(1000)\ndef f(x): return [random.random(), time.time()]"
    assert run_program(code, [(1,), (2,)]).values == run_program(code, [(1,), (2,)]).values
    assert run_program(code, [(1,)]).failure is None


def test_files_of_the_host_are_out_of_reach(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    assert run_program(f"def f(x): return open({str(secret)!r}).read()", [(1,)]).failure == "error"
    run_program(f"def f(x): return open({str(secret)!r}, 'w').write('gone')", [(1,)])
    assert secret.read_text() == "secret"


def test_arguments_cannot_be_replaced_by_the_program():
    code = "_calls = [[100]]\n_arguments = [100]\ndef f(x): return x"
    assert run_program(code, [(1,), (2,)]).values == (1, 2)


class _Dies:
    """Stands for a session whose worker dies at every feed, after ``left`` good ones."""

    def __init__(self, error):
        self.error = error

    def __enter__(self):
        raise self.error

    def __exit__(self, *_):
        return None


def test_a_machine_without_processes_is_infra_and_not_wrong(monkeypatch):
    monkeypatch.setattr(monty, "checkout", lambda limits: _Dies(BlockingIOError("no more processes")))
    outcome = run_program("def f(x): return x", [(1,)])
    assert (outcome.failure, outcome.values) == ("infra", ())
    assert "no more processes" in outcome.reason


def test_a_program_that_alone_breaks_the_sandbox_is_an_error(monkeypatch):
    real = monty.checkout
    monkeypatch.setattr(
        monty, "checkout", lambda limits: _Dies(OSError("died")) if limits.recursion == 7 else real(limits)
    )
    assert run_program("def f(x): return x", [(1,)], Limits(recursion=7)).failure == "error"


def test_a_missing_executable_is_said_at_once(monkeypatch):
    monkeypatch.setattr(monty, "checkout", lambda limits: _Dies(FileNotFoundError("monty")))
    with pytest.raises(FileNotFoundError):
        run_program("def f(x): return x", [(1,)])


def test_a_killed_worker_is_replaced():
    with monty.checkout(Limits()) as session:
        os.kill(session.worker_pid, signal.SIGKILL)
    assert run_program("def f(x): return x", [(1,)]).values == (1,)


def _in_child(queue):
    try:
        queue.put(run_program("def f(x): return x+1", [(1,)]).values)
    except RuntimeError as error:
        queue.put(str(error))


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_child_process_runs_programs_too(method):
    assert run_program("def f(x): return x", [(1,)]).values == (1,)
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(queue,), daemon=True)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    got = queue.get()
    assert got == (2,)
    assert run_program("def f(x): return x", [(3,)]).values == (3,)


def test_arguments_must_be_plain_data():
    with pytest.raises(ValueError, match="calls: holds object, expected plain data"):
        run_program("def f(x): return x", [(object(),)])


def test_the_interpreter_is_imported_when_first_used():
    program = (
        "import sys, tasks; tasks.make('synthesis'); print('pydantic_monty' in sys.modules, 'torch' in sys.modules)"
    )
    path = ":".join(filter(None, sys.path))
    out = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert out.stdout.strip() == "False False", out.stderr


def test_limits_are_those_asked_for():
    start = time.monotonic()
    assert run_program("while True: pass", [(1,)], Limits(seconds=0.1)).failure == "timeout"
    assert time.monotonic() - start < 5
    few = Limits(memory_bytes=4_000_000, recursion=60)
    assert run_program("def f(x): return len('a' * x)", [(10_000_000,)], few).failure == "memory"
    assert run_program("def f(x): return len('a' * x)", [(1_000_000,)], few).values == (1_000_000,)
    assert run_program("def f(x): return x and f(x - 1)", [(40,)], few).values == (0,)
    assert run_program("def f(x): return x and f(x - 1)", [(90,)], few).failure == "error"


@pytest.mark.parametrize("value", [[0] * 101, "a" * 101, [[0] * 20] * 6, dict.fromkeys(range(101)), {(1, "a" * 99)}])
def test_entries_and_characters_of_a_value_are_counted(value):
    assert not_plain(value, 100) == "returned more data than the limit"
    assert not_plain(value, 1000) == ""
