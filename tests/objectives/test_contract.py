"""The contract battery over everything in the package: a new file is covered without an edit here.

The objectives made up here have no arXiv id.
"""

import dataclasses
import importlib.util
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import objectives
from objectives import Batch, Objective, trust_region
from objectives.contract import OBJECTIVE_CHECKS, TRUST_REGION_CHECKS, run
from objectives.reference_engine import one_step, padded, random_case

README = Path(objectives.__file__).with_name("README.md")
VARIANTS = [
    (name, preset) for name, cls in sorted(objectives.classes().items()) for preset in (None, *sorted(cls.presets))
]
UNITS = ("per_token", "per_sequence")


@pytest.mark.parametrize(
    "check", [check for _, check in OBJECTIVE_CHECKS], ids=[claim for claim, _ in OBJECTIVE_CHECKS]
)
@pytest.mark.parametrize(
    ("name", "preset"), VARIANTS, ids=[f"{name}-{preset or 'default'}" for name, preset in VARIANTS]
)
def test_objective(name: str, preset: str | None, check: Callable[[Objective], None]) -> None:
    """U1 (on policy), U15 (micro-batches, padding, masked slots, row order), U16 (all masked), U17 (equal rewards)."""
    check(objectives.make(name, preset=preset))


@pytest.mark.parametrize(
    "check", [check for _, check in TRUST_REGION_CHECKS], ids=[claim for claim, _ in TRUST_REGION_CHECKS]
)
@pytest.mark.parametrize(("name", "unit"), list(itertools.product(trust_region.names(), UNITS)))
def test_trust_region(name: str, unit: str, check: Callable[[trust_region.TrustRegion], None]) -> None:
    check(trust_region.make(name, unit=unit))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_batch_refuses_half_precision(dtype: torch.dtype) -> None:
    """U28."""
    x = torch.zeros(1, 2)
    with pytest.raises(ValueError, match=r"Batch.old_logprobs is torch.b?float16.*\.float\(\)"):
        Batch(x, x.to(dtype), x, x == 0, x.long())
    with pytest.raises(ValueError, match=r"Batch\.logprobs"):
        Batch(x.to(dtype), x, x, x == 0, x.long())


@pytest.mark.parametrize(
    "field", ["old_logprobs", "advantages", "ref_logprobs", "old_values", "returns", "old_entropy"]
)
def test_a_batch_refuses_gradients_on_constants(field: str) -> None:
    x = torch.zeros(1, 2)
    given: dict[str, Any] = {"old_logprobs": x, "advantages": x, field: x.clone().requires_grad_()}
    with pytest.raises(ValueError, match=rf"Batch\.{field} carries a gradient"):
        Batch(logprobs=x, loss_mask=x == 0, response_ids=x.long(), **given)
    with pytest.raises(ValueError, match=r"weight.*carries a gradient"):
        Batch(x, x, x, x == 0, x.long(), extras={"weight": x.clone().requires_grad_()})


def test_shapes_are_checked_with_what_was_expected() -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"Batch.advantages has shape \(2, 1\), expected \(2, 3\)"):
        Batch(x, x, x[:, :1], x == 0, x.long())
    rollout = random_case(frozenset({"old_values"})).rollout
    with pytest.raises(ValueError, match=r"Rollout.old_values has shape \(12, 9\), expected \(12, 10\)"):
        dataclasses.replace(rollout, old_values=torch.zeros(12, 9))


def test_the_padded_case_keeps_every_token() -> None:
    case = random_case(frozenset({"old_values"}))
    wide = padded(case, 50)
    assert wide.rollout.response_mask.sum() == case.rollout.response_mask.sum()
    assert wide.rollout.old_values is not None
    assert wide.rollout.old_values.shape == (12, 60)


def test_the_readme_example_is_registered_by_its_file_and_holds_the_contract(tmp_path: Path) -> None:
    source = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[-1]
    (tmp_path / "baseline.py").write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("baseline", tmp_path / "baseline.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "baseline", module)
        spec.loader.exec_module(module)
        assert [(claim, error) for claim, error in run(module.ReinforceBaseline()) if error] == []
        case = random_case(spread=0.4)
        outcome = one_step(module.ReinforceBaseline(), case)
    expected = -outcome.weights * outcome.targets.advantages
    torch.testing.assert_close(outcome.gradients["logprobs"], expected)
