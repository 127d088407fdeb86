"""The sandbox's server: loads modules, locks itself in, then forks a process for each program and watches over it.

Started by ``tasks.sandbox.server`` with one socket. A request comes with three descriptors (the program's channel,
standard input, standard output); one report goes back when the program's process is gone.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

import driver  # pyright: ignore[reportMissingImports]
import isolation  # pyright: ignore[reportMissingImports]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MAX_REQUEST = 4096
_SHORTEST_WAIT = 0.002
_COMPUTING = 0.1  # share of a CPU from which on a process does not just wait
CANCEL = b"x"


def main() -> None:
    """Serve on the socket given by descriptor until the other end closes."""
    setup = json.loads(sys.argv[1])
    control = socket.socket(fileno=setup["control"])
    for name in setup["modules"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    exec(setup["warm_up"], {})
    sys.argv, sys.path[:] = [""], []
    gc.collect()
    gc.freeze()  # what is shared with the programs is not touched by their collections
    with open("/proc/self/statm") as file:
        address_bytes = int(file.read().split()[0]) * _PAGE
    layers = {"namespaces": isolation.enter_namespaces()} if setup["isolate"] else {}
    inner = os.fork()
    if inner:
        control.close()
        os.waitpid(inner, 0)
        return
    if setup["isolate"]:
        layers["files"] = isolation.hide_files(setup["empty"], layers["namespaces"])
        isolation.give_up_privileges()
    isolation.die_with_parent()  # after the change of user, which undoes it
    alone = layers.get("namespaces", False) and os.getpid() == 1
    control.send(json.dumps({"ready": layers}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, _MAX_REQUEST, 3)
        if not message:
            return
        if message == CANCEL:  # of a program that had ended by itself
            continue
        request = json.loads(message)
        control.send(json.dumps(_run(request, descriptors, control, address_bytes, alone, setup["isolate"])).encode())


def _run(
    request: dict[str, Any], descriptors: list[int], control: socket.socket, base: int, alone: bool, isolate: bool
) -> dict[str, Any]:
    """Fork a process for one program, watch it to its end, and clear away what it may have left."""
    pid = os.fork()
    if pid == 0:
        try:
            _become_program(request, descriptors, control, base, isolate)
        finally:
            os._exit(1)
    for descriptor in descriptors:
        os.close(descriptor)
    cause, cpu = _watch(pid, request, control)
    if alone:
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return {"cause": cause, "cpu_seconds": cpu}


def _become_program(
    request: dict[str, Any], descriptors: list[int], control: socket.socket, base: int, isolate: bool
) -> None:
    channel, stdin, stdout = descriptors
    isolation.die_with_parent()
    control.close()
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.close(stdin)
    os.close(stdout)
    isolation.limit(request["cpu_seconds"], base + request["memory_bytes"], request["print_bytes"])
    if isolate and request["restrict"]:
        isolation.restrict_calls()
    driver.serve(channel, request["recursion"], request["seed"])
    os._exit(0)


def _watch(pid: int, request: dict[str, Any], control: socket.socket) -> tuple[str, float]:
    """Wait for the end of a process, or bring it about; return its cause and the CPU seconds it took.

    One that waits has "wall_seconds"; one that computes, and has to share its CPU, "starved_seconds".
    """
    cpu_seconds, wall_seconds = request["cpu_seconds"], request["wall_seconds"]
    begun, handle, cause = time.monotonic(), os.pidfd_open(pid), "exit"
    end, starved = begun + wall_seconds, False
    clock = (~pid << 3) | 2  # the process's CPU clock, as clock_getcpuclockid makes it
    used = 0.0
    while True:
        used = _cpu(clock, used)
        left = min(cpu_seconds - used, end - time.monotonic())
        if left <= 0 and not starved and _COMPUTING * wall_seconds <= used < cpu_seconds:
            end, starved = begun + request["starved_seconds"], True
            continue
        if left <= 0:
            cause = "cpu" if used >= cpu_seconds else "starved" if starved else "wall"
            break
        readable, _, _ = select.select([handle, control], [], [], max(left, _SHORTEST_WAIT))
        if handle in readable:
            break
        if control in readable:  # the judge has had enough, or is gone
            cause = "cancelled"
            if control.recv(len(CANCEL)) != CANCEL:
                os._exit(0)
            break
    os.kill(pid, signal.SIGKILL)
    os.close(handle)
    _, status, usage = os.wait4(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        cause = f"signal {os.WTERMSIG(status)}"
    return cause, usage.ru_utime + usage.ru_stime


def _cpu(clock: int, before: float) -> float:
    try:
        return time.clock_gettime(clock)
    except OSError:  # it has just ended
        return before


main()
