"""Passes without gradients over a rollout, in the micro-batches of its updates, charged as they go."""

from collections.abc import Callable

import torch
from torch import Tensor

from harness.compatibility import exact_fields
from harness.engine.anchors import AnchorStates, anchored, wanted
from harness.engine.experience import Experience
from harness.engine.flops import ModelShape, PassRows
from harness.engine.ledger import Work
from harness.engine.logprobs import Scored, score_responses
from harness.engine.plan import Plan
from harness.engine.policy import Policy
from harness.engine.routing import Replayed, taken
from harness.engine.run import Run
from objectives import Origin
from objectives.trust_region.measured import Anchor

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
    with Replayed(policy.body, experience.routes[tuple(rows.tolist())] if replay else None):
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
def _assemble(plan: Plan, experience: Experience, width: int, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """Return [N, width] filled micro-batch by micro-batch by ``compute(rows)``."""
    parts = [compute(rows) for rows in plan.micro_batches]
    whole = parts[0].new_zeros(len(experience.prompts), width)
    for rows, part in zip(plan.micro_batches, parts, strict=True):
        whole[rows] = part
    return whole


def old_logprobs(run: Run, experience: Experience, plan: Plan) -> tuple[Tensor, Tensor]:
    """Return log pi_old and its entropy, [N, T] each, charged as "old"; keep its routes, and states if needed.

    Tokens of earlier iterations keep those of their own behaviour policy; replayed rows cost nothing.
    """
    width = experience.ids.shape[1]
    keep = _Keep(run, "old")
    plan = plan.of(experience.origin != Origin.REPLAY)
    routes: dict[tuple[int, ...], Tensor] = {}

    def compute(rows: Tensor) -> Tensor:
        run.ledger.charge({"old": forward_work(run.policy.shape, pass_rows(experience, rows))})
        scored = score_rows(run, run.policy, experience, rows, keep_states=keep.wanted)
        keep.add(scored)
        chosen = taken(run.policy.body)
        if chosen is not None:
            routes[tuple(rows.tolist())] = chosen
        return torch.cat([scored.logprobs, scored.entropy], 1)

    with run.ledger.timed("old"):
        both = _assemble(plan, experience, 2 * width, compute)
    keep.finish(experience, plan, run.policy)
    experience.routes = routes
    if experience.stored:
        stored = torch.cat([experience.stored["old_logprobs"], experience.stored["old_entropy"]], 1)
        here = experience.window_mask.repeat(1, 2)
        both = torch.where(here, both, stored.to(both))
    return both[:, :width], both[:, width:]


class _Keep:
    """Collects a policy's hidden states over a pass, if an exact divergence to it is required."""

    def __init__(self, run: Run, anchor: Anchor) -> None:
        self.wanted = wanted(run.requires, anchor)
        self._anchor: Anchor = anchor
        self._parts: list[Tensor] = []

    def add(self, scored: Scored) -> None:
        if scored.states is not None:
            self._parts.append(scored.states)

    def finish(self, experience: Experience, plan: Plan, policy: Policy) -> None:
        if self.wanted:
            states = self._parts[0].new_zeros(len(experience.prompts), *self._parts[0].shape[1:])
            for rows, part in zip(plan.micro_batches, self._parts, strict=True):
                states[rows] = part
            experience.anchors[self._anchor] = AnchorStates.of(states, policy.head)


def frozen_logprobs(run: Run, policy: Policy | None, phase: str, experience: Experience, plan: Plan) -> Tensor | None:
    """Return the log-probabilities [N, T] of a frozen ``policy``, charged as ``phase``; None if there is none."""
    if policy is None:
        return None
    keep = _Keep(run, "reference") if phase == "reference" else None

    def compute(rows: Tensor) -> Tensor:
        run.ledger.charge({phase: forward_work(policy.shape, pass_rows(experience, rows))})
        scored = score_rows(run, policy, experience, rows, keep_states=keep is not None and keep.wanted)
        if keep is not None:
            keep.add(scored)
        return scored.logprobs

    with run.ledger.timed(phase):
        logprobs = _assemble(plan, experience, experience.ids.shape[1], compute)
    if keep is not None:
        keep.finish(experience, plan, policy)
    return logprobs


def old_values(run: Run, experience: Experience, plan: Plan) -> Tensor | None:
    """Return the critic's values [N, T+1] before the first update, charged as "critic"; None without a critic."""
    critic = run.critic
    if critic is None:
        return None

    def compute(rows: Tensor) -> Tensor:
        work = value_work(run.policy.shape, pass_rows(experience, rows), bootstrap=True)
        run.ledger.charge({"critic": work})
        prompts = [experience.prompts[i] for i in rows.tolist()]
        return critic.values(prompts, experience.ids[rows], experience.mask[rows], bootstrap=True)

    with run.ledger.timed("critic"):
        return _assemble(plan, experience, experience.ids.shape[1] + 1, compute)
