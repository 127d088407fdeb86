"""The battery itself: every claim must catch an objective that breaks it.

The objectives made up here have no arXiv id.
"""

import dataclasses
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from objectives import Batch, Objective, Rollout, Step, Targets, TokenLoss, trust_region
from objectives.advantages import broadcast_rows, group_advantages
from objectives.aggregation import sequence_mean
from objectives.contract import run
from objectives.ops import log_ratio
from objectives.reference_engine import Case, one_step, random_case


@dataclasses.dataclass(frozen=True)
class Plain(Objective):
    """A correct objective to break (no arXiv id).

    Attributes:
        fault: which claim to violate.
    """

    min_group_size: ClassVar[int] = 2
    fault: str = ""

    def aggregation(self, step: Step) -> Tensor:
        weights = sequence_mean(step)
        if self.fault == "padding":
            weights = step.loss_mask / step.loss_mask.shape[1]
        if self.fault == "empty":
            weights = step.loss_mask / step.loss_mask.sum()
        return weights + 1e-3 * ~step.loss_mask if self.fault == "weights" else weights

    def targets(self, rollout: Rollout) -> Targets:
        rewards = rollout.rewards.nan_to_num(0) if self.fault == "unknown" else rollout.rewards
        advantages = group_advantages(rewards, rollout.group, scale="none")
        if self.fault == "rounding":
            advantages = advantages + 1e-9
        if self.fault == "order":
            advantages = advantages * torch.arange(len(advantages))
        per_token = broadcast_rows(advantages, rollout.scored)
        return Targets(per_token.requires_grad_(self.fault == "gradient"), rollout.scored)

    def token_loss(self, batch: Batch) -> TokenLoss:
        advantages = batch.advantages
        ratio = torch.exp(log_ratio(batch.logprobs, batch.old_logprobs, batch.loss_mask))
        stuck = log_ratio(batch.logprobs, batch.old_logprobs, batch.loss_mask).abs() >= 20
        if self.fault == "sign":
            ratio = -ratio
        if self.fault == "micro":
            advantages = advantages / advantages.abs().max()
        if self.fault == "nan":
            ratio = torch.exp(batch.logprobs * batch.loss_mask - batch.old_logprobs * batch.loss_mask)
        if self.fault == "overflow":
            ratio = torch.exp(torch.where(batch.loss_mask, batch.logprobs - batch.old_logprobs, 0))
        if self.fault == "state":
            object.__setattr__(self, "calls", vars(self).get("calls", 0) + 1)
        policy = -ratio * advantages
        if self.fault == "bonus":
            policy = policy + batch.logprobs
        stats = {"clipped": torch.zeros_like(stuck) if self.fault == "silent" else stuck}
        return TokenLoss(policy, stats={} if self.fault == "nothing" else stats)


@pytest.mark.parametrize(
    ("fault", "claim"),
    [
        ("sign", "on_policy_gradient_is_reinforce"),
        ("micro", "micro_batches_do_not_matter"),
        ("padding", "padding_does_not_matter"),
        ("nan", "masked_slots_do_not_matter"),
        ("order", "row_order_does_not_matter"),
        ("bonus", "zero_advantage_gives_no_gradient"),
        ("overflow", "finite_at_extreme_ratios"),
        ("gradient", "constants_carry_no_gradient"),
        ("empty", "all_masked_step_is_zero"),
        ("rounding", "equal_rewards_give_zero_advantage"),
        ("unknown", "unknown_reward_is_left_out"),
        ("silent", "token_without_gradient_is_clipped"),
        ("nothing", "token_without_gradient_is_clipped"),
        ("state", "frozen_and_stateless"),
        ("weights", "weights_and_advantages_stay_in_mask"),
    ],
)
def test_a_broken_objective_fails_its_claim(fault: str, claim: str) -> None:
    assert dict(run(Plain(fault=fault)))[claim] is not None


def test_a_sound_objective_holds_every_claim() -> None:
    assert [error for _, error in run(Plain()) if error] == []


@dataclasses.dataclass(frozen=True)
class Undocumented(Plain):
    secret: float = 1.0
    requires: ClassVar[frozenset[str]] = frozenset({"ref_logprob"})


def test_undocumented_fields_and_unknown_requirements_are_named() -> None:
    found = dict(run(Undocumented()))
    assert "says nothing of secret" in str(found["documented_with_source"])
    assert "ref_logprob;" in str(found["requires_known_fields"])


def test_a_module_without_a_source_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plain, "__module__", "math")
    assert "names no source" in str(dict(run(Plain()))["documented_with_source"])


def test_a_dataclass_that_is_not_frozen_fails() -> None:
    methods = {name: getattr(Plain, name) for name in ("aggregation", "targets", "token_loss")}
    thawed: Any = dataclasses.make_dataclass("Thawed", [("fault", str, "")], bases=(Objective,), namespace=methods)
    assert "@dataclass(frozen=True)" in str(dict(run(thawed()))["frozen_and_stateless"])


@dataclasses.dataclass(frozen=True)
class Region(trust_region.TrustRegion):
    """A region to break.

    Attributes:
        fault: which claim to violate.
    """

    fault: str = ""
    unit: Any = "per_token"

    def init(self) -> float:
        return 1.0

    def divergence(self, batch: Batch) -> Tensor:
        d = log_ratio(batch.logprobs, batch.old_logprobs, batch.loss_mask)
        if self.fault == "signed":
            return -d
        if self.fault == "offset":
            return d.square() + 0.01 * batch.loss_mask
        if self.fault == "uphill":
            return d.detach().square() - d + d.detach()
        if self.fault == "nan":
            return (batch.logprobs - batch.old_logprobs).square() * batch.loss_mask
        if self.fault == "overflow":
            return torch.where(batch.loss_mask, torch.exp((batch.logprobs - batch.old_logprobs).square()) - 1, 0)
        return d.square()

    def update(self, coef: float, kl: float) -> trust_region.Verdict:
        return trust_region.Verdict(coef / kl if self.fault == "control" and kl else coef - (self.fault == "control"))


@pytest.mark.parametrize(
    ("fault", "claim"),
    [
        ("signed", "divergence_is_positive"),
        ("offset", "divergence_is_zero_between_equals"),
        ("nan", "masked_slots_do_not_matter"),
        ("overflow", "finite_at_extreme_ratios"),
        ("uphill", "gradient_lowers_divergence"),
    ],
)
def test_a_broken_region_fails_its_claim(fault: str, claim: str) -> None:
    assert dict(run(Region(fault=fault)))[claim] is not None


def test_a_region_with_an_unknown_unit_fails() -> None:
    assert "per_token or per_sequence" in str(dict(run(Region(unit="nats")))["unit_keep_and_verdict"])


def test_one_step_gives_only_the_required_fields() -> None:
    seen: list[Batch] = []

    class Spy(Plain):
        requires: ClassVar[frozenset[str]] = frozenset({"ref_logprobs", "entropy"})

        def token_loss(self, batch: Batch) -> TokenLoss:
            seen.append(batch)
            return super().token_loss(batch)

    one_step(Spy(), Case(random_case(Spy.requires).rollout, random_case().current), micro_batch=5)
    assert [len(batch.logprobs) for batch in seen] == [5, 5, 2]
    assert seen[0].entropy is not None
    assert seen[0].ref_logprobs is not None
    assert seen[0].values is None
    assert seen[0].teacher_logprobs is None
