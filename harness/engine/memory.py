"""Peak memory of this process."""

import resource
from pathlib import Path

__all__ = ["peak_memory_bytes", "reset_peak_memory"]

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def reset_peak_memory() -> None:
    """Start the peak anew where the kernel can (Linux); elsewhere it stays that of the whole process."""
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return


def peak_memory_bytes() -> int:
    """Return the peak resident memory since the last reset, bytes."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
