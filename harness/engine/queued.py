"""Rollouts between sampling and training, and how a checkpoint holds them."""

import json
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from harness.engine.anchors import AnchorStates
from harness.engine.experience import Experience
from harness.engine.infra import Tally
from harness.engine.judging import Judged

__all__ = ["Queued", "pack", "unpack"]

_GREEDY = ("rewards", "correct", "formatted", "lengths", "finish")


@dataclass(frozen=True)
class Queued:
    """One rollout that waits for its updates.

    Attributes:
        experience: as it was sampled, with what is known of pi_old by then.
        version: iterations that the weights it was sampled with had seen.
        flops: useful FLOPs it has cost so far.
    """

    experience: Experience
    version: int
    flops: int


def pack(queue: Iterable[Queued]) -> tuple[dict[str, Tensor], str]:
    """Return the rollouts as tensors, which share no memory, and a JSON text, for a checkpoint."""
    tensors: dict[str, Tensor] = {}
    facts: list[dict[str, Any]] = []
    for i, one in enumerate(queue):
        held, known = _packed(one.experience)
        tensors |= {f"{i}.{name}": value.clone() for name, value in held.items()}
        facts.append({"experience": known, "version": one.version, "flops": one.flops})
    return tensors, json.dumps(facts)


def unpack(tensors: Mapping[str, Tensor], text: str, head: nn.Module) -> deque[Queued]:
    """Return the rollouts of what ``pack`` returned; ``head`` is the form of an anchor's head, its weights are not."""
    return deque(
        Queued(_unpacked(_below(f"{i}.", tensors), fact["experience"], head), fact["version"], fact["flops"])
        for i, fact in enumerate(json.loads(text))
    )


def _packed(experience: Experience) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a rollout by name, and the rest as plain JSON values."""
    fields = dict(vars(experience))
    tensors = {name: fields.pop(name) for name, value in vars(experience).items() if isinstance(value, Tensor)}
    tensors |= {f"stored.{name}": value for name, value in fields.pop("stored").items()}
    for to, anchor in fields.pop("anchors").items():
        tensors[f"anchors.{to}.states"] = anchor.states
        tensors |= {f"anchors.{to}.head.{name}": value for name, value in anchor.head.state_dict().items()}
    routes = fields.pop("routes")
    fields["routed"] = [list(rows) for rows in routes]
    tensors |= {f"routes.{i}": value for i, value in enumerate(routes.values())}
    greedy = fields.pop("greedy")
    if greedy is not None:
        tensors |= {f"greedy.{name}": getattr(greedy, name) for name in _GREEDY}
    prompts = list(dict.fromkeys(map(tuple, fields.pop("prompts"))))  # a group's is one
    places = {prompt: place for place, prompt in enumerate(prompts)}
    tensors["prompts.tokens"] = torch.tensor([token for prompt in prompts for token in prompt])
    tensors["prompts.sizes"] = torch.tensor([len(prompt) for prompt in prompts])
    tensors["prompts.rows"] = torch.tensor([places[tuple(prompt)] for prompt in experience.prompts])
    for name in ("tally", "greedy_tally"):
        fields[name] = [[*case, count] for case, count in fields[name].items()]
    return tensors, fields


def _unpacked(tensors: Mapping[str, Tensor], facts: Mapping[str, Any], head: nn.Module) -> Experience:
    """Return the rollout of what ``_packed`` returned."""
    fields = {**facts, **{name: value for name, value in tensors.items() if "." not in name}}
    fields["routes"] = {tuple(rows): tensors[f"routes.{i}"] for i, rows in enumerate(fields.pop("routed"))}
    fields["draws"] = [(iteration, key, sample) for iteration, key, sample in facts["draws"]]
    fields["tally"], fields["greedy_tally"] = _tally(facts["tally"]), _tally(facts["greedy_tally"])
    prompts = [part.tolist() for part in tensors["prompts.tokens"].split(tensors["prompts.sizes"].tolist())]
    fields["prompts"] = [prompts[place] for place in tensors["prompts.rows"].tolist()]
    fields["greedy"] = _judged(_below("greedy.", tensors))
    fields["stored"] = _below("stored.", tensors)
    fields["anchors"] = {}
    for name in [name for name in tensors if name.endswith(".states")]:
        to = name.removeprefix("anchors.").removesuffix(".states")
        anchor = AnchorStates.of(tensors[name], head)
        anchor.head.load_state_dict(_below(f"anchors.{to}.head.", tensors))
        fields["anchors"][to] = anchor
    return Experience(**fields)


def _judged(tensors: Mapping[str, Tensor]) -> Judged | None:
    if not tensors:
        return None
    rewards, correct, formatted, lengths, finish = (tensors[name] for name in _GREEDY)
    return Judged(rewards, correct, formatted, lengths, finish)


def _tally(counts: Iterable[tuple[str, str, int]]) -> Tally:
    return Counter({(verdict, reason): count for verdict, reason, count in counts})


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
