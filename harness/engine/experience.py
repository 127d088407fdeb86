"""Sampled and scored responses, before any pass of the trainer; fresh ones, and what joins them."""

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.engine.anchors import AnchorStates
from harness.engine.infra import Tally, verdicts
from harness.engine.judging import Judged
from objectives import Finish, Origin
from objectives.trust_region.measured import Anchor

__all__ = ["Experience", "joined"]


@dataclass
class Experience:
    """Sampled and scored responses.

    Attributes:
        prompts: token ids of each row's prompt.
        examples: id of each row's example.
        draws: (iteration, key, sample) that a row's noise is made of.
        group: [N] int64; a prompt's replayed or continued responses have a group of their own.
        prompt_of_row: [N] int64, the group that stands for the row's prompt: what minibatches are dealt by.
        origin: [N] int8.
        begin: [N] int64, the first token that was sampled in this iteration.
        ids: [N, T] int64.
        mask: [N, T] bool.
        logprobs: [N, T] float32, of the tokens as the sampler drew them.
        finish: [N] int8.
        rewards: [N] float32, NaN for infrastructure failures, 0 for responses that the window cut off.
        correct: [N] float32, 1 for the verdict "pass", NaN for "infra" and for responses that the window cut off.
        formatted: [N] float32, 0 for the verdict "format", else 1; NaN as in ``correct``.
        greedy_rewards: [N] float32, of the greedy response to each row's prompt; None unless the objective reads it.
        greedy: the verdicts and lengths that belong to ``greedy_rewards``.
        shaped_rewards: [N] float32, what the objective sees in place of ``rewards``; None without shaping.
        stored: [N, T] "old_logprobs" and "old_entropy" of tokens sampled in earlier iterations; empty without any.
        anchors: what exact divergences are taken to, if any is required.
        routes: the experts that the old policy chose in its pass over a micro-batch, by its rows, [L, N, k] each
            (``routing``); empty of a dense policy.
        tally: verdicts and reasons of the responses that ended in this iteration, of rejected groups too.
        greedy_tally: the same of the greedy responses.
        cursor: position in the stream of prompts after this rollout.
        lag: iterations between the weights that sampled it and those that its updates began with.
        num_rejected: groups that were sampled and not used.
        prompt_metrics: what the log says of the choice of prompts.
    """

    prompts: list[list[int]]
    examples: list[str]
    draws: list[tuple[int, str, int]]
    group: Tensor
    prompt_of_row: Tensor
    origin: Tensor
    begin: Tensor
    ids: Tensor
    mask: Tensor
    logprobs: Tensor
    finish: Tensor
    rewards: Tensor
    correct: Tensor
    formatted: Tensor
    greedy_rewards: Tensor | None = None
    greedy: Judged | None = None
    shaped_rewards: Tensor | None = None
    stored: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    anchors: dict[Anchor, AnchorStates] = field(default_factory=dict[Anchor, AnchorStates])
    routes: dict[tuple[int, ...], Tensor] = field(default_factory=dict[tuple[int, ...], Tensor])
    tally: Tally = field(default_factory=Counter)
    greedy_tally: Tally = field(default_factory=Counter)
    cursor: int = 0
    lag: int = 0
    num_rejected: int = 0
    prompt_metrics: dict[str, float | None] = field(default_factory=dict[str, float | None])

    @property
    def verdicts(self) -> Counter[str]:
        """Responses of ``tally`` by verdict."""
        return verdicts(self.tally)

    @property
    def infra_share(self) -> float:
        """Share of all responses judged in this iteration that could not be scored; NaN where none was judged."""
        found = verdicts(self.tally + self.greedy_tally)
        return found["infra"] / found.total() if found.total() else float("nan")

    @property
    def judged(self) -> Judged:
        """Return the rows as their judge left them."""
        return Judged(self.rewards, self.correct, self.formatted, self.mask.sum(1), self.finish)

    @property
    def lengths(self) -> list[int]:
        """Response tokens of each row."""
        return self.mask.sum(1).tolist()

    @property
    def leads(self) -> list[bool]:
        """Whether a row is the first one of its prompt."""
        first: dict[int, int] = {}
        prompts = self.prompt_of_row.tolist()
        return [first.setdefault(prompt, place) == place for place, prompt in enumerate(prompts)]

    @property
    def window_mask(self) -> Tensor:
        """[N, T] bool, tokens sampled in this iteration."""
        columns = torch.arange(self.mask.shape[1], device=self.mask.device)
        return self.mask & (columns >= self.begin[:, None]) & (self.origin != Origin.REPLAY)[:, None]

    @property
    def ended(self) -> Tensor:
        """[N] bool, responses of this iteration that have ended: what a rollout shows of the policy."""
        return (self.finish != Finish.WINDOW) & (self.origin != Origin.REPLAY)


def joined(first: Experience, second: Experience, pad_id: int) -> Experience:
    """Return the rows of ``second`` under those of ``first``, padded to one width; counts are of both.

    Groups of ``second`` are numbered after those of ``first``; its ``prompt_of_row`` is taken as it stands. Anchors are
    those of ``first``.
    """
    width = max(first.ids.shape[1], second.ids.shape[1])

    def wide(tensor: Tensor, fill: float = 0.0) -> Tensor:
        return pad(tensor, (0, width - tensor.shape[1]), value=fill)

    def rows(name: str) -> Tensor:
        return torch.cat([getattr(first, name), getattr(second, name)])

    def tokens(name: str, fill: float = 0.0) -> Tensor:
        return torch.cat([wide(getattr(first, name), fill), wide(getattr(second, name), fill)])

    stored = {
        name: torch.cat([wide(part.stored.get(name, torch.zeros_like(part.logprobs))) for part in (first, second)])
        for name in sorted({*first.stored, *second.stored})
    }
    both = None if first.greedy is None or second.greedy is None else first.greedy.joined(second.greedy)
    known = first.greedy_rewards is not None and second.greedy_rewards is not None
    return Experience(
        prompts=[*first.prompts, *second.prompts],
        examples=[*first.examples, *second.examples],
        draws=[*first.draws, *second.draws],
        group=torch.cat([first.group, second.group + int(first.group.max()) + 1]),
        prompt_of_row=torch.cat([first.prompt_of_row, second.prompt_of_row]),
        origin=rows("origin"),
        begin=rows("begin"),
        ids=tokens("ids", pad_id),
        mask=tokens("mask"),
        logprobs=tokens("logprobs"),
        finish=rows("finish"),
        rewards=rows("rewards"),
        correct=rows("correct"),
        formatted=rows("formatted"),
        greedy_rewards=rows("greedy_rewards") if known else None,
        greedy=both,
        stored=stored,
        routes=first.routes,
        anchors={to: anchor.extended(len(second.prompts), width) for to, anchor in first.anchors.items()},
        tally=first.tally + second.tally,
        greedy_tally=first.greedy_tally + second.greedy_tally,
        cursor=first.cursor,
        lag=first.lag,
        num_rejected=first.num_rejected + second.num_rejected,
        prompt_metrics=first.prompt_metrics,
    )
