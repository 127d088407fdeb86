"""Locks a process in: namespaces, an empty file system, no privileges, limits, a short list of system calls. Linux.

Every layer is applied where the machine grants it; which ones hold is shown by the probes of ``tasks.sandbox.probes``,
not assumed. Standard library only.
"""

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct

__all__ = ["die_with_parent", "enter_namespaces", "give_up_privileges", "hide_files", "limit", "restrict_calls"]

_NEW = {"mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "pid": 0x20000000, "network": 0x40000000}
_NEW_USER = 0x10000000
_MS_READ_ONLY, _MS_PRIVATE, _MS_RECURSIVE, _DETACH = 1, 1 << 18, 1 << 14, 2
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER, _CAPBSET_DROP, _SET_DUMPABLE, _SET_PDEATHSIG = 38, 22, 2, 24, 4, 1
_NOBODY = 65534
_CAPABILITIES = 64

# Calls that computing needs, and none that reaches a file, a process or the network: numbers on x86_64 and aarch64.
_CALLS = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "gettimeofday": (96, 169),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "getrandom": (318, 278),
    "restart_syscall": (219, 128),
    "newfstatat": (262, 79),  # of an open file; there is no path to ask for
}
_MACHINES = ("x86_64", "aarch64")
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def die_with_parent() -> None:
    """Have this process killed when the one that forked it ends."""
    _libc().prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def enter_namespaces() -> bool:
    """Leave the machine's processes, network and mounts behind, as root or in a user namespace; False where refused.

    The caller must fork afterwards: its children are the first processes of the new process namespace.
    """
    libc, flags = _libc(), sum(_NEW.values())
    if os.geteuid() == 0 and libc.unshare(flags) == 0:
        return True
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(flags | _NEW_USER) < 0:
        return False
    with contextlib.suppress(OSError):
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    return True


def hide_files(empty: str, own_mounts: bool) -> bool:
    """Make an empty read-only file system the whole of what this process sees; False where refused.

    Args:
        empty: a folder to change into where no file system may be mounted; the caller removes it.
        own_mounts: whether this process has left the machine's mounts behind; else nothing is mounted, for it would be
            mounted for everybody.
    """
    libc, machine = _libc(), platform.machine()
    try:
        if not own_mounts:
            raise OSError("the machine's own mounts")
        _checked(libc.mount(None, b"/", None, _MS_RECURSIVE | _MS_PRIVATE, None), "mount")
        _checked(libc.mount(b"none", empty.encode(), b"tmpfs", _MS_READ_ONLY, b"size=4k,mode=555"), "tmpfs")
        os.chdir(empty)
        _checked(libc.syscall(_PIVOT_ROOT[machine], b".", b"."), "pivot_root")
        _checked(libc.umount2(b".", _DETACH), "umount")
        os.chdir("/")
        return True
    except (OSError, KeyError):
        try:
            os.chroot(empty)
            os.chdir("/")
            return True
        except OSError:
            return False


def give_up_privileges() -> None:
    """Become nobody where this is root, drop every capability, and bar the way back."""
    libc, machine = _libc(), platform.machine()
    libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in range(_CAPABILITIES):
        libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # in a user namespace there is no nobody to become
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    if machine in _CAPSET:
        header, empty = struct.pack("<II", 0x20080522, 0), bytes(24)
        libc.syscall(_CAPSET[machine], header, empty)
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def limit(cpu_seconds: float, address_bytes: int, file_bytes: int) -> None:
    """Bound this process: CPU time, address space, what it may write to a file, and no other processes."""
    for kind, bound in (
        (resource.RLIMIT_CPU, int(cpu_seconds) + 2),  # the supervisor is finer; this holds if it is gone
        (resource.RLIMIT_AS, address_bytes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 16),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (bound, bound))


def restrict_calls() -> bool:
    """Let this process make computing system calls alone; all others fail with EPERM. False where refused."""
    machine = platform.machine()
    if machine not in _MACHINES:
        return False
    numbers = [row[_MACHINES.index(machine)] for row in _CALLS.values()]
    load, equal, give = 0x20, 0x15, 0x06
    allow, deny, kill = 0x7FFF0000, 0x00050001, 0x80000000
    program = [(load, 0, 0, 4), (equal, 1, 0, _AUDIT[machine]), (give, 0, 0, kill), (load, 0, 0, 0)]
    count = len(numbers)
    program += [(equal, count - i, 0, number) for i, number in enumerate(numbers)]
    program += [(give, 0, 0, deny), (give, 0, 0, allow)]
    code = b"".join(struct.pack("<HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    whole = Program(len(program), ctypes.addressof(buffer))
    return _libc().prctl(_SET_SECCOMP, _FILTER, ctypes.byref(whole), 0, 0) == 0
