"""Locked-in CPython processes: a pool of servers, each of which forks a process for a program.

A server costs half a second to start and a program a few milliseconds. One that dies is replaced; a process that is
forked from this one starts servers of its own.
"""

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.sandbox.outcome import Limits, line
from tasks.sandbox.program import Program, SandboxError

__all__ = ["ServerPool"]

_CHILD = Path(__file__).parent / "child"
_START_SECONDS = 60.0
_GRACE_SECONDS = 5.0
_CANCEL = b"x"
_MAX_IDLE = 2 * (os.cpu_count() or 1)
_PROGRAMS_A_SERVER = 5000  # then a fresh one, so that nothing can build up


@dataclass(frozen=True)
class _Setup:
    modules: Sequence[str]
    warm_up: str
    restrict: bool
    isolate: bool


class _Server:
    """One server process."""

    def __init__(self, setup: _Setup) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control, self.restrict, self.programs, self._empty = ours, setup.restrict, 0, ""
        self._process: subprocess.Popen[bytes] | None = None
        try:
            with theirs:
                self._empty = tempfile.mkdtemp(prefix="evengrad-empty-")
                self._process = self._started(setup, theirs)
            ours.settimeout(_START_SECONDS)
            ready = json.loads(ours.recv(4096) or b"{}")
            os.rmdir(self._empty)  # what is mounted there is no longer seen from here
            if "ready" not in ready:
                raise SandboxError(f"its server ended with status {self._process.wait(_GRACE_SECONDS)} at start")
            self.layers: dict[str, bool] = ready["ready"]
        except BaseException as error:
            self.close()
            if isinstance(error, OSError | ValueError | subprocess.SubprocessError):
                raise SandboxError(f"its server did not start: {line(str(error))}") from None
            raise

    def _started(self, setup: _Setup, control: socket.socket) -> "subprocess.Popen[bytes]":
        given = {
            "control": control.fileno(),
            "modules": list(setup.modules),
            "warm_up": setup.warm_up,
            "isolate": setup.isolate,
            "empty": self._empty,
        }
        return subprocess.Popen(
            [sys.executable, "-s", "-P", "-B", str(_CHILD), json.dumps(given)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
            cwd="/",
            pass_fds=[control.fileno()],
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        """Whether its process still runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, limits: Limits, stdin: int, stdout: int) -> socket.socket:
        """Start a program's process; return its channel."""
        ours, theirs = socket.socketpair()
        request = {
            "cpu_seconds": 2 * limits.seconds,
            "wall_seconds": limits.wall_seconds,
            "starved_seconds": limits.starved_seconds,
            "memory_bytes": limits.memory_bytes,
            "print_bytes": limits.print_bytes,
            "recursion": limits.recursion,
            "restrict": self.restrict,
            "seed": 0,
        }
        self.programs += 1
        with theirs:
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], [theirs.fileno(), stdin, stdout])
            except OSError as error:
                ours.close()
                raise SandboxError(f"its server is gone: {error}") from None
        return ours

    def report(self, seconds: float) -> dict[str, Any]:
        """End the program's process where it has not ended; return how it did."""
        self._control.settimeout(seconds)
        try:
            self._control.send(_CANCEL)
            return json.loads(self._control.recv(4096))
        except (OSError, ValueError) as error:
            raise SandboxError(f"its server does not answer: {line(str(error))}") from None

    def close(self) -> None:
        """End the server and all that it started."""
        self._control.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_SECONDS / 10)
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            os.rmdir(self._empty)

    def disown(self) -> None:
        """Forget a server of the process that this one was forked from."""
        self._control.close()
        if self._process is not None:
            self._process.returncode = 0


class ServerPool:
    """Servers of one kind, started as they are needed, one program at a time each."""

    def __init__(
        self, modules: Sequence[str], *, warm_up: str = "", restrict: bool = True, isolate: bool = True
    ) -> None:
        self._setup = _Setup(tuple(modules), warm_up, restrict, isolate)
        self._lock = threading.Lock()
        self._idle: list[_Server] = []
        self._all: list[_Server] = []
        self._layers: dict[str, bool] | None = None
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._after_fork)

    @contextlib.contextmanager
    def program(self, limits: Limits, stdin: bytes = b"") -> Iterator[Program]:
        """Start a program's process; it is gone when the context ends.

        Raises:
            SandboxError: no server can be started, or it died.
        """
        server = self._take()
        try:
            with Program(server, limits, stdin) as program:
                yield program
        except BaseException:
            self._drop(server)
            raise
        self._give_back(server)

    def _take(self) -> _Server:
        while True:
            with self._lock:
                server = self._idle.pop() if self._idle else None
            if server is None:
                return self._new()
            if server.alive:
                return server
            self._drop(server)

    def _new(self) -> _Server:
        """Start a server; it must have the locks of the first one, which have been tried."""
        server = _Server(self._setup)
        with self._lock:
            self._layers = self._layers or server.layers
            same = self._layers == server.layers
            self._all.append(server)
        if not same:
            self._drop(server)
            raise SandboxError(f"a server has other locks ({server.layers}) than the first one ({self._layers})")
        return server

    def _give_back(self, server: _Server) -> None:
        with self._lock:
            keep = server.programs < _PROGRAMS_A_SERVER and len(self._idle) < _MAX_IDLE
            if keep:
                self._idle.append(server)
        if not keep:
            self._drop(server)

    def _drop(self, server: _Server) -> None:
        with self._lock:
            if server in self._all:
                self._all.remove(server)
        server.close()

    def _after_fork(self) -> None:
        for server in self._all:
            server.disown()
        self._lock, self._idle, self._all = threading.Lock(), [], []

    def close(self) -> None:
        """End every server; the next program starts a new one."""
        with self._lock:
            servers, self._all, self._idle = self._all, [], []
        for server in servers:
            server.close()
