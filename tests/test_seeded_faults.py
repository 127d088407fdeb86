"""The seeded faults of the objectives still apply. It stands outside ``tests/objectives``, which they are tried on."""

from pathlib import Path

import pytest

from tests.objectives.mutations import FAULTS

OBJECTIVES = Path(__file__).parents[1] / "objectives"


def test_no_two_faults_are_the_same() -> None:
    assert len(set(FAULTS)) == len({(file, old, new) for file, old, new, _ in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("file", sorted({fault[0] for fault in FAULTS}))
def test_what_a_fault_replaces_stands_there_once(file: str) -> None:
    text = (OBJECTIVES / file).read_text(encoding="utf-8")
    stale = [what for name, old, _, what in FAULTS if name == file and text.count(old) != 1]
    assert not stale
