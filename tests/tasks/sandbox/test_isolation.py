"""Locked-in processes: nothing gets out, nothing is left behind, and the pool goes on."""

import contextlib
import errno
import multiprocessing
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from tasks.sandbox import Limits, server, servers
from tasks.sandbox.modules import PROGRAM_MODULES
from tasks.sandbox.outcome import Failure
from tasks.sandbox.probes import PROBES
from tasks.sandbox.program import SandboxError
from tasks.sandbox.server import ServerPool

LIMITS = Limits(seconds=0.5, wall_seconds=4.0, memory_bytes=100_000_000)


@pytest.fixture
def pool():
    pool = ServerPool(PROGRAM_MODULES)
    yield pool
    pool.close()


def run(pool, code, *texts, limits=LIMITS):
    with pool.program(limits) as program:
        found = [program.ask("load", code=code, main=False, judged=[])]
        found += [program.ask("eval", text=text) for text in texts]
    return found


def of_server(empty):
    """Return the processes of a server: its own two, and any that a program has left. Others run tests here as well."""
    found = set()
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if empty.encode() in command:
                found.add(int(entry.name))
    return found


def of_pool(pool):
    return {pid for server in pool._all for pid in of_server(server._empty)}


def left_in_tmp():
    return [name for name in os.listdir(tempfile.gettempdir()) if "hostile" in name]


def test_every_lock_holds_here():
    assert servers.self_test() == ()


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_finds_a_lock_that_is_open(name):
    """Without isolation the same code gets through, so a probe that fails says something."""
    if name in ("takes memory without limit", "computes without limit", "changes its user", "writes files"):
        pytest.skip("bounded by a limit of the process as well, or harmful to try")
    if name in ("starts a process", "starts a thread") and os.geteuid() != 0:
        pytest.skip("bounded by a limit of the process as well, which does not bind root")
    loose = ServerPool(PROGRAM_MODULES, isolate=False)
    try:
        assert run(loose, PROBES[name])[0] is None
    finally:
        loose.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="everybody else has no rights to give up")
def test_locks_hold_where_there_are_no_rights_to_set_them_up_with():
    """The whole tier without a capability, in a user namespace of its own."""
    code = (
        "import ctypes, platform, struct, sys\n"
        f"sys.path[:0] = {sys.path!r}\n"
        "from tasks.sandbox import servers\nfrom tasks.sandbox.child.isolation import _CAPSET\n"
        "call = _CAPSET[platform.machine()]\n"
        "assert ctypes.CDLL(None).syscall(call, struct.pack('<II', 0x20080522, 0), bytes(24)) == 0\n"
        "print(servers.self_test(), servers._POOL._all[0].layers)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "() {'namespaces': True, 'files': True}", done.stderr


def test_a_program_sees_no_files_and_is_nobody(pool):
    seen = run(
        pool,
        "import os\ndef seen():\n    try: return os.listdir('/')\n    except OSError: return []",
        "seen()",
        "os.getuid() != 0 and os.geteuid() != 0",
        "len(os.environ)",
    )
    assert seen[1] == []
    if os.geteuid() == 0:
        assert seen[2] is True
    assert seen[3] <= 3


@pytest.mark.parametrize("call", ["os.kill(os.getpid(), 0)", "os.open('/nothing', os.O_RDONLY)", "os.getgroups()"])
def test_system_calls_that_computing_does_not_need_are_refused_one_by_one(pool, call):
    """An empty root and a namespace of its own would let them pass or fail otherwise."""
    code = f"import os\ndef tried():\n    try: {call}\n    except OSError as error: return error.errno\n"
    assert run(pool, code, "tried()")[1] == errno.EPERM


@pytest.mark.skipif(os.geteuid() != 0, reason="everybody else has no groups to give up")
def test_a_program_is_in_no_group_of_its_parent():
    code = (
        f"import pathlib, sys; sys.path[:0] = {sys.path!r}\n"
        "from tasks.sandbox import servers\nfrom tasks.sandbox.outcome import Limits\n"
        "with servers.process(Limits()) as program:\n"
        "    program.ask('eval', text='1+1')\n"
        "    for status in pathlib.Path('/proc').glob('[0-9]*/status'):\n"
        "        state = dict(line.split(':', 1) for line in status.read_text().splitlines())\n"
        "        if set(state['Uid'].split()) == {'65534'}: print(state['Gid'].split(), state['Groups'].split())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, extra_groups=[4, 27]
    )
    found = set(done.stdout.splitlines())
    assert found == {"['65534', '65534', '65534', '65534'] []"}, (done.stdout, done.stderr)


@pytest.mark.parametrize(("number", "verdict"), [(7, "memory"), (24, "timeout"), (11, "error"), (9, "error")])
def test_the_signal_that_ends_a_program_is_its_cause(number, verdict):
    pool = ServerPool(PROGRAM_MODULES, restrict=False)
    try:
        (failure,) = run(pool, f"import os\nos.kill(os.getpid(), {number})")
        assert failure.verdict == verdict
        assert number != 11 or "signal 11" in failure.reason
    finally:
        pool.close()


def test_what_a_program_has_started_ends_with_it(tmp_path, monkeypatch):
    """With a child that is allowed to start processes, which no other test can see."""
    child = shutil.copytree(server._CHILD, tmp_path / "child")
    text = (child / "isolation.py").read_text()
    assert text.count("        (resource.RLIMIT_NPROC, 0),\n") == 1
    (child / "isolation.py").write_text(text.replace("        (resource.RLIMIT_NPROC, 0),\n", ""))
    monkeypatch.setattr(server, "_CHILD", child)
    pool = ServerPool(PROGRAM_MODULES, restrict=False)
    try:
        code = "import os\nr, w = os.pipe()\nif os.fork() == 0: os.read(r, 1)"  # waits for ever, and computes nothing
        assert run(pool, code) == [None]
        assert run(pool, "x = 1", "x") == [None, 1]
        assert len(pool._all) == 1
        assert len(of_pool(pool)) == 2
    finally:
        pool.close()


def test_a_program_cannot_write_to_what_it_was_given(pool):
    (_, failed) = run(pool, "", "open('/x', 'w')")
    assert isinstance(failed, Failure)
    (_, failed) = run(pool, "import os", "os.write(0, b'x')")
    assert not isinstance(failed, int) or failed == 1  # its own copy of standard input, gone with it


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True: os.fork()",
        "import threading\nwhile True: threading.Thread(target=print).start()",
        "import os\ntry:\n    os.fork()\nexcept OSError: pass\nwhile True: pass",
        "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass",
        "import os, signal\nos.kill(-1, signal.SIGKILL)",
        "import os, signal\nos.kill(1, signal.SIGKILL)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        "import os\nfor d in range(64):\n    try: os.close(d)\n    except OSError: pass\nwhile True: pass",
        "import os\nfor d in range(3, 10):\n    try: os.write(d, b'\\xff' * 1000)\n    except OSError: pass",
        "import os\nfor d in range(3, 10):\n    try: os.write(d, b'\\0\\0\\0\\x0d{\"value\": 7}\\n')\n"
        "    except OSError: pass",
        "import faulthandler, ctypes\nctypes.string_at(0)",
        "a = []\nwhile True: a.append(bytearray(10**6))",
        "x = 9**9**9",
        "def f(n): return f(n + 1)\nimport sys\nsys.setrecursionlimit(10**9)\nf(0)",
        "import threading\nl = threading.Lock(); l.acquire(); l.acquire()",
        "input()",
        "import atexit, os\natexit.register(os._exit, 0)\nraise SystemExit(0)",
    ],
)
def test_nothing_is_left_of_a_hostile_program_and_the_next_one_runs(pool, code):
    run(pool, "x = 1")
    before, alarm = of_pool(pool), signal.getitimer(signal.ITIMER_REAL)[0]
    assert len(before) == 2
    found = run(pool, code, "1 + 1", limits=Limits(seconds=0.2, wall_seconds=1.5, memory_bytes=100_000_000))
    assert found[1] != 4
    assert of_pool(pool) == before
    assert not left_in_tmp()
    assert alarm - 60 <= signal.getitimer(signal.ITIMER_REAL)[0] <= alarm  # the test's own
    assert run(pool, "x = 3", "x + 1") == [None, 4]


def test_a_killed_server_is_replaced(pool):
    assert run(pool, "", "1 + 1") == [None, 2]
    os.kill(pool._all[0]._process.pid, signal.SIGKILL)
    pool._all[0]._process.wait()
    assert run(pool, "", "2 + 2") == [None, 4]


def test_a_server_that_dies_under_a_program_is_no_fault_of_the_program(pool):
    with pytest.raises(SandboxError), pool.program(LIMITS) as program:  # noqa: PT012
        assert program.ask("eval", text="1 + 1") == 2
        os.kill(min(of_pool(pool)), signal.SIGKILL)  # the outer one, with which the others die and nobody reports
        program.ask("eval", text="1 + 1")
    assert run(pool, "", "2 + 2") == [None, 4]


def test_many_servers_are_not_kept(pool):
    with contextlib.ExitStack() as stack:
        for _ in range(server._MAX_IDLE + 2):
            stack.enter_context(pool.program(LIMITS))
    assert len(pool._idle) == len(pool._all) == server._MAX_IDLE


def test_no_folder_stays_behind(pool):
    run(pool, "x = 1")
    assert not os.path.exists(pool._all[0]._empty)


def test_a_pool_that_is_closed_leaves_no_process():
    pool = ServerPool(PROGRAM_MODULES)
    run(pool, "x = 1")
    empty = pool._all[0]._empty
    assert len(of_server(empty)) == 2
    pool.close()
    assert not of_server(empty)
    assert not os.path.exists(empty)


def test_a_fork_while_the_pool_is_locked_can_use_it(pool):
    run(pool, "x = 1")
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put(run(pool, "x = 1", "x + 1")), daemon=True)
    with pool._lock:  # as another thread may hold it
        child.start()
    child.join(30)
    child.kill()
    child.join()
    assert not queue.empty()
    assert queue.get()[1] == 2
    assert run(pool, "x = 2", "x")[1] == 2


@pytest.mark.parametrize("end", ["", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_process_that_ends_in_whatever_way_leaves_no_server(end):
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from tasks.sandbox import servers\nfrom tasks.sandbox.outcome import Limits\n"
        "with servers.process(Limits()) as program:\n"
        "    print(program.ask('eval', text='1+1'), servers._POOL._all[0]._empty, flush=True)\n" + end
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    value, empty = done.stdout.split()
    assert value == "2", done.stderr
    deadline = time.monotonic() + 20
    while of_server(empty) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not of_server(empty)


def test_computing_time_counts_and_waiting_for_the_judge_does_not(pool):
    with pool.program(Limits(seconds=0.3, wall_seconds=5)) as program:
        program.ask("load", code="x = 1", main=False, judged=[])
        time.sleep(0.8)
        assert program.ask("eval", text="x + 1") == 2


def test_output_beyond_the_limit_fails(pool):
    (failed,) = run(pool, "print('a' * 10**6, flush=True)", limits=Limits(print_bytes=1000))
    assert isinstance(failed, Failure)


@pytest.fixture
def unfiltered():
    """A pool whose programs may make any system call, so that the other locks are seen."""
    pool = ServerPool(PROGRAM_MODULES, restrict=False)
    yield pool
    pool.close()


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_the_other_locks_hold_where_system_calls_are_not_restricted(unfiltered, listening):
    code = (
        "import os, socket\n"
        "def refused(call, *given):\n"
        "    try: call(*given)\n"
        "    except OSError: return True\n"
        "    return False\n"
    )
    texts = [
        "os.listdir('/') == []",
        "refused(open, '/etc/passwd')",
        "refused(open, '/x', 'w')",
        f"refused(socket.create_connection, ('127.0.0.1', {listening}), 2)",
        "os.getppid() == 1",
        "refused(os.fork)",
        "refused(lambda: [os.dup(0) for _ in range(20)])",
        "refused(os.setuid, 0) or os.getuid() != 0",
    ]
    if os.geteuid() == 0:
        texts += ["0 not in os.getresuid()", "0 not in os.getresgid()", "os.getgroups() == []"]
    found = dict(zip(texts, run(unfiltered, code, *texts)[1:], strict=True))
    assert found == dict.fromkeys(texts, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees another user's namespaces")
def test_a_server_shares_no_namespace_with_this_process(pool):
    run(pool, "x = 1")
    found = {
        kind: {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in of_pool(pool)}
        for kind in ("mnt", "uts", "ipc", "net", "pid")
    }
    for kind in ("mnt", "uts", "ipc", "net"):
        assert os.readlink(f"/proc/self/ns/{kind}") not in found[kind]
    assert len(found["pid"]) == 2  # the outer process waits for the inner one


def test_what_a_program_starts_where_it_can_ends_with_it(tmp_path, monkeypatch):
    """Without the limit that keeps a program from starting anything."""
    child = shutil.copytree(server._CHILD, tmp_path / "child")
    text = (child / "isolation.py").read_text()
    assert "(resource.RLIMIT_NPROC, 0)" in text
    (child / "isolation.py").write_text(text.replace("(resource.RLIMIT_NPROC, 0)", "(resource.RLIMIT_NPROC, 10_000)"))
    monkeypatch.setattr(server, "_CHILD", child)
    pool = ServerPool(PROGRAM_MODULES, restrict=False)
    try:
        code = "import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass"
        assert run(pool, code, "1 + 1") == [None, 2]
        assert len(of_pool(pool)) == 2
        assert run(pool, "x = 3", "x + 1") == [None, 4]
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        ("while True: pass", Limits(seconds=0.1, wall_seconds=30), "stopped after 0.2 s of computing"),
        (
            "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
            Limits(seconds=30, wall_seconds=0.5),
            "stopped after 0.5 s",
        ),
        ("while True: pass", Limits(seconds=30, wall_seconds=0.5), "stopped after 2 s"),
    ],
)
def test_computing_and_waiting_have_a_limit_each(pool, code, limits, reason):
    start = time.monotonic()
    (failed,) = run(pool, code, limits=limits)
    assert failed == Failure("timeout", reason)
    assert time.monotonic() - start < 8


def test_a_program_that_computes_slowly_on_a_busy_machine_is_no_program_that_waits(pool):
    code = "import time\nwhile time.process_time() < 0.6: pass"
    assert run(pool, code, limits=Limits(seconds=5, wall_seconds=0.4)) == [None]


def test_memory_and_recursion_have_the_limits_asked_for(pool):
    limits = Limits(memory_bytes=100_000_000, recursion=400)
    assert run(pool, "a = bytearray(50_000_000)", limits=limits) == [None]
    (failed,) = run(pool, "a = bytearray(200_000_000)", limits=limits)
    assert failed.verdict == "memory"
    found = run(pool, "def f(n): return n and f(n - 1)", "f(300)", "f(450)", limits=limits)
    assert found[:2] == [None, 0]
    assert isinstance(found[2], Failure)


def test_the_values_of_all_calls_share_a_budget(pool):
    found = run(pool, "x = [0] * 60", "x", "x", limits=Limits(values=100))
    assert found[:2] == [None, [0] * 60]
    assert isinstance(found[2], Failure)


def test_chance_and_the_order_of_sets_are_the_same_in_every_server(pool):
    other = ServerPool(PROGRAM_MODULES)
    try:
        texts = ("random.random()", "list({'pear', 'fig', 'plum', 'kiwi', 'lime', 'quince'})")
        assert run(pool, "import random", *texts) == run(other, "import random", *texts)
    finally:
        other.close()


def test_sleeping_takes_no_time(pool):
    assert run(pool, "import time\ntime.sleep(1000)", "1 + 1") == [None, 2]


def test_a_program_cannot_say_that_the_sandbox_is_broken(pool):
    frame = b'{"failure": "infra", "reason": "no sandbox"}'
    sent = len(frame).to_bytes(4) + frame
    code = f"import os\nfor d in range(3, 10):\n    try: os.write(d, {sent!r})\n    except OSError: pass"
    assert run(pool, code)[0] == Failure("error", "no sandbox")


def test_a_self_test_names_what_gets_through(monkeypatch):
    monkeypatch.setattr(servers, "PROBES", {"opens a socket": PROBES["opens a socket"], "fails": "1 / 0"})
    loose = ServerPool(PROGRAM_MODULES, isolate=False)
    try:
        assert servers.probe(loose) == ("opens a socket",)
    finally:
        loose.close()
