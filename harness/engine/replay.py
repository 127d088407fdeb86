"""A replay buffer: earlier responses to the prompts of a rollout, with the log-probabilities they were drawn with.

Any objective can use it. Replayed rows join a rollout with origin "replay" and groups of their own, in the minibatch of
their prompt's fresh group. A response is never replayed in the iteration that made it.
"""

import json
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.config.parts import ReplayConfig
from harness.engine.experience import Experience, joined
from harness.engine.streams import key
from objectives import Origin, Rollout

__all__ = ["Memory", "Replay", "add_replays"]

_PER_TOKEN = ("ids", "logprobs", "old_logprobs", "old_entropy")
_FACTS = ("reward", "correct", "finish", "formatted")


@dataclass(frozen=True)
class Memory:
    """One remembered response.

    Attributes:
        tensors: by name [n], one entry a token: "ids", "logprobs" of the sampler, "old_logprobs", "old_entropy".
        reward: as it was.
        correct: as it was.
        finish: as it was.
        formatted: as it was.
    """

    tensors: Mapping[str, Tensor]
    reward: float
    correct: float
    finish: int
    formatted: float = math.nan


@dataclass
class Replay:
    """First in, first out, per prompt.

    Attributes:
        config: sizes and strategy.
        seed: of the run.
        memories: example id -> its responses, oldest first.
    """

    config: ReplayConfig
    seed: int
    memories: dict[str, deque[Memory]] = field(default_factory=dict[str, deque[Memory]])

    def recall(self, example: str, iteration: int) -> list[Memory]:
        """Return what to replay for an example now; nothing while it has fewer than ``min_cache`` responses."""
        held = list(self.memories.get(example, ()))
        count = min(len(held), self.config.num_replays)
        if self.config.strategy == "none" or len(held) < self.config.min_cache or not count:
            return []
        return [held[place] for place in self._choose(held, count, example, iteration)]

    def _choose(self, held: Sequence[Memory], count: int, example: str, iteration: int) -> list[int]:
        rewards = [memory.reward for memory in held]
        places = list(range(len(held)))
        if self.config.strategy == "all":
            return places
        if self.config.strategy == "recent_k":
            return places[-count:]
        if self.config.strategy == "highest_k":  # ties: the oldest first, as the buffer holds them
            return sorted(places, key=lambda place: -rewards[place])[:count]
        if self.config.strategy == "random_k":
            bits = np.random.Philox(key=key(self.seed, "replay", iteration, example))
            return sorted(int(i) for i in np.random.Generator(bits).permutation(len(held))[:count])
        # max_variance_k: some of the lowest and the rest of the highest; ties by the larger sum
        ranked = sorted(places, key=lambda place: rewards[place])
        subsets = [ranked[:low] + ranked[len(ranked) - count + low :] for low in range(count + 1)]
        return sorted(max(subsets, key=lambda chosen: _variance_and_sum([rewards[place] for place in chosen])))

    def push(self, experience: Experience, rollout: Rollout) -> None:
        """Remember the fresh responses with a known reward."""
        assert rollout.old_entropy is not None
        found = {
            "ids": experience.ids,
            "logprobs": experience.logprobs,
            "old_logprobs": rollout.old_logprobs,
            "old_entropy": rollout.old_entropy,
        }
        lengths = experience.lengths
        for row in (experience.origin == Origin.FRESH).nonzero()[:, 0].tolist():
            length, reward = lengths[row], float(experience.rewards[row])
            if math.isnan(reward):
                continue
            tensors = {name: value[row, :length].detach().clone() for name, value in found.items()}
            memory = Memory(
                tensors,
                reward,
                correct=float(experience.correct[row]),
                finish=int(experience.finish[row]),
                formatted=float(experience.formatted[row]),
            )
            example = experience.examples[row]
            self.memories.setdefault(example, deque(maxlen=self.config.max_cache)).append(memory)

    def state(self) -> tuple[dict[str, Tensor], str]:
        """Return the buffer as tensors and a JSON text, for a checkpoint."""
        tensors: dict[str, Tensor] = {}
        facts: dict[str, list[dict[str, Any]]] = {}
        for number, (example, held) in enumerate(self.memories.items()):
            facts[example] = [{name: getattr(m, name) for name in _FACTS} for m in held]
            tensors |= {f"{number}.{i}.{name}": m.tensors[name] for i, m in enumerate(held) for name in _PER_TOKEN}
        return tensors, json.dumps(facts)

    def restore(self, tensors: Mapping[str, Tensor], text: str) -> None:
        """Go on from what ``state`` returned."""
        self.memories = {}
        for number, (example, facts) in enumerate(json.loads(text).items()):
            held = deque[Memory](maxlen=self.config.max_cache)
            for i, fact in enumerate(facts):
                held.append(Memory({name: tensors[f"{number}.{i}.{name}"] for name in _PER_TOKEN}, **fact))
            self.memories[example] = held


def _variance_and_sum(rewards: Sequence[float]) -> tuple[float, float]:
    mean = sum(rewards) / len(rewards)
    return sum((reward - mean) ** 2 for reward in rewards) / len(rewards), sum(rewards)


def add_replays(experience: Experience, replay: Replay, iteration: int, pad_id: int) -> Experience:
    """Return ``experience`` with what ``replay`` recalls for its prompts under it; itself if that is nothing."""
    rows: list[tuple[int, Memory]] = []  # a row of the prompt's fresh group, and what to replay
    recalled: set[str] = set()
    for group in range(int(experience.group.max()) + 1):
        first = int((experience.group == group).nonzero()[0, 0])
        example = experience.examples[first]
        if example not in recalled:  # a prompt that stands in the rollout twice is replayed once
            recalled.add(example)
            rows += [(first, memory) for memory in replay.recall(example, iteration)]
    if not rows:
        return experience
    firsts, memories = [first for first, _ in rows], [memory for _, memory in rows]
    fresh_group = experience.group[firsts]
    numbers = {int(group): place for place, group in enumerate(fresh_group.unique())}
    width = max(len(memory.tensors["ids"]) for memory in memories)

    def stack(name: str, fill: float) -> Tensor:
        found = [memory.tensors[name] for memory in memories]
        return torch.stack([torch.nn.functional.pad(one, (0, width - len(one)), value=fill) for one in found])

    lengths = torch.tensor([len(memory.tensors["ids"]) for memory in memories])
    greedy = experience.greedy_rewards
    replayed = Experience(
        prompts=[experience.prompts[first] for first in firsts],
        examples=[experience.examples[first] for first in firsts],
        draws=[experience.draws[first] for first in firsts],
        group=torch.tensor([numbers[int(group)] for group in fresh_group]),
        prompt_of_row=fresh_group,
        origin=torch.full((len(rows),), int(Origin.REPLAY), dtype=torch.int8),
        begin=torch.zeros(len(rows), dtype=torch.int64),
        ids=stack("ids", pad_id),
        mask=torch.arange(width) < lengths[:, None],
        logprobs=stack("logprobs", 0.0),
        finish=torch.tensor([memory.finish for memory in memories], dtype=torch.int8),
        rewards=torch.tensor([memory.reward for memory in memories]),
        correct=torch.tensor([memory.correct for memory in memories]),
        formatted=torch.tensor([memory.formatted for memory in memories]),
        greedy_rewards=None if greedy is None else greedy[firsts],
        greedy=None if experience.greedy is None else experience.greedy.rows(torch.tensor(firsts)),
        stored={name: stack(name, 0.0) for name in ("old_logprobs", "old_entropy")},
    )
    return joined(experience, replayed, pad_id)
