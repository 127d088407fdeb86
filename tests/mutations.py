"""Seed single faults into a copy of a package and see whether its tests notice: what the ``mutations`` modules share.

Not run by pytest; ``python -m tests.PACKAGE.mutations [part of a name]`` runs one of them.
"""

import functools
import io
import multiprocessing
import multiprocessing.pool
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LONGEST_SECONDS = 900  # of one pytest run; a fault that makes the tests hang is found out
_HANGS = -1000  # in place of an exit code
_TOLD = (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED, _HANGS)  # a test failed, or a file did not import

Fault = tuple[str, str, str, str]
"""(file under the package, text that occurs once in it, what takes its place, name of the fault)"""


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Campaign:
    """A package, its faults, and where to look for each.

    Attributes:
        package: its folder; the tests are those in the folder of the same name under tests/.
        faults: what is seeded, one at a time.
        nearest: file under the package, or its stem -> what pytest is given first, to be quick; all tests follow if
            that is not enough.
        otherwise: the same for every other file.
        left_out: pattern of names that are not copied, so that what the tests miss without them is seen.
        jobs: how many faults at a time.
        apart: True for tests that start processes and watch the clock: pytest runs in a new process that sees no
            other ones, and a failure counts where it comes again and not without the fault. False: in a process forked
            from this one, with what this one has loaded.
        first: what a forked process does first.
    """

    package: str
    faults: Sequence[Fault]
    nearest: Mapping[str, Sequence[str]]
    otherwise: Sequence[str] = ()
    left_out: str = ""
    jobs: int = 1
    apart: bool = False
    first: Callable[[], None] = field(default=nothing)

    @property
    def tests(self) -> str:
        """Return the folder of all tests."""
        return f"tests/{self.package}"

    def near(self, file: str) -> Sequence[str]:
        """Return what is run first for a fault in ``file``."""
        return self.nearest.get(file, self.nearest.get(Path(file).stem, self.otherwise))


def copy_to(campaign: Campaign, target: Path) -> None:
    """Copy what the tests need."""
    for part in (campaign.package, campaign.tests):
        shutil.copytree(ROOT / part, target / part, ignore=shutil.ignore_patterns("__pycache__", campaign.left_out))
    shutil.copy(ROOT / "pyproject.toml", target)
    (target / "tests" / "__init__.py").touch()


def mutate(campaign: Campaign, target: Path, fault: Fault) -> str | None:
    """Copy what the tests need to ``target`` and apply ``fault``; return what is wrong with it, if anything."""
    file, old, new, _ = fault
    copy_to(campaign, target)
    path = target / campaign.package / file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new), encoding="utf-8")
    return None if text.count(old) == 1 else f"STALE: its text occurs {text.count(old)} times"


def run(campaign: Campaign, folder: str, *arguments: str) -> tuple[int, list[str]]:
    """Run pytest in ``folder`` on the modules there; return its exit code and the failed tests."""
    options = (*arguments, "-q", "--tb=no", "-p", "no:cacheprovider")
    code, lines = _run_apart(folder, options) if campaign.apart else _run_here(campaign, folder, options)
    failed = [line.split(" ", 1)[1].split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    return code, failed if failed or code == pytest.ExitCode.OK else lines[-1:]


def _run_here(campaign: Campaign, folder: str, options: Sequence[str]) -> tuple[int, list[str]]:
    os.chdir(folder)
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", campaign.package)]:
        del sys.modules[name]
    sys.path[:] = [folder, *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT)]
    sys.dont_write_bytecode = True
    campaign.first()
    output = io.StringIO()
    with redirect_stdout(output):
        code = pytest.main([*options])
    os.chdir(ROOT)
    return code, output.getvalue().splitlines()


def _run_apart(folder: str, options: Sequence[str]) -> tuple[int, list[str]]:
    temporary = Path(folder, "tmp")
    temporary.mkdir(exist_ok=True)
    try:
        done = subprocess.run(
            [*_alone(), sys.executable, "-m", "pytest", "-p", "no:xdist", "-o", "timeout=60", *options],
            cwd=folder,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(temporary)},
            capture_output=True,
            text=True,
            timeout=LONGEST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _HANGS, [f"no end after {LONGEST_SECONDS} seconds"]
    return done.returncode, (done.stdout + done.stderr).splitlines() or ["nothing was said"]


@functools.cache
def _alone() -> tuple[str, ...]:
    """Return what starts a program where it sees, and leaves, no process but its own; empty where that is refused."""
    command = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    for rights in ((), ("--user", "--map-current-user")):
        try:
            subprocess.run([*command, *rights, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return (*command, *rights)
    return ()


def failing_already(campaign: Campaign) -> list[str]:
    """Return the tests that fail without any fault: they prove nothing."""
    with tempfile.TemporaryDirectory() as folder:
        copy_to(campaign, Path(folder))
        return run(campaign, folder, campaign.tests)[1]


@functools.cache
def _passes_without(test: str, package: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(package, (), {}, apart=True)
        copy_to(campaign, Path(folder))
        return run(campaign, folder, test)[0] == pytest.ExitCode.OK


def _by_chance(campaign: Campaign, folder: str, test: str) -> bool:
    """Return whether a test that failed passes when it is run again, or fails without the fault too."""
    if not campaign.apart or ".py" not in test:
        return False
    return run(campaign, folder, test)[0] == pytest.ExitCode.OK or not _passes_without(test, campaign.package)


def verdict(campaign: Campaign, already: Sequence[str], fault: Fault) -> str:
    """Return "killed by TEST", "SURVIVED", or what kept the tests from saying either."""
    with tempfile.TemporaryDirectory() as folder:
        stale = mutate(campaign, Path(folder), fault)
        if stale:
            return stale
        deselected = [f"--deselect={test}" for test in already]
        for where in (campaign.near(fault[0]), (campaign.tests,)):
            code, failed = run(campaign, folder, *where, "-x", *deselected)
            while code != pytest.ExitCode.OK:
                if code not in _TOLD:  # pytest was stopped from outside, or found nothing to run
                    return f"NO VERDICT: pytest ended with {int(code)}: {failed[0][:60]}"
                test = failed[0].split("[")[0]
                if not _by_chance(campaign, folder, test):
                    return f"killed by {failed[0].split('::')[-1]}"
                deselected.append(f"--deselect={test}")
                code, failed = run(campaign, folder, *where, "-x", *deselected)
    return "SURVIVED"


def main(campaign: Campaign, part: str = "") -> int:
    """Run every fault whose name or file holds ``part``.

    Prints killed or SURVIVED for each fault; returns 1 if any was not killed.
    """
    chosen = [fault for fault in campaign.faults if part in fault[3] or part in fault[0]]
    killed = 0
    with _pool(campaign) as pool:
        already = [] if campaign.apart else pool.map(failing_already, [campaign])[0]
        for test in already:
            print(f"fails without any fault: {test}")  # noqa: T201
        found_in_order = pool.imap(functools.partial(verdict, campaign, already), chosen)
        for fault, found in zip(chosen, found_in_order, strict=True):
            killed += found.startswith("killed")
            print(f"{fault[0]:32} {fault[3]:42} {found}", flush=True)  # noqa: T201
    print(f"{killed} of {len(chosen)} killed")  # noqa: T201
    return int(killed < len(chosen))


def _pool(campaign: Campaign) -> multiprocessing.pool.Pool:
    if campaign.apart:
        return multiprocessing.pool.ThreadPool(campaign.jobs)
    return multiprocessing.get_context("fork").Pool(campaign.jobs, maxtasksperchild=1)
