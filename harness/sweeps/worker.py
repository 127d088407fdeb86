"""A worker process: takes cells as JSON lines on standard input, answers with JSON lines on standard output.

It ends at once when its parent does; what it was writing is then cut back to the last checkpoint by the next one.
"""

import argparse
import contextlib
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from harness.sweeps.engines import DEFAULT_ENGINE, load_engine
from harness.sweeps.jobs import crash_cause, run_job

__all__ = ["main"]

Report = Callable[[dict[str, Any]], None]


def main(arguments: list[str] | None = None) -> None:
    """Run cells until the parent closes standard input."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--engine", default=DEFAULT_ENGINE, help="module:function")
    parser.add_argument("--log", type=Path, required=True, help="where prints and warnings go")
    options = parser.parse_args(arguments)
    commands, answers = _take_over_streams(options.log)
    report = _reporter(answers)
    sys.excepthook = _crash_hook(report)
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read_commands, args=(commands, jobs), daemon=True).start()
    engine = load_engine(options.engine)
    while True:
        report(run_job(engine, jobs.get(), lambda message: report({**message, "event": "progress"})))


def _take_over_streams(log: Path) -> tuple[IO[str], IO[str]]:
    """Return private copies of standard input and output; the public ones become nothing and the log."""
    commands = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(nothing, 0)
    os.dup2(written, 1)
    os.dup2(written, 2)
    return commands, answers


def _read_commands(commands: IO[str], jobs: "queue.SimpleQueue[dict[str, Any]]") -> None:
    for line in commands:
        jobs.put(json.loads(line))
    os._exit(0)


def _reporter(answers: IO[str]) -> Report:
    def report(message: dict[str, Any]) -> None:
        try:
            answers.write(json.dumps(message) + "\n")
            answers.flush()
        except BrokenPipeError:
            os._exit(0)

    return report


def _crash_hook(report: Report) -> Callable[[type[BaseException], BaseException, TracebackType | None], None]:
    """An error nobody foresaw: the traceback goes to the log, one line to the parent, and the process ends."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):  # the log's disk may be full
            traceback.print_exception(kind, error, trace)
        report({"event": "crashed", "cause": crash_cause(kind, error, trace)})

    return hook


if __name__ == "__main__":
    main()
