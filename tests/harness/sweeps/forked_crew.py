"""A crew of forked processes: they start in milliseconds, so that a test can kill hundreds of them."""

import ctypes
import json
import os
import select
import signal

from harness.sweeps.engines import load_engine
from harness.sweeps.jobs import run_job
from tests import faults

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class ForkedCrew:
    """Workers of ``harness.sweeps.pool``; ``fates`` says of each next one what becomes of it: (call, how), or None."""

    def __init__(self, engine, fates=()):
        self._engine, self._fates = load_engine(engine), list(fates)
        self._workers = {}

    def start(self, job):
        reading, writing = os.pipe()
        fate = self._fates.pop(0) if self._fates else None

        def work():
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
            faults.install(*(fate or ()))

            def tell(message):
                os.write(writing, json.dumps(message).encode() + b"\n")

            tell(run_job(self._engine, job, lambda message: tell({**message, "event": "progress"})))

        pid = faults.fork(work)
        os.close(writing)
        self._workers[reading] = (pid, job["key"], b"")

    def events(self, seconds):
        found = []
        for reading in select.select(list(self._workers), [], [], seconds)[0]:
            pid, key, before = self._workers[reading]
            raw = os.read(reading, 65536)
            *lines, torn = (before + raw).split(b"\n")
            found += [(key, json.loads(line)) for line in lines]
            self._workers[reading] = (pid, key, torn)
            if not raw:
                code = faults.ended(pid)
                os.close(reading)
                del self._workers[reading]
                found.append((key, {"event": "died", "cause": f"signal {-code}"}))
        return found

    def pids(self):
        return [pid for pid, _, _ in self._workers.values()]

    def stop(self):
        for reading, (pid, _, _) in self._workers.items():
            os.kill(pid, signal.SIGKILL)
            faults.ended(pid)
            os.close(reading)
        self._workers = {}
