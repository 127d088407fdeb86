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

__all__ = ["PROGRAM_MODULES", "ServerPool"]

PROGRAM_MODULES = [
    "abc",
    "array",
    "ast",
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "cmath",
    "collections.abc",
    "colorsys",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "html",
    "inspect",
    "io",
    "itertools",
    "json",
    "keyword",
    "locale",
    "math",
    "numbers",
    "operator",
    "pprint",
    "queue",
    "random",
    "re",
    "secrets",
    "statistics",
    "string",
    "struct",
    "textwrap",
    "threading",
    "time",
    "timeit",
    "types",
    "typing",
    "unicodedata",
    "urllib.parse",
    "uuid",
    "weakref",
    "zlib",
    "_strptime",
]
"""What programs may import: the standard library's computing modules, loaded before the doors close."""

_CHILD = Path(__file__).parent / "child"
_START_SECONDS = 60.0
_GRACE_SECONDS = 5.0
_CANCEL = b"x"
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
        self._control, self._empty = ours, tempfile.mkdtemp(prefix="evengrad-empty-")
        self.restrict, self.programs = setup.restrict, 0
        given = {
            "control": theirs.fileno(),
            "modules": list(setup.modules),
            "warm_up": setup.warm_up,
            "isolate": setup.isolate,
            "empty": self._empty,
        }
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-P", "-B", str(_CHILD), json.dumps(given)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        ours.settimeout(_START_SECONDS)
        try:
            self.layers: dict[str, bool] = json.loads(ours.recv(4096) or b"{}").get("ready", {})
        except OSError as error:
            self.close()
            raise SandboxError(f"its server did not start: {error}") from None
        if self._process.poll() is not None:
            self.close()
            raise SandboxError(f"its server ended with status {self._process.returncode} at start")

    def start(self, limits: Limits, stdin: int, stdout: int) -> socket.socket:
        """Start a program's process; return its channel."""
        ours, theirs = socket.socketpair()
        request = {
            "cpu_seconds": 2 * limits.seconds,
            "wall_seconds": limits.wall_seconds,
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
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_SECONDS / 10)
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            os.rmdir(self._empty)

    def disown(self) -> None:
        """Forget a server of the process that this one was forked from."""
        self._control.close()
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
        with self._lock:
            if self._idle:
                return self._idle.pop()
        server = _Server(self._setup)
        with self._lock:
            self._all.append(server)
        return server

    def _give_back(self, server: _Server) -> None:
        if server.programs >= _PROGRAMS_A_SERVER:
            self._drop(server)
            return
        with self._lock:
            self._idle.append(server)

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
