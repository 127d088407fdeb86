"""A real sweep through the command line: the shipped policies, the real engine, two worker processes, a kill."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.reports.study import load_study
from harness.sweeps.study import load

ROOT = Path(__file__).parent.parent
SWEEP = """
name = "small"
seeds = [0]
baseline = "grpo"
base = {{ budget = {{ axis = "updates", amount = 6 }}, eval = {{ points = 2, num_prompts = 32, test_prompts = 32 }}, \
rollout = {{ num_prompts = 4, group_size = 4 }}, engine = {{ checkpoint_every = 1 }}, \
update = {{ minibatches = 2, learning_rate = 1e-4 }} }}
arms = [
    {{ name = "grpo", objective = {{ name = "grpo" }} }},
    {{ name = "ppo", objective = {{ name = "ppo" }} }},
    {{ name = "detached+dual", objective = {{ name = "gspo_subsequence", preset = "detached" }}, \
trust_region = {{ name = "dual", delta = 0.1 }} }},
    {{ name = "mine", objective = {{ name = "{mine}:Reinforce" }} }},
]
axes = {{ task = [{{ name = "arithmetic" }}, {{ name = "synthesis" }}] }}
"""


def readme_objective() -> str:
    """Return the example objective of the README as it stands there."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.search(r"```python\n(\"\"\"REINFORCE.*?)```", text, re.DOTALL)[1]  # pyright: ignore[reportOptionalSubscript]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "harness.cli", *words]


def fingerprints(folder: Path) -> dict[str, str]:
    """Return the digest of every file that must be the same in every run of a sweep."""
    kept = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != "run.json"]
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in kept
        if "timing" not in file.name and file.suffix != ".log" and file.parent.name != "lease"
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Run the sweep undisturbed; return its file and folder."""
    home = tmp_path_factory.mktemp("sweep")
    (home / "mine.py").write_text(readme_objective(), encoding="utf-8")
    file = home / "sweep.toml"
    file.write_text(SWEEP.format(mine=home / "mine.py"), encoding="utf-8")
    done = subprocess.run(
        command("sweep", str(file), "--out", str(home / "out")), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return file, home / "out"


def test_a_sweep_leaves_records_tables_and_figures(study: tuple[Path, Path]) -> None:
    _, folder = study
    records = load_study(folder / "records")
    assert set(records.cells["status"]) == {"completed"}
    assert len(records.cells) == 8
    assert set(records.cells["updates"]) == {6}
    table = (folder / "tables" / "comparison.md").read_text(encoding="utf-8")
    assert all(arm in table for arm in ("grpo", "ppo", "detached+dual", "mine"))
    assert {file.suffix for file in (folder / "figures").iterdir()} == {".png", ".pdf", ".svg"}


def test_records_are_one_data_frame_with_one_call(study: tuple[Path, Path]) -> None:
    frame = load(study[1])
    assert set(frame["arm"]) == {"grpo", "ppo", "detached+dual", "mine"}
    assert frame["reward_mean"].between(0, 1).all()


def test_the_example_objective_of_the_readme_keeps_the_contract(study: tuple[Path, Path]) -> None:
    plugin = f"{study[0].parent / 'mine.py'}:Reinforce"
    assert subprocess.run(command("check", plugin), cwd=ROOT, check=False, capture_output=True).returncode == 0


def test_killed_sweep_goes_on_to_the_same_bytes(study: tuple[Path, Path], tmp_path: Path) -> None:
    file, undisturbed = study
    out = tmp_path / "out"
    for wait in (9.0, 14.0):
        sweep = subprocess.Popen(
            command("sweep", str(file), "--out", str(out)), cwd=ROOT, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(wait)
        os.killpg(sweep.pid, signal.SIGKILL)
        sweep.wait()
    done = subprocess.run(command("sweep", str(file), "--out", str(out)), cwd=ROOT, check=False, capture_output=True)
    assert done.returncode == 0
    assert fingerprints(out) == fingerprints(undisturbed)
