"""The judge's side of one program in a locked-in process: ask it for values, take its output, end it."""

import os
import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from tasks.sandbox.child.wire import WireError, decode, encode, read_frame, write_frame
from tasks.sandbox.outcome import Failure, Limits, line

__all__ = ["Host", "Program", "SandboxError"]

_FRAME_BYTES_A_VALUE = 16
_FRAME_BYTES = 4096
_GRACE_SECONDS = 10.0
_MEMORY_SIGNALS = ("signal 7",)  # SIGBUS: no page behind a mapping
_TIME_SIGNALS = ("signal 24",)  # SIGXCPU


class SandboxError(Exception):
    """The sandbox does not run; no fault of a program."""


class Host(Protocol):
    """What starts processes."""

    def start(self, limits: Limits, stdin: int, stdout: int) -> socket.socket:
        """Start a process; return its channel."""
        ...

    def report(self, seconds: float) -> dict[str, Any]:
        """End the process; return how it ended."""
        ...


class Program:
    """A process that runs one program, as a context; nothing of it is left when the context ends."""

    def __init__(self, host: Host, limits: Limits, stdin: bytes) -> None:
        self._host, self._limits, self._budget = host, limits, limits.values
        self._stdout = os.memfd_create("stdout")
        given = -1
        try:
            given = os.memfd_create("stdin")
            os.write(given, stdin)
            os.lseek(given, 0, os.SEEK_SET)
            self._channel = host.start(limits, given, self._stdout)
        except BaseException:
            os.close(self._stdout)
            raise
        finally:
            if given >= 0:
                os.close(given)
        patience = struct.pack("ll", int(limits.starved_seconds + _GRACE_SECONDS), 0)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        self._ended: Failure | None = None

    def __enter__(self) -> "Program":
        """Return the program."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the process."""
        try:
            if self._ended is None:
                self._end_process()
        finally:
            os.close(self._stdout)

    def ask(self, do: str, on_ask: Callable[[list[Any]], Any] | None = None, **arguments: Any) -> Any:
        """Have the program do something.

        Args:
            do: "load", "run", "eval", "call" or "judge" (see ``child/driver.py``).
            on_ask: answers what the program asks in between: arguments -> a value, or a ``Failure``.
            arguments: of the request, JSON values.

        Returns:
            Its value, plain data or marks that equal nothing; a ``Failure`` where there is none.

        Raises:
            SandboxError: the sandbox itself broke.
        """
        if self._ended is not None:
            return self._ended
        most = _FRAME_BYTES + _FRAME_BYTES_A_VALUE * self._limits.values
        try:
            write_frame(self._channel.fileno(), {"do": do, "with": arguments})
            while True:
                answer = read_frame(self._channel.fileno(), most)
                if on_ask is None or type(answer) is not dict or "ask" not in answer:
                    return self._value(answer)
                self._reply(on_ask(decode(answer["ask"], self._limits.values)[0]))
        except WireError as error:
            self._end_process()
            self._ended = Failure("error", line(str(error)))
        except (EOFError, OSError):
            self._ended = self._end_process()
        return self._ended

    def do(self, do: str, on_ask: Callable[[list[Any]], Any] | None = None, **arguments: Any) -> Failure | None:
        """Have the program do something that has no value; one that comes back all the same is forged and ignored."""
        outcome = self.ask(do, on_ask, **arguments)
        return outcome if isinstance(outcome, Failure) else None

    def output(self) -> bytes:
        """Return what it has written to standard output."""
        return os.pread(self._stdout, self._limits.print_bytes, 0)

    def _reply(self, value: Any) -> None:
        failed = {"failure": value.verdict, "reason": value.reason} if isinstance(value, Failure) else None
        write_frame(self._channel.fileno(), failed or {"value": encode(value)})

    def _value(self, answer: Any) -> Any:
        if type(answer) is not dict:
            raise WireError("an answer that is none")
        if "failure" in answer:
            verdict = answer["failure"] if answer["failure"] in ("format", "memory", "unsupported") else "error"
            return Failure(verdict, line(str(answer.get("reason", ""))))
        value, self._budget = decode(answer.get("value"), self._budget)
        return value

    def _end_process(self) -> Failure:
        """Bring the process to its end; return what that end means for the program."""
        self._channel.close()
        cause = str(self._host.report(_GRACE_SECONDS)["cause"])
        if cause in ("cpu", "wall", "starved", *_TIME_SIGNALS):
            waited = {"wall": self._limits.wall_seconds, "starved": self._limits.starved_seconds}
            used = f"{waited[cause]:g} s" if cause in waited else f"{2 * self._limits.seconds:g} s of computing"
            self._ended = Failure("timeout", f"stopped after {used}")
        elif cause in _MEMORY_SIGNALS:
            self._ended = Failure("memory", "no memory left")
        else:
            self._ended = Failure("error", f"the program ended its process ({cause})")
        return self._ended
