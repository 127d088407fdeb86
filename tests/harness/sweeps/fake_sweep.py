"""Run a sweep file with the fake engine: ``python fake_sweep.py SWEEP.toml OUT [FLAG | key=value] ...``."""

import sys
from pathlib import Path

import fake_engine

from harness.config.errors import UserError
from harness.config.loading import load_sweep, parse_assignments
from harness.sweeps.command import run_plan
from harness.sweeps.grid import expand
from harness.sweeps.planning import Plan

ENGINE = "fake_engine:run_cell"


def plan_of(path, settings=()):
    sweep = load_sweep(Path(path), parse_assignments(settings))
    cells = expand(sweep, fake_engine.identity)
    return Plan(sweep, cells, ENGINE, {cell.key: fake_engine.estimate_cell(cell.config) for cell in cells})


def main(path, out, *flags):
    plan = plan_of(path, [word for word in flags if "=" in word])
    retry, join = "--retry-failed" in flags, "--join" in flags
    return run_plan(plan, Path(out), print, retry_failed=retry, join=join, report=False)


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except UserError as error:
        sys.exit(f"user error: {error}")
