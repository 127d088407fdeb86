"""Seed single faults into a copy of objectives/ and see whether its tests notice.

    python -m tests.objectives.mutations [part of a name]

Prints killed or SURVIVED for each fault and exits 1 if any survived. Not run by pytest. Each fault gets a process of
its own, forked after torch is loaded.
"""

import io
import multiprocessing
import os
import shutil
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

from tests.objectives.faults_sequences import SEQUENCES
from tests.objectives.faults_shared import SHARED
from tests.objectives.faults_tokens import TOKENS

ROOT = Path(__file__).parents[2]
JOBS = 2

Fault = tuple[str, str, str, str]
FAULTS: list[Fault] = [*SHARED, *TOKENS, *SEQUENCES]
# Other people's code runs in ``parity``; what the tests here would miss is to be seen without it.
LEFT_OUT = "parity"

# Where to look first, to be quick; the whole suite follows if that is not enough.
NEAREST = {"aggregation": "aggregation", "kl": "kl", "segments": "segments", "checks": "settings", "ops": "ops"}
NEAREST |= {"registry": "registry", "data": "contract", "advantages": "advantages", "dapo": "reward_rules"}
NEAREST |= dict.fromkeys(("dual", "adaptive", "early_stop", "reference_penalty", "base"), "trust_region")
NEAREST |= dict.fromkeys(("grpo", "gspo", "ppo", "gspo_subsequence", "families"), "reference")


def copy_to(target: Path) -> None:
    """Copy what the tests need."""
    for part in ("objectives", "tests/objectives"):
        shutil.copytree(ROOT / part, target / part, ignore=shutil.ignore_patterns("__pycache__", LEFT_OUT))
    shutil.copy(ROOT / "pyproject.toml", target)
    (target / "tests" / "__init__.py").touch()


def mutate(target: Path, fault: Fault) -> str | None:
    """Copy what the tests need to ``target`` and apply ``fault``; return what is wrong with it, if anything."""
    file, old, new, _ = fault
    copy_to(target)
    path = target / "objectives" / file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new), encoding="utf-8")
    return None if text.count(old) == 1 else f"STALE: its text occurs {text.count(old)} times"


def run(folder: str, *arguments: str) -> tuple[int, list[str]]:
    """Run pytest in ``folder`` on the modules there; return its exit code and the failed tests."""
    os.chdir(folder)
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "objectives")]:
        del sys.modules[name]
    sys.path[:] = [folder, *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT)]
    sys.dont_write_bytecode = True
    torch.set_num_threads(1)
    output = io.StringIO()
    with redirect_stdout(output):
        code = pytest.main([*arguments, "-q", "--tb=no", "-p", "no:cacheprovider"])
    os.chdir(ROOT)
    lines = output.getvalue().splitlines()
    failed = [line.split(" ", 1)[1].split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    return code, failed if failed or code == pytest.ExitCode.OK else lines[-1:]


def failing_already(_: None) -> list[str]:
    """Return the tests that fail without any fault: they prove nothing."""
    with tempfile.TemporaryDirectory() as folder:
        copy_to(Path(folder))
        return run(folder, "tests/objectives")[1]


def verdict(task: tuple[Fault, list[str]]) -> str:
    """Return "killed by TEST" or "SURVIVED"; runs in a process of its own."""
    fault, already = task
    with tempfile.TemporaryDirectory() as folder:
        stale = mutate(Path(folder), fault)
        if stale:
            return stale
        near = f"tests/objectives/test_{NEAREST.get(Path(fault[0]).stem, 'formulas')}.py"
        deselected = [f"--deselect={test}" for test in already]
        for where in (near, "tests/objectives"):
            code, failed = run(folder, where, "-x", *deselected)
            if code != pytest.ExitCode.OK:
                return f"killed by {failed[0].split('::')[-1]}"
    return "SURVIVED"


def warm_up() -> None:
    """Load pytest's plugins and what torch loads late, once and before the forks."""
    torch.testing.assert_close(torch.ones(1), torch.ones(1))
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        pytest.main([folder, "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")])


def main(part: str = "") -> int:
    """Run every fault whose name or file holds ``part``."""
    chosen = [fault for fault in FAULTS if part in fault[3] or part in fault[0]]
    warm_up()
    killed = 0
    with multiprocessing.get_context("fork").Pool(JOBS, maxtasksperchild=1) as pool:
        (already,) = pool.map(failing_already, [None])
        for test in already:
            print(f"fails without any fault: {test}")  # noqa: T201
        tasks = [(fault, already) for fault in chosen]
        for fault, found in zip(chosen, pool.imap(verdict, tasks), strict=True):
            killed += found.startswith("killed")
            print(f"{fault[0]:32} {fault[3]:42} {found}", flush=True)  # noqa: T201
    print(f"{killed} of {len(chosen)} killed")  # noqa: T201
    return int(killed < len(chosen))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
