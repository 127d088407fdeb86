"""Which process holds a lease, and whether it is certain that it lives or has ended. Standard library only."""

import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["has_ended", "lives_here", "this_process"]


def this_process() -> dict[str, Any]:
    """Return what tells this process from every other one: a random "owner", and where to look for it."""
    return {
        "owner": os.urandom(8).hex(),
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "beat": 0,
    }


@cache
def _machine() -> str | None:
    """Return what tells the process numbers of this machine from all others; None where there is nothing."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """Return the kernel's start time of a process, "" of one that ended and was not waited for, None if unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in "ZX" else fields[19]


def lives_here(holder: Mapping[str, Any]) -> bool:
    """Whether the holder is a process of this machine that has not ended."""
    return _is_here(holder) and not has_ended(holder)


def has_ended(holder: Mapping[str, Any]) -> bool:
    """Whether the holder was a process of this machine and is gone; of another machine's it is never certain."""
    if not _is_here(holder):
        return False
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    now = _started(holder["pid"])
    return now is not None and now != holder["started"]


def _is_here(holder: Mapping[str, Any]) -> bool:
    return holder.get("machine") is not None and holder["machine"] == _machine()
