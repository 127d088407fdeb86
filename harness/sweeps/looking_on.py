"""How far cells are that run on other machines, read from their leases on the shared file system."""

import time
from collections.abc import Iterable
from pathlib import Path

from harness.sweeps.lease import read_lease
from harness.sweeps.pool import Job, Message

__all__ = ["LookingOn"]

_SECONDS = 5.0


class LookingOn:
    """Reads the leases of running jobs now and then."""

    def __init__(self) -> None:
        """Begin at once."""
        self._due = 0.0

    def progress(self, jobs: Iterable[Job]) -> list[tuple[str, Message]]:
        """Return what holders of the jobs' folders have told of their work; [] until some seconds have passed."""
        now = time.monotonic()
        if now < self._due:
            return []
        self._due = now + _SECONDS
        told = [(job["key"], read_lease(Path(job["folder"]))) for job in jobs]
        return [
            (key, {"event": "progress", "fraction": lease["fraction"], "score": lease.get("score")})
            for key, lease in told
            if "fraction" in lease and not lease.get("released")
        ]
