"""Shape the rewards of a rollout before the objective sees them; the log and ``keep_groups`` see the task's own.

In this order: Bingo's reward in place of the task's, then the overlong filter, which makes the reward of what the
length limit cut off unknown (DAPO, arXiv:2503.14476, section 3.4), then what ``reward_parts`` adds. A response of
unknown reward leaves the loss of every objective, its denominators and the statistics of its group, as if it had not
been sampled; ``dapo.overlong_filter`` keeps it in those statistics. An unknown reward stays unknown.

Greedy responses that an objective compares with get what is added, and are not filtered.

Significance of a token is its surprisal under the reference policy, min-max normalised over its response (Bingo's
authors ask an encoder, LLMLingua-2). The reference's response to a prompt is drawn once and kept (the authors draw
it at every step), charged as "shaping".
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from harness.engine.bingo import Counts
from harness.engine.experience import Experience
from harness.engine.flops import PassRows
from harness.engine.judging import Judged
from harness.engine.ledger import Work
from harness.engine.logprobs import score_responses
from harness.engine.passes import chunk_tokens, forward_work
from harness.engine.reward_parts import added_reward
from harness.engine.run import Run
from harness.engine.streams import noises
from objectives import Finish, Origin, Rollout

__all__ = ["shape_rewards", "significant"]


def shape_rewards(run: Run, experience: Experience, rollout: Rollout) -> Rollout:
    """Return the rollout with the rewards that the objective sees; NaN stays NaN.

    Charges what it draws, moves Bingo's weight, and leaves the rewards in ``experience`` for the log.
    """
    config = run.config.shaping
    if not config.active:
        return rollout
    own = experience.judged
    base = own.rewards if config.name == "none" else _bingo_rewards(run, experience, rollout)
    if config.overlong_filter:  # before lengths are compared within a group
        cut = own.finish == Finish.LENGTH
        own, base = replace(own, rewards=torch.where(cut, torch.nan, own.rewards)), torch.where(cut, torch.nan, base)
    shaped = _with_parts(run, base, own, experience.group)
    experience.shaped_rewards = shaped
    greedy = rollout.greedy_rewards
    if greedy is not None and experience.greedy is not None:
        greedy = _with_parts(run, greedy, experience.greedy, None)
    return replace(rollout, rewards=shaped, greedy_rewards=greedy)


def _with_parts(run: Run, base: Tensor, judged: Judged, group: Tensor | None) -> Tensor:
    """Return ``base`` [N] and what the parts add to it, float32."""
    limit = run.config.rollout.max_response_tokens
    return (base.double() + added_reward(run.config.shaping, judged, group, limit)).to(base.dtype)


def _bingo_rewards(run: Run, experience: Experience, rollout: Rollout) -> Tensor:
    """Return Bingo's rewards [N]; NaN stays NaN."""
    assert rollout.ref_logprobs is not None
    _draw_references(run, experience)
    chosen = significant(rollout.ref_logprobs, rollout.response_mask, run.config.shaping.threshold)
    shaped = rollout.rewards.clone()
    lengths, significants = experience.lengths, chosen.sum(1).tolist()
    for row, example in enumerate(experience.examples):
        length, many = lengths[row], significants[row]
        if not bool(rollout.rewards[row].isnan()):
            shaped[row] = run.bingo.reward(
                right=float(experience.correct[row]) == 1,
                counts=Counts(length - many, many),
                reference=run.bingo.references[example],
            )
    known = experience.rewards[~experience.rewards.isnan() & (experience.origin == Origin.FRESH)]
    run.bingo.observe(float(known.mean()) if len(known) else float("nan"))
    return shaped


def significant(logprobs: Tensor, mask: Tensor, threshold: float) -> Tensor:
    """Return [N, T] bool, tokens whose surprisal, min-max normalised over their response, is at least ``threshold``.

    A response whose tokens are all alike has significant tokens only.
    """
    surprisal = torch.where(mask, -logprobs, 0.0)
    low = torch.where(mask, surprisal, torch.inf).amin(1, keepdim=True)
    high = torch.where(mask, surprisal, -torch.inf).amax(1, keepdim=True)
    spread = high - low
    share = torch.where(spread > 0, (surprisal - low) / spread, 1.0)
    return mask & (share >= threshold)


@torch.no_grad()
def _draw_references(run: Run, experience: Experience) -> None:
    """Draw and count the reference's response to every prompt that has none yet."""
    reference, config = run.reference, run.config
    assert reference is not None
    new = {e: p for e, p in zip(experience.examples, experience.prompts, strict=True) if e not in run.bingo.references}
    if not new:
        return
    prompts = list(new.values())
    noise = noises(config.seed, "shaping", 0, new, 1)

    def charge(work: Mapping[str, Work]) -> None:
        (part,) = work.values()
        run.ledger.charge({"shaping": part})

    limit, temperature = config.rollout.max_response_tokens, config.rollout.temperature
    drawn = run.sampler.sample(reference, prompts, noise, limit=limit, temperature=temperature, charge=charge)
    lengths, singles = drawn.mask.sum(1).tolist(), len(prompts)
    rows = PassRows([len(prompt) for prompt in prompts], lengths, range(singles), [True] * singles)
    run.ledger.charge({"shaping": forward_work(reference.shape, rows)})
    scored = score_responses(
        reference,
        prompts,
        drawn.ids,
        drawn.mask,
        temperature=temperature,
        chunk_tokens=chunk_tokens(run, reference),
    )
    chosen = significant(scored.logprobs, drawn.mask, config.shaping.threshold).sum(1).tolist()
    for example, length, many in zip(new, lengths, chosen, strict=True):
        run.bingo.references[example] = Counts(length - many, many)
