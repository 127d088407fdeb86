"""Runs one program inside the sandbox and answers its judge; trusts nothing that the program leaves behind.

The program shares this process, so it can forge any answer. That gains it nothing: what is right is known outside only.
"""

import atexit
import functools
import random
import sys
import time
import types
from typing import Any

from wire import decode, encode, read_frame, write_frame  # pyright: ignore[reportMissingImports]

__all__ = ["serve"]

_MAX_REASON = 160
_MAX_REQUEST_BYTES = 64_000_000
_MAX_REQUEST_ENTRIES = 10_000_000


def serve(channel: int, recursion: int, seed: int) -> None:
    """Answer requests on ``channel`` until its other end closes.

    A request is {"do": name of a verb, "with": its arguments}, the answer {"value": ...} or {"failure": verdict,
    "reason": ...}.
    """
    sys.setrecursionlimit(recursion)
    random.seed(seed)
    time.sleep = lambda seconds: None  # sleeping is no work, and waiting for it none either
    program = _Program(channel)
    while True:
        try:
            request = read_frame(channel, _MAX_REQUEST_BYTES)
        except EOFError:
            return
        write_frame(channel, program.answer(request))


class _Program:
    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._globals: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked; whatever the program raises becomes a failure."""
        try:
            return {"value": getattr(self, f"_{request['do']}")(**request["with"])}
        except SyntaxError as error:
            return _failure("format" if request["do"] == "load" else "error", error)
        except MemoryError as error:
            return _failure("memory", error)
        except ModuleNotFoundError as error:
            return _failure("unsupported", error)
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are the program's own
            return _failure("error", error)

    def _load(self, code: str, main: bool, judged: list[str]) -> None:
        """Run the program's text; ``judged`` names functions that a judge's text may call, answered from outside."""
        module = types.ModuleType("__main__" if main else "program")
        module.__dict__.update(self._globals, __name__=module.__name__, __builtins__=__builtins__)
        sys.modules[module.__name__], self._globals = module, module.__dict__
        compiled = _compiled(code, "<program>", "exec")
        try:
            exec(compiled, self._globals)
        except SystemExit:
            if not main:
                raise
        finally:
            if main:
                atexit._run_exitfuncs()
                sys.stdout.flush()
        # After the text, which may define a stub under such a name.
        self._globals.update({name: functools.partial(self._ask, name) for name in judged})

    def _eval(self, text: str) -> Any:
        return encode(eval(_compiled(text, "<test>", "eval"), self._globals))

    def _run(self, text: str) -> None:
        exec(_compiled(text, "<setup>", "exec"), self._globals)

    def _call(self, name: str, args: Any) -> Any:
        values, _ = decode(args, _MAX_REQUEST_ENTRIES)
        return encode(self._globals[name](*values))

    def _judge(self, text: str, inputs: Any) -> Any:
        """Evaluate a judge's expression over values from outside."""
        values, _ = decode(inputs, _MAX_REQUEST_ENTRIES)
        return encode(eval(_compiled(text, "<test>", "eval"), {**self._globals, **values}))

    def _ask(self, name: str, *args: Any) -> Any:
        """Have a function of another program called: the judge's side of a test."""
        write_frame(self._channel, {"ask": encode([name, list(args)])})
        reply = read_frame(self._channel, _MAX_REQUEST_BYTES)
        if "failure" in reply:
            raise RuntimeError(reply["reason"])
        return decode(reply["value"], _MAX_REQUEST_ENTRIES)[0]


def _compiled(text: str, name: str, mode: str) -> Any:
    try:
        return compile(text, name, mode, dont_inherit=True)
    except (MemoryError, OverflowError, RecursionError, ValueError) as error:  # what the parser raises on bombs
        raise SyntaxError(str(error)[:_MAX_REASON] or "nested too deep for the parser") from None


def _failure(verdict: str, error: BaseException) -> dict[str, str]:
    try:
        text = f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - an exception's own text may raise anything
        text = "an exception whose text cannot be shown"
    return {"failure": verdict, "reason": ascii(text[:_MAX_REASON])[1:-1]}
