"""Faults for tests of what is durable: a process that is killed at any call that changes a file.

``harness.sweeps.files`` makes every such call through its ``os``; ``install`` puts a counting one in its place.
"""

import errno
import os
import resource
import signal
import threading
import time
import traceback
import warnings

from harness.sweeps import files

CHANGES = ("mkdir", "open", "write", "fsync", "close", "replace", "link", "unlink")
# After these a full disk has no room.
NEED_ROOM = ("mkdir", "write", "link")


class FaultyOs:
    """``os`` whose ``at``-th change of a file, counted from 1, kills this process or finds a full disk, then on."""

    def __init__(self, at, how):
        self.at, self.how, self.count = at, how, 0
        self.thread = threading.get_ident()

    def __getattr__(self, name):
        real = getattr(os, name)
        return self.faulty(name, real) if name in CHANGES else real

    def faulty(self, name, real):
        def call(*arguments):
            if threading.get_ident() != self.thread:  # a heartbeat comes when it likes
                return real(*arguments)
            self.count += 1
            if self.how == "kill" and self.count == self.at:
                if name == "write":
                    half_written(real, *arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "full" and self.count >= self.at and name in NEED_ROOM:
                if name == "write" and self.count == self.at and half_written(real, *arguments):
                    return len(arguments[1]) // 2
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return None if name == "fsync" else real(*arguments)  # what a kill leaves does not depend on it

        return call


def half_written(write, descriptor, payload):
    half = len(payload) // 2
    if half:
        write(descriptor, payload[:half])
    return half


def install(at=None, how="kill"):
    """Make the changes of this process faulty; return what counts them."""
    files.os = faulty = FaultyOs(at, how)  # pyright: ignore[reportAttributeAccessIssue]
    return faulty


def limit_file_size(size):
    """Let the kernel refuse every file of this process that grows beyond ``size`` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def fork(job, *, group=False):
    """Run ``job`` in a forked process, with the exit status that it returns; return its process id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        if group:
            os.setsid()
        code = job() or 0
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid, seconds=300):
    """Wait for a forked process; return its exit status, negative for a signal."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("a process hangs")


def in_child(job):
    """Run ``job`` in a forked process to its end; return its exit status, negative for a signal."""
    return ended(fork(job))
