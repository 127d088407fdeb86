"""The parts of one run, built from its configuration: what the training loop holds in its hands."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import nn

from harness.compatibility import dense_refusal, requirements
from harness.config.errors import UserError
from harness.config.schema import RunConfig
from harness.engine.bingo import Bingo
from harness.engine.critic import Critic
from harness.engine.fitting import fitting_tokens
from harness.engine.ledger import Ledger
from harness.engine.loading import load_policy
from harness.engine.lora import with_adapters
from harness.engine.optimizer import Optimizer
from harness.engine.plugged import build_plugins
from harness.engine.policy import Policy
from harness.engine.prompts import Prompts
from harness.engine.queued import Queued
from harness.engine.recompute import recompute_layers
from harness.engine.replay import Replay
from harness.engine.routing import follow_routes, routers
from harness.engine.samplers import Sampler, make_sampler
from harness.engine.sharding import shard
from harness.engine.shared_task import share_task
from harness.engine.unfinished import Unfinished
from harness.engine.world import World
from harness.scoring import examples_of
from objectives import Objective
from objectives.trust_region import TrustRegion, Verdict
from tasks.base import Task

__all__ = ["Run", "build_run"]


@dataclass
class Run:
    """One run in progress.

    Attributes:
        config: what it is a pure function of.
        task: source of prompts and verdicts.
        prompts: which of the task's prompts are sampled next.
        objective: stateless.
        region: stateless; its coefficient is ``coef``.
        policy: trained in place.
        world: the processes that share the run.
        sampler: draws every response, those of evaluations too.
        optimizer: of the policy.
        critic: None unless the objective reads values.
        critic_optimizer: of the critic.
        reference: frozen start; None unless the objective or the region reads ``ref_logprobs``.
        teacher: frozen policy of the table "teacher"; None unless the objective reads ``teacher_logprobs``.
        replay: responses of earlier iterations.
        unfinished: responses that the window cut off, to go on in the next iteration.
        queue: rollouts that are sampled and wait for their updates, oldest first.
        bingo: what Bingo's reward remembers; idle unless ``shaping.name`` says so.
        ledger: of the run's budget.
        coef: the trust region's coefficient.
        iteration: rollouts that are done.
        cursor: position in the stream of prompts.
        micro_batch_tokens: tokens of a micro-batch at most.
    """

    config: RunConfig
    task: Task
    prompts: Prompts
    objective: Objective
    region: TrustRegion
    policy: Policy
    world: World
    sampler: Sampler
    optimizer: Optimizer
    critic: Critic | None
    critic_optimizer: Optimizer | None
    reference: Policy | None
    teacher: Policy | None
    replay: Replay
    bingo: Bingo
    ledger: Ledger
    coef: float
    iteration: int = 0
    cursor: int = 0
    unfinished: list[Unfinished] = field(default_factory=list[Unfinished])
    queue: deque[Queued] = field(default_factory=deque[Queued])
    requires: frozenset[str] = field(default_factory=frozenset[str])
    micro_batch_tokens: int = 0

    @property
    def updates(self) -> int:
        """Optimizer steps of the policy so far."""
        return self.optimizer.steps

    def settle(self, verdict: Verdict) -> bool:
        """Take over the region's coefficient; return whether the rollout's updates end.

        Raises:
            UserError: the region scales a step, but is not measured after steps.
        """
        if verdict.scale != 1 and self.region.measured != "after_step":
            raise UserError(
                f"trust region {self.config.trust_region.name!r} keeps {verdict.scale:g} of the last step: that takes "
                'measured = "after_step"'
            )
        self.coef = verdict.coef
        return verdict.stop


def build_run(config: RunConfig, world: World = World()) -> Run:  # noqa: B008 - frozen
    """Return the run of ``config`` before its first iteration, its part in this process of ``world``.

    Raises:
        UserError: a part cannot be built, or the parts contradict each other.
    """
    torch.set_num_threads(config.engine.threads)
    task, objective, region = build_plugins(config)
    device = config.engine.device
    start = load_policy(config.policy, config.task.name, device)
    if config.engine.routing_replay and not routers(start.body):
        raise UserError(dense_refusal(config.policy.name))
    policy = with_adapters(start, config.policy.lora, config.seed)
    follow_routes(policy.body)
    requires = requirements(config)
    tokens = fitting_tokens(policy, task, config)
    critic = Critic(policy) if requires & {"values", "old_values"} else None
    if config.engine.recompute:
        for body in (policy.body, *([] if critic is None else [critic.body])):
            recompute_layers(body)
    reference = start.frozen_copy() if "ref_logprobs" in requires else None
    teacher = _load_teacher(config, policy, device) if "teacher_logprobs" in requires else None
    if world.size > 1:
        policy.replica = start.frozen_copy()
        sampled = config.shaping.name != "none"  # from the reference, which then stays whole
        _shard_all(world, critic, [policy, *(one for one in (None if sampled else reference, teacher) if one)])
    points = tuple(config.budget.amount * i / config.eval.points for i in range(1, config.eval.points))
    return Run(
        config=config,
        task=share_task(task, world),
        prompts=Prompts(config.prompts, config.seed, examples_of(task, "train")),
        objective=objective,
        region=region,
        policy=policy,
        world=world,
        sampler=make_sampler(config.sampler, world),
        optimizer=_optimizer(config, policy.model),
        critic=critic,
        critic_optimizer=None if critic is None else _critic_optimizer(config, critic),
        reference=reference,
        teacher=teacher,
        replay=Replay(config.replay, config.seed),
        bingo=Bingo(config.shaping),
        ledger=Ledger(config.budget.axis, config.budget.amount, points),
        coef=region.init(),
        requires=requires,
        micro_batch_tokens=tokens,
    )  # fmt: skip


def _shard_all(world: World, critic: Critic | None, policies: Iterable[Policy]) -> None:
    """Shard the models over the processes of ``world``."""
    for policy in policies:
        shard(policy.model, policy.model.get_decoder().layers, world)
    if critic is not None:
        shard(critic, critic.body.layers, world)  # pyright: ignore[reportArgumentType]


def _optimizer(config: RunConfig, model: nn.Module) -> Optimizer:
    update = config.update
    return Optimizer(
        model,
        "policy",
        learning_rate=update.learning_rate,
        warmup_updates=update.warmup_updates,
        max_grad_norm=update.max_grad_norm,
        betas=(update.adam_beta1, update.adam_beta2),
        weight_decay=update.weight_decay,
    )


def _critic_optimizer(config: RunConfig, critic: Critic) -> Optimizer:
    return Optimizer(
        critic,
        "critic",
        learning_rate=config.critic.learning_rate,
        warmup_updates=config.critic.warmup_updates,
        max_grad_norm=config.critic.max_grad_norm,
    )


_PROBE = "Text 0123456789+-=;#\n"
"""What two tokenizers must read alike; printable ASCII, which every tokenizer has."""


def _load_teacher(config: RunConfig, student: Policy, device: str) -> Policy:
    """Return the frozen teacher.

    Raises:
        UserError: its tokens are not the student's.
    """
    teacher = load_policy(config.teacher, config.task.name, device).frozen_copy()
    ours, theirs = student.tokenizer, teacher.tokenizer
    same = ours.eos_id == theirs.eos_id and ours.encode(_PROBE) == theirs.encode(_PROBE)
    sizes = [shape.vocab_size for shape in (student.shape, teacher.shape)]
    if not same or sizes[0] != sizes[1]:
        raise UserError(f"teacher {config.teacher.name!r} reads other tokens than policy {config.policy.name!r}")
    return teacher
