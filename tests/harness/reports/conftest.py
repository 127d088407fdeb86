"""Shared studies: rendered and laid out once a session."""

import contextlib

import matplotlib as mpl
import pytest
from synthetic_study import write_study

from harness.reports.figures import FIGURES, NoData
from harness.reports.study import load_study

STATUSES = {
    ("gspo", "arithmetic", 2): ("failed", "nan loss"),
    ("gspo+dual", "arithmetic", 0): ("running", ""),
    ("grpo", "synthesis", 1): ("missing", ""),
}


@pytest.fixture(scope="session", autouse=True)
def _headless():
    mpl.use("agg")


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """Five arms, two tasks, three seeds; one failed, one running and one missing cell."""
    arms = ("ppo", "grpo", "gspo", "gspo+dual", "gspo+early_stop")
    return load_study(write_study(tmp_path_factory.mktemp("study"), arms=arms, statuses=STATUSES, iterations=6))


@pytest.fixture(scope="session")
def drawn(study):
    """All figures that the study has data for."""
    found = {}
    for name, draw in FIGURES.items():
        with contextlib.suppress(NoData):
            found[name] = draw(study)
    return found
