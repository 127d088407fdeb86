"""Passes without gradients over a rollout, in the micro-batches of its updates, charged as they go."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from harness.compatibility import exact_fields
from harness.engine.anchors import AnchorStates, anchored, wanted
from harness.engine.experience import Experience
from harness.engine.flops import ModelShape, PassRows
from harness.engine.ledger import Work
from harness.engine.logprobs import Scored, score_responses
from harness.engine.memory import enough_memory
from harness.engine.plan import Plan
from harness.engine.policy import Policy
from harness.engine.routing import Replayed, taken
from harness.engine.run import Run
from objectives import Origin

__all__ = [
    "anchor_work",
    "chunk_tokens",
    "forward_work",
    "frozen_logprobs",
    "old_logprobs",
    "old_values",
    "pass_rows",
    "score_rows",
    "value_work",
]


def forward_work(shape: ModelShape, rows: PassRows, *, backward: bool = False) -> Work:
    """Return the work of a forward pass over responses, with that of the backward pass if asked."""
    executed = shape.packed_body(rows, backward=backward) + shape.head(sum(rows.responses), backward=backward)
    return Work(flops=shape.response_forward(rows, backward=backward), executed_flops=executed)


def value_work(shape: ModelShape, rows: PassRows, *, bootstrap: bool, backward: bool = False) -> Work:
    """Return the work of a critic's forward pass over responses, with that of the backward pass if asked."""
    states = sum(rows.responses) + int(bootstrap) * len(rows.responses)
    executed = shape.packed_body(rows, last=bootstrap, backward=backward) + shape.value_head(states, backward=backward)
    return Work(shape.values_forward(rows, bootstrap=bootstrap, backward=backward), executed)


def chunk_tokens(run: Run, policy: Policy) -> int:
    """Return the response tokens whose logits fit into ``engine.logits_mib``, at least one."""
    return max(1, int(run.config.engine.logits_mib * 2**20) // (4 * policy.shape.vocab_size))


def anchor_work(run: Run, experience: Experience, rows: Tensor) -> Work:
    """Return the work of the anchors' heads for the exact divergences that the run requires."""
    flops = len(exact_fields(run.requires)) * run.policy.shape.head(sum(pass_rows(experience, rows).responses))
    return Work(flops=flops, executed_flops=flops)


def pass_rows(experience: Experience, rows: Tensor) -> PassRows:
    """Return the lengths of ``rows``, and which of them share or bring a prompt."""
    chosen, lengths, leads = rows.tolist(), experience.lengths, experience.leads
    known: dict[tuple[int, ...], int] = {}
    keys = [known.setdefault(tuple(experience.prompts[i]), len(known)) for i in chosen]
    prompts = [len(experience.prompts[i]) for i in chosen]
    return PassRows(prompts, [lengths[i] for i in chosen], keys, [leads[i] for i in chosen])


def score_rows(
    run: Run,
    policy: Policy,
    experience: Experience,
    rows: Tensor,
    *,
    entropy_gradient: bool = False,
    exact: bool = False,
    project: bool = False,
    keep_states: bool = False,
    replay: bool | None = None,
) -> Scored:
    """Return what ``policy`` thinks of ``rows`` of a rollout, [K, T].

    Args:
        run: the run.
        policy: the policy.
        experience: the rollout.
        rows: [K] int64.
        entropy_gradient: let gradients flow through the entropy.
        exact: compute the exact divergences that the run requires.
        project: return the log-probabilities of the trust region's projection, if it is one.
        keep_states: return the hidden states too.
        replay: send the tokens to the experts that the old policy chose; as the run says for its own policy if None.
    """
    if replay is None:
        replay = run.config.engine.routing_replay and policy is run.policy and bool(experience.routes)
    routes = experience.routes[tuple(rows.tolist())] if replay else None
    with Replayed(policy.body, routes), enough_memory(len(rows)):
        return score_responses(
            policy,
            [experience.prompts[i] for i in rows.tolist()],
            experience.ids[rows],
            experience.mask[rows],
            temperature=run.config.rollout.temperature,
            chunk_tokens=chunk_tokens(run, policy),
            entropy_gradient=entropy_gradient,
            exact=anchored(run.requires, experience.anchors, rows, run.region.project, replaces=project)
            if exact
            else {},
            keep_states=keep_states,
        )


@torch.no_grad()
def _assemble(
    run: Run,
    experience: Experience,
    plan: Plan,
    phase: str,
    work: Callable[[PassRows], Work],
    compute: Callable[[Tensor], Sequence[Tensor]],
) -> list[Tensor]:
    """Return each tensor [N, ...] of which ``compute(rows)`` gives the rows, one micro-batch after the other.

    Every micro-batch is charged as ``phase``; the processes of the run share a minibatch's.
    """
    wholes: list[Tensor] = []
    for parts in plan.minibatches:
        for rows in parts:
            run.ledger.charge({phase: work(pass_rows(experience, rows))})
        with run.ledger.timed(phase):
            mine = [compute(rows) for rows, _ in run.world.deal(parts)]
            for rows, found in zip(parts, run.world.undeal(mine, len(parts)), strict=True):
                shapes = [(len(experience.prompts), *part.shape[1:]) for part in found]
                wholes = wholes or [part.new_zeros(shape) for part, shape in zip(found, shapes, strict=True)]
                for whole, part in zip(wholes, found, strict=True):
                    whole[rows] = part
    return [whole.to(run.policy.device) for whole in wholes]


def old_logprobs(run: Run, experience: Experience, plan: Plan) -> tuple[Tensor, Tensor]:
    """Return log pi_old and its entropy, [N, T] each, charged as "old"; keep its routes, and states if needed.

    Tokens of earlier iterations keep those of their own behaviour policy; replayed rows cost nothing.
    """
    keep = wanted(run.requires, "old")
    routes: dict[tuple[int, ...], Tensor] = {}

    def compute(rows: Tensor) -> Sequence[Tensor]:
        scored = score_rows(run, run.policy, experience, rows, keep_states=keep)
        chosen = taken(run.policy.body)
        if chosen is not None:
            routes[tuple(rows.tolist())] = chosen
        return scored.logprobs, scored.entropy, *([] if scored.states is None else [scored.states])

    plan = plan.of(experience.origin != Origin.REPLAY)
    work = partial(forward_work, run.policy.shape)
    logprobs, entropy, *states = _assemble(run, experience, plan, "old", work, compute)
    for part in states:
        experience.anchors["old"] = AnchorStates.of(part, run.policy.head)
    experience.routes = {rows: part for held in run.world.gather(routes) for rows, part in held.items()}
    if experience.stored:
        here = experience.window_mask
        logprobs = torch.where(here, logprobs, experience.stored["old_logprobs"].to(logprobs))
        entropy = torch.where(here, entropy, experience.stored["old_entropy"].to(entropy))
    return logprobs, entropy


def frozen_logprobs(run: Run, policy: Policy | None, phase: str, experience: Experience, plan: Plan) -> Tensor | None:
    """Return the log-probabilities [N, T] of a frozen ``policy``, charged as ``phase``; None if there is none."""
    if policy is None:
        return None
    keep = phase == "reference" and wanted(run.requires, "reference")

    def compute(rows: Tensor) -> Sequence[Tensor]:
        scored = score_rows(run, policy, experience, rows, keep_states=keep)
        return scored.logprobs, *([] if scored.states is None else [scored.states])

    work = partial(forward_work, policy.shape)
    logprobs, *states = _assemble(run, experience, plan, phase, work, compute)
    for part in states:
        experience.anchors["reference"] = AnchorStates.of(part, policy.head)
    return logprobs


def old_values(run: Run, experience: Experience, plan: Plan) -> Tensor | None:
    """Return the critic's values [N, T+1] before the first update, charged as "critic"; None without a critic."""
    critic = run.critic
    if critic is None:
        return None

    def compute(rows: Tensor) -> Sequence[Tensor]:
        prompts = [experience.prompts[i] for i in rows.tolist()]
        return (critic.values(prompts, experience.ids[rows], experience.mask[rows], bootstrap=True),)

    work = partial(value_work, run.policy.shape, bootstrap=True)
    (values,) = _assemble(run, experience, plan, "critic", work, compute)
    return values
