"""Read what cells record and hand each row to a sink, once; kills, resumptions and cut-backs included.

A cell is a group, and each of its attempts a run: what a worker records between its start and its death or the cell's
end. After a kill a stream is cut back to the last checkpoint and written again with the same bytes, and an attempt's
run begins behind the last row that was mirrored: no row twice, none lost. Bytes that are not the same (a budget in
seconds) are mirrored from the first row on, in the new attempt's run. What was mirrored is written down when a run is
finished; if the mirror itself is killed, the rows since then are sent again in a new run.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.sweeps.files import sha256_hex, write_atomic
from harness.sweeps.layout import cell_folder, is_study, read_sweep
from harness.sweeps.records import Stream, read_json

__all__ = ["FOLDER", "Mirror", "RunSink", "Sink"]

FOLDER = "tracking"
"""In a sweep's folder: what the mirror writes, and nothing else does."""
MIRRORED: tuple[Stream, ...] = ("metrics", "evals")
_ENDED = ("completed", "failed")


class RunSink(Protocol):
    """One run of a sink, open."""

    def log(self, stream: Stream, row: Mapping[str, Any]) -> None:
        """Take one row of "metrics" or "evals"."""

    def finish(self, status: str, cause: str) -> None:
        """End the run: "completed", "failed" or "interrupted"; returns when all rows are safe in the sink."""


class Sink(Protocol):
    """Where rows go."""

    name: str

    def open(self, cell: Mapping[str, Any], attempt: int, identity: Mapping[str, Any]) -> RunSink:
        """Begin the run of one attempt (1, 2, ...) of a cell of sweep.json."""
        ...

    def report(self, sweep: Mapping[str, Any], folder: Path) -> None:
        """Take the tables, figures, records and page of the sweep's folder as artifacts."""


@dataclass
class _Known:
    """What is known of a cell: attempts begun, the mark of the last one, and how much of each stream is mirrored."""

    attempts: int = 0
    mark: list[int] = field(default_factory=list[int])
    offsets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MIRRORED, 0))
    digests: dict[str, str] = field(default_factory=dict[str, str])
    ended: str = ""
    """Digest of the status.json of the end that was mirrored."""


class Mirror:
    """The mirror of one sweep's folder to one sink.

    Example:
        >>> mirror = Mirror(Path("results/runs/quick"), sink)
        >>> mirror.poll()  # now and then
        >>> mirror.close(report=True)
    """

    def __init__(self, folder: Path, sink: Sink) -> None:
        """Go on where the last mirror of this folder to this sink has finished."""
        self._folder, self._sink = folder, sink
        self._file = folder / FOLDER / f"{sink.name}.json"
        self._known: dict[str, _Known] = {}
        self._saved: dict[str, dict[str, Any]] = {}
        """What the file says: of a cell whose run is open, what was known when its last one was finished."""
        self._open: dict[str, RunSink] = {}
        if self._file.is_file():
            self._saved = read_json(self._file)
            self._known = {key: _Known(**known) for key, known in self._saved.items()}

    def poll(self) -> None:
        """Mirror what has been recorded since the last call; nothing before the sweep's folder is there."""
        if is_study(self._folder):
            for cell in read_sweep(self._folder)["cells"]:
                self._follow(cell)

    def close(self, report: bool) -> None:
        """Finish the runs that are open, and hand the report over if ``report``."""
        for key in list(self._open):
            self._finish(key, "interrupted", "")
        if report and is_study(self._folder):
            self._sink.report(read_sweep(self._folder), self._folder)

    def _follow(self, cell: Mapping[str, Any]) -> None:
        key, path = str(cell["key"]), cell_folder(self._folder, str(cell["key"]))
        known = self._known.setdefault(key, _Known())
        mark = _mark(path / "status.json")
        if not mark:
            return  # not begun
        content = (path / "status.json").read_bytes()
        status, digest = json.loads(content), sha256_hex(content)
        state = str(status["status"])
        if digest == known.ended:
            return  # all of it is mirrored
        if state == "running" and mark != known.mark:
            self._finish(key, "interrupted", "")
            known.mark, known.ended, known.attempts = mark, "", known.attempts + 1
        self._take_rows(cell, path, known)
        if state in _ENDED:
            self._run(cell, path, known)  # a run for the end, also of an attempt that had nothing new to say
            known.ended = digest
            self._finish(key, state, str(status.get("cause", "")))

    def _take_rows(self, cell: Mapping[str, Any], path: Path, known: _Known) -> None:
        for stream in MIRRORED:
            file = path / f"{stream}.jsonl"
            content = file.read_bytes() if file.is_file() else b""
            content = content[: content.rfind(b"\n") + 1]
            start = known.offsets[stream]
            if len(content) < start:
                continue  # cut back, and not yet written again
            if start and sha256_hex(content[:start]) != known.digests[stream]:
                start = 0  # written anew with other bytes
            for line in content[start:].splitlines():
                self._run(cell, path, known).log(stream, json.loads(line))
            known.offsets[stream], known.digests[stream] = len(content), sha256_hex(content)

    def _run(self, cell: Mapping[str, Any], path: Path, known: _Known) -> RunSink:
        key = str(cell["key"])
        if key not in self._open:
            known.attempts = max(known.attempts, 1)
            self._save()
            self._open[key] = self._sink.open(cell, known.attempts, read_json(path / "config.json"))
        return self._open[key]

    def _finish(self, key: str, status: str, cause: str) -> None:
        run = self._open.pop(key, None)
        if run is not None:
            run.finish(status, cause)
            self._saved[key] = asdict(self._known[key])
            self._save()

    def _save(self) -> None:
        """Write down what finished runs have taken, and how many attempts were begun."""
        begun = {name: known.attempts for name, known in self._known.items() if known.attempts}
        self._saved = {name: {**self._saved.get(name, {}), "attempts": count} for name, count in begun.items()}
        self._file.parent.mkdir(exist_ok=True)
        write_atomic(self._file, json.dumps(self._saved, sort_keys=True, indent=1).encode())


def _mark(file: Path) -> list[int]:
    """Return what tells one writing of a file from the next, [] if absent: an attempt begins with a new status.json."""
    try:
        stat = file.stat()
    except FileNotFoundError:
        return []
    return [stat.st_ino, stat.st_mtime_ns]
