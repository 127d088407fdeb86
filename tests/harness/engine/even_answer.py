"""Test-only plug-ins: a task at which a barely trained policy is right half the time, and demanding objectives."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from objectives import TokenLoss
from objectives.aggregation import token_mean
from objectives.grpo import GRPO
from tasks.arithmetic import Arithmetic
from tasks.base import Score


@dataclass(frozen=True)
class EvenAnswer(Arithmetic):
    """Right is any response whose characters sum to an even number; one that starts with "!" cannot be judged."""

    def score(self, example, response):
        if response.startswith("!"):
            return Score(math.nan, "infra", "test")
        return Score(1.0, "pass") if sum(map(ord, response)) % 2 == 0 else Score(0.0, "wrong")


@dataclass(frozen=True)
class Unknowable(Arithmetic):
    """Nothing can be judged in every prompt's second half of responses, nor anything that holds a "7"."""

    def score(self, example, response):
        return Score(math.nan, "infra", "test") if "7" in response else Score(float(len(response) % 2), "wrong")


@dataclass(frozen=True)
class Mixed(GRPO):
    """Train on groups that disagree only."""

    def keep_groups(self, rewards):
        return (rewards != rewards[:, :1]).any(1)


@dataclass(frozen=True)
class Picky(GRPO):
    """Reject every group."""

    def keep_groups(self, rewards):
        return torch.zeros(rewards.shape[0], dtype=torch.bool)


@dataclass(frozen=True)
class Prepared(GRPO):
    """Weigh every token by what the whole step knows: its noise, and its rank among the current log-probabilities."""

    requires: ClassVar[frozenset[str]] = frozenset({"step_logprobs", "step_uniforms"})

    def prepare(self, step):
        mean = torch.where(step.loss_mask, step.logprobs, 0).sum() / step.loss_mask.sum()
        return {"weight": step.uniforms + (step.logprobs > mean), "step_logprobs": step.logprobs}

    def token_loss(self, batch):
        plain = super().token_loss(batch)
        gap = (batch.logprobs.detach() - batch.extras["step_logprobs"]).abs()
        return type(plain)(policy=plain.policy * batch.extras["weight"], stats={**plain.stats, "gap": gap})


@dataclass(frozen=True)
class Poisoned(GRPO):
    """A loss that is NaN from update ``at`` on; its gradient alone if ``silent``."""

    at: int = 2
    silent: bool = False

    def prepare(self, step):
        return {"bad": torch.full(step.loss_mask.shape, float(step.index >= self.at))}

    def token_loss(self, batch):
        plain = super().token_loss(batch)
        bad = batch.extras["bad"] > 0
        if self.silent:  # sqrt(0) is 0 and has an infinite slope, times 0
            spoilt = plain.policy + ((batch.logprobs - batch.logprobs) ** 2).sqrt() if bad.any() else plain.policy
        else:
            spoilt = torch.where(bad, torch.nan, plain.policy)
        return type(plain)(policy=spoilt, stats=plain.stats)


@dataclass(frozen=True)
class EntropyWatcher(GRPO):
    """GRPO that asks for the entropy and does not use it."""

    requires: ClassVar[frozenset[str]] = frozenset({"entropy"})


@dataclass(frozen=True)
class BadCritic(GRPO):
    """A critic whose loss has a gradient of NaN; the policy's is fine."""

    requires: ClassVar[frozenset[str]] = frozenset({"values", "old_values"})

    def aggregation(self, step):
        return token_mean(step)

    def token_loss(self, batch):
        plain = super().token_loss(batch)
        return type(plain)(policy=plain.policy, value=((batch.values - batch.values) ** 2).sqrt(), stats=plain.stats)


@dataclass(frozen=True)
class Penalised(GRPO):
    """The plain ratio times the advantage, and half the squared log-ratio as a penalty."""

    def token_loss(self, batch):
        change = batch.logprobs - batch.old_logprobs
        return TokenLoss(policy=-change.exp() * batch.advantages, penalty=change**2 / 2)
