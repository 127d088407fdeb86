"""The mirror's process: started beside a sweep, never waited for by a run, and its death is one line of warning."""

import argparse
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from harness.tracking.mirror import Mirror
from harness.tracking.sinks import check_target, make_sink

__all__ = ["main", "track", "tracked"]

Say = Callable[[str], None]
_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception): ")
_POLL_SECONDS = 2.0
_LAST_SECONDS = 120.0
"""How long the mirror may take to send the rest when the sweep has ended."""
_INTERRUPTED_SECONDS = 10.0


@contextmanager
def tracked(folder: Path, target: str | None, say: Say, patience: float = _LAST_SECONDS) -> Iterator[None]:
    """Mirror ``folder`` to ``target`` while the block runs; None mirrors nothing.

    Whatever befalls the mirror, the block goes on; at its end one line says that the mirror is not whole, and how to
    send the rest.

    Raises:
        UserError: the target is unknown or not installed; before the block.
    """
    if target is None or target == "wandb:disabled":
        yield
        return
    check_target(target)
    with tempfile.TemporaryFile() as errors:
        process = _start(folder, target, errors)
        try:
            yield
        except BaseException:
            patience = min(patience, _INTERRUPTED_SECONDS)
            raise
        finally:
            trouble = str(process) if isinstance(process, OSError) else _stop(process, errors, patience)
            if trouble:
                again = f"evengrad track {folder} --to {target}"
                say(
                    f"warning: the mirror to {target} ended early ({trouble}); no record is lost; for the rest: {again}"
                )


def track(folder: Path, target: str) -> None:
    """Mirror what is recorded in ``folder`` now, in this process."""
    mirror = Mirror(folder, make_sink(target, folder))
    mirror.poll()
    mirror.close(report=True)


def main(arguments: list[str] | None = None) -> None:
    """Follow a sweep's folder until standard input ends, then send the rest."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("target")
    options = parser.parse_args(arguments)
    mirror = Mirror(options.folder, make_sink(options.target, options.folder))
    ended = threading.Event()
    threading.Thread(target=_wait_for_parent, args=(ended,), daemon=True).start()
    while not ended.wait(_POLL_SECONDS):
        mirror.poll()
    mirror.poll()
    mirror.close(report=True)


def _wait_for_parent(ended: threading.Event) -> None:
    sys.stdin.buffer.read()
    ended.set()


def _start(folder: Path, target: str, errors: IO[bytes]) -> "subprocess.Popen[bytes] | OSError":
    command = [sys.executable, "-m", "harness.tracking.process", str(folder), target]
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, process_group=0
        )
    except OSError as error:
        return error


def _stop(process: "subprocess.Popen[bytes]", errors: IO[bytes], patience: float) -> str:
    """Let the mirror send the rest; return why it could not, "" if it could."""
    try:
        process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"not done after {patience:g} s"
    if process.returncode == 0:
        return ""
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    named = [line for line in lines if _ERROR.match(line)]  # the error of a traceback, whose message may have lines
    return (named or lines or ["it was killed"])[-1].strip()


if __name__ == "__main__":
    main()
