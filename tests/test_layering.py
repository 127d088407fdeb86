"""The house: imports run one way, nothing heavy is imported before it is needed, files stay readable."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {"objectives": set[str](), "tasks": set[str](), "harness": {"objectives", "tasks"}}
FILES = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
MAX_LINES = 250
# Beside torch, objectives may use the standard library only.
TASK_LIBRARIES = {"numpy", "pydantic_monty", "datasets", "huggingface_hub", "reasoning_gym"}
# Run by a Python of its own that knows none of the packages: its modules lie beside each other.
SANDBOXED = {"driver", "isolation", "wire"}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name}: relative import"
            yield node.module or ""


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_run_one_way(file: Path) -> None:
    package = file.relative_to(ROOT).parts[0]
    tops = {name.split(".")[0] for name in imported(file)}
    assert not (tops & PACKAGES.keys()) - PACKAGES[package] - {package}
    foreign = tops - sys.stdlib_module_names - PACKAGES.keys()
    if package == "objectives":
        assert foreign <= {"torch"}
    if package == "tasks":
        assert foreign <= (SANDBOXED if file.parent.name == "child" else TASK_LIBRARIES)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_file_can_be_read_in_one_sitting(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize(
    "module",
    [
        "harness.cli",
        "harness.config.loading",
        "harness.engine.cells",
        "harness.engine.flops",
        "harness.engine.ledger",
        "harness.engine.streams",
        "harness.sweeps.study",
        "harness.sweeps.executors",
        "harness.sweeps.local",
        "harness.sweeps.ray_crew",
        "harness.sweeps.slurm_crew",
        "harness.sweeps.worker",
        "harness.reports.report",
        "harness.reports.figures",
        "harness.reports.page",
        "harness.sweeps.sides",
        "harness.sweeps.page_sources",
        "harness.tracking.process",
    ],
)
def test_module_imports_no_torch(module: str) -> None:
    program = f"import sys, {module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_plan_is_made_without_transformers() -> None:
    program = (
        "import sys; from pathlib import Path; from harness.sweeps.planning import plan_sweep; "
        "plan_sweep(Path('results/quick/sweep.toml'), {}); sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_help_imports_nothing_heavy() -> None:
    heavy = ("torch", "pandas", "pydantic", "matplotlib", "rich", "numpy")
    program = f"import sys, harness.cli; sys.exit(any(m in sys.modules for m in {heavy}))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
