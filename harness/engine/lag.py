"""Rollouts that are trained on some iterations after they were sampled: bounded staleness.

The trainer's side of an asynchronous system whose queue holds L = ``rollout.lag`` rollouts (AReaL, arXiv:2505.24298),
made exact and repeatable. A version is an iteration, all updates on one rollout, and not an optimizer step:

    iteration i:  1. sample rollout i + L with the weights of version i (before the first update: rollouts 0 to L)
                  2. make the updates on rollout i, which was sampled with the weights of version max(0, i - L)

so that min(i, L) iterations of updates lie between. Prompts, sampling noise and minibatches are keyed by the number of
the rollout, the same for every L. ``rollout.anchor`` says what pi_old is:

- "behaviour": the policy that sampled. Its pass ("old": log-probabilities, entropies, states of exact divergences) is
  made when the rollout is sampled, with the same weights. Ratios are pi_theta / pi_behaviour, and differ from 1 before
  the first update; so does a trust region's KL(pi_old || pi_theta) from 0.
- "proximal": the policy that the updates on the rollout begin with; its pass is made then. Ratios begin at 1, and
  what the policy moved before is left to ``[correction]``: pi_prox / mu, mu as the sampler reported it (the decoupled
  objective, Hilton et al. 2021, arXiv:2110.00641). Divergences to pi_old are averages over mu's samples.

The critic's values are those of when the updates begin, under both: they are the estimate that advantages are made
from, not the behaviour policy's, and the value clip is about where the critic stands. Passes of frozen policies and
shaped rewards do not depend on the weights, and are made then too: not for what is never trained on. Bingo's weight
follows the rollouts in their order, which a lag does not change.
"""

from collections.abc import Callable

from torch import Tensor

from harness.engine import passes
from harness.engine.experience import Experience
from harness.engine.plan import Plan, make_plan
from harness.engine.queued import Queued
from harness.engine.run import Run

__all__ = ["next_in_turn", "old_logprobs"]


def next_in_turn(run: Run, sample: Callable[[Run, int], Experience]) -> Experience:
    """Fill the queue and return its oldest rollout, which ``rollout.lag`` others then stand behind.

    Args:
        run: the run.
        sample: draws the rollout of that number with the policy as it is, and charges it.

    Raises:
        BudgetExhausted: a rollout does not fit; what waits is not trained on, and discarded.
    """
    rollout = run.config.rollout
    while len(run.queue) <= rollout.lag:
        number, before = run.iteration + len(run.queue), run.ledger.spent.flops
        experience = sample(run, number)
        run.cursor = experience.cursor
        if rollout.old_at_sampling:
            logprobs, entropy = passes.old_logprobs(run, experience, _plan(run, experience, number))
            experience.stored = {"old_logprobs": logprobs, "old_entropy": entropy}
        run.queue.append(Queued(experience, run.iteration, run.ledger.spent.flops - before))
        run.ledger.waiting_flops += run.queue[-1].flops
    oldest = run.queue.popleft()
    run.ledger.waiting_flops -= oldest.flops
    oldest.experience.lag = run.iteration - oldest.version
    return oldest.experience


def old_logprobs(run: Run, experience: Experience, plan: Plan) -> tuple[Tensor, Tensor]:
    """Return log pi_old and its entropy, [N, T] each, as ``rollout.anchor`` has them."""
    if run.config.rollout.old_at_sampling:
        return experience.stored["old_logprobs"], experience.stored["old_entropy"]
    return passes.old_logprobs(run, experience, plan)


def _plan(run: Run, experience: Experience, number: int) -> Plan:
    minibatches, tokens = run.config.update.minibatches, run.micro_batch_tokens
    return make_plan(experience, minibatches, tokens, seed=run.config.seed, iteration=number, shares=run.world.size)
