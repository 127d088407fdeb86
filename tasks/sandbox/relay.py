"""Has a call done by a fresh process, for one that was forked after its parent had started the interpreter's pool.

The relay is this package in a process of its own, with requests and replies pickled over its standard input and output;
it runs no program itself and ends when its input closes.
"""

import atexit
import contextlib
import importlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["call"]

T = TypeVar("T")

_ROOT = Path(__file__).parent.parent.parent
_MAIN = "from tasks.sandbox.relay import _serve; _serve()"


class _Relay:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Any = None
        self._pid = -1

    def call(self, module: str, name: str, arguments: tuple[Any, ...]) -> Any:
        with self._lock:
            process = self._started()
            try:
                pickle.dump((module, name, arguments), process.stdin)
                process.stdin.flush()
                failed, value = pickle.load(process.stdout)
            except BaseException as error:
                self._end(process)  # interrupted in the middle, its reply would be taken for the next one's
                if isinstance(error, EOFError | OSError | pickle.UnpicklingError):
                    raise OSError("the relay to the sandbox ended") from error
                raise
        if failed:
            raise value
        return value

    def _end(self, process: Any) -> None:
        process.kill()
        process.wait()
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        self._process = None

    def _started(self) -> Any:
        if self._process is None or self._pid != os.getpid() or self._process.poll() is not None:
            path = os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
            self._pid = os.getpid()
        return self._process

    def close(self) -> None:
        if self._process is not None and self._pid == os.getpid():
            self._end(self._process)

    def after_fork(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.returncode = 0
        self.__init__()


_RELAY = _Relay()
atexit.register(_RELAY.close)
os.register_at_fork(after_in_child=_RELAY.after_fork)


def call(function: Callable[..., T], *arguments: Any) -> T:
    """Return ``function(*arguments)``, done by the relay; one call at a time.

    Raises:
        OSError: the relay ended; the next call starts another one.
        Exception: what the function raised.
    """
    return _RELAY.call(function.__module__, function.__name__, arguments)


def _serve() -> None:
    """Answer requests until standard input closes."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            module, name, arguments = pickle.load(source)
        except EOFError:
            return
        try:
            reply = False, getattr(importlib.import_module(module), name)(*arguments)
        except Exception as error:  # noqa: BLE001 - it belongs to the caller
            reply = True, error
        pickle.dump(reply, sink)
        sink.flush()
