"""The seeded faults still apply. It stands outside the folders of tests that they are tried on."""

import pytest

from tests.mutations import ROOT
from tests.objectives.mutations import CAMPAIGN as OBJECTIVES
from tests.tasks.mutations import CAMPAIGN as TASKS

CAMPAIGNS = {campaign.package: campaign for campaign in (OBJECTIVES, TASKS)}
FILES = sorted({(package, fault[0]) for package, campaign in CAMPAIGNS.items() for fault in campaign.faults})


@pytest.mark.parametrize("package", CAMPAIGNS)
def test_no_two_faults_are_the_same(package: str) -> None:
    faults = CAMPAIGNS[package].faults
    assert len(set(faults)) == len({(file, old, new) for file, old, new, _ in faults}) == len(faults)


@pytest.mark.parametrize("package", CAMPAIGNS)
def test_what_is_run_first_is_there(package: str) -> None:
    campaign = CAMPAIGNS[package]
    first = {name for fault in campaign.faults for name in campaign.near(fault[0]) if not name.startswith("-")}
    assert first
    assert not [name for name in sorted(first) if not (ROOT / name).is_file()]


@pytest.mark.parametrize(("package", "file"), FILES)
def test_what_a_fault_replaces_stands_there_once(package: str, file: str) -> None:
    text = (ROOT / package / file).read_text(encoding="utf-8")
    faults = CAMPAIGNS[package].faults
    stale = [what for name, old, new, what in faults if name == file and (text.count(old) != 1 or old == new)]
    assert not stale
