"""A process that is not to outlive the one that started it. Standard library only."""

import ctypes
import signal

__all__ = ["end_with_parent"]

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def end_with_parent() -> None:
    """Let the kernel stop this process when its parent ends, however that is; does nothing where it cannot (not Linux).

    To be called in the child: as ``preexec_fn``, or as the initializer of a pool's processes.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_DIE_WITH_PARENT, signal.SIGTERM)
