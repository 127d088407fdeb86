"""Peak memory of this process."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.config.errors import UserError

__all__ = ["enough_memory", "peak_memory_bytes", "reset_peak_memory"]

_EXHAUSTED = ("out of memory", "can't allocate memory", "not enough memory")
"""What torch's allocators say, on a GPU, on Linux and elsewhere."""
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


@contextmanager
def enough_memory(rows: int) -> Iterator[None]:
    """Explain in one line a micro-batch of so many responses that does not fit into memory; UserError."""
    try:
        yield
    except RuntimeError as error:
        cause = str(error).strip().splitlines()[0]
        if not any(words in cause.lower() for words in _EXHAUSTED):
            raise
        raise UserError(
            f"a micro-batch of {rows} response(s) does not fit into memory: lower engine.micro_batch_tokens (to one "
            f"response) or engine.logits_mib, or set engine.recompute = true ({cause[:160]})"
        ) from None


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
