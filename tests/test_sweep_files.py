"""Every shipped sweep is one that the harness accepts."""

from pathlib import Path

import pytest

from harness.compatibility import check_run
from harness.config.loading import load_sweep
from harness.engine.estimate import estimate_cell
from harness.engine.identity import identity
from harness.sweeps.grid import expand

ROOT = Path(__file__).parent.parent
SWEEPS = sorted(file for file in (ROOT / "results").rglob("*.toml") if "runs" not in file.parts)


def test_there_is_a_shipped_sweep() -> None:
    assert ROOT / "results" / "quick" / "sweep.toml" in SWEEPS


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: str(p.relative_to(ROOT)))
def test_shipped_sweep_expands_to_cells_that_can_be_run(path: Path) -> None:
    cells = expand(load_sweep(path), identity, check_run)
    assert len({cell.key for cell in cells}) == len(cells) > 0
    assert all(estimate_cell(cell.config).updates > 1 for cell in cells)


def test_quick_sweep_has_eight_arms_two_tasks_and_three_seeds() -> None:
    sweep = load_sweep(ROOT / "results" / "quick" / "sweep.toml")
    cells = expand(sweep, identity, check_run)
    assert len(sweep.arms) == 8
    assert len(sweep.seeds) >= 3
    assert len(cells) == 8 * 2 * len(sweep.seeds)
    assert {cell.config.task.name for cell in cells} == {"arithmetic", "synthesis"}
    deltas = {cell.config.trust_region.settings["delta"] for cell in cells if cell.config.trust_region.name == "dual"}
    assert len(deltas) == 1
