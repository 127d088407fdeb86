"""Seed single faults into a copy of objectives/ and see whether its tests notice.

    python -m tests.objectives.mutations [part of a name]

Prints killed or SURVIVED for each fault and exits 1 if any survived. Not run by pytest. Each fault gets a process of
its own, forked after torch is loaded.
"""

import io
import sys
import tempfile
from contextlib import redirect_stdout

import pytest
import torch

from tests.mutations import ROOT, Campaign, Fault, main
from tests.objectives.faults_sequences import SEQUENCES
from tests.objectives.faults_shared import SHARED
from tests.objectives.faults_tokens import TOKENS

FAULTS: list[Fault] = [*SHARED, *TOKENS, *SEQUENCES]

# Where to look first, to be quick; the whole suite follows if that is not enough.
NEAREST = {"aggregation": "aggregation", "kl": "kl", "segments": "segments", "checks": "settings", "ops": "ops"}
NEAREST |= {"registry": "registry", "data": "contract", "advantages": "advantages", "dapo": "reward_rules"}
NEAREST |= dict.fromkeys(("dual", "adaptive", "early_stop", "reference_penalty", "base"), "trust_region")
NEAREST |= dict.fromkeys(("grpo", "gspo", "ppo", "gspo_subsequence", "families"), "reference")


def one_thread() -> None:
    """Keep torch from taking the cores of the other faults."""
    torch.set_num_threads(1)


CAMPAIGN = Campaign(
    package="objectives",
    faults=FAULTS,
    nearest={file: [f"tests/objectives/test_{name}.py"] for file, name in NEAREST.items()},
    otherwise=["tests/objectives/test_formulas.py"],
    # Other people's code runs in ``parity``; what the tests here would miss is to be seen without it.
    left_out="parity",
    jobs=2,
    first=one_thread,
)


def warm_up() -> None:
    """Load pytest's plugins and what torch loads late, once and before the forks."""
    torch.testing.assert_close(torch.ones(1), torch.ones(1))
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        pytest.main([folder, "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")])


if __name__ == "__main__":
    warm_up()
    sys.exit(main(CAMPAIGN, *sys.argv[1:2]))
