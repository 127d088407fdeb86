"""What an objective may ask of a rollout besides its numbers: keyed uniforms, ends of steps, the task's steps."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from harness.config.errors import UserError
from harness.engine.experience import Experience
from harness.engine.run import Run
from harness.engine.streams import key
from tasks.base import Task, step_fault

__all__ = ["annotations", "keyed_uniforms"]


def annotations(run: Run, experience: Experience) -> dict[str, Tensor]:
    """Return the fields of ``Rollout`` by that name, those that the run's objective or region asks for."""
    found: dict[str, Tensor] = {}
    if "uniforms" in run.requires:
        found["uniforms"] = keyed_uniforms(run, experience, "objective", run.iteration)
    if "step_ends" in run.requires:
        found["step_ends"] = _step_ends(run, experience)
    if "task_steps" in run.requires:
        found["task_steps"] = _task_steps(run, experience)
    return found


def keyed_uniforms(run: Run, experience: Experience, stream: str, step: int) -> Tensor:
    """Return uniforms [N, T] in [0, 1); a token's own is made of (seed, stream, step, prompt, sample, position)."""
    rows, width = experience.mask.shape
    drawn = np.empty((rows, width))
    for row, sample in enumerate(_samples(experience)):
        bits = np.random.Philox(key=key(run.config.seed, stream, step, *sample))
        drawn[row] = np.random.Generator(bits).random(width)
    below_one = np.minimum(drawn, 1 - 2.0**-24)  # what is above would be rounded to 1 in float32
    return torch.from_numpy(below_one).float().to(experience.mask.device)


def _samples(experience: Experience) -> list[tuple[str, int, int, int]]:
    """Return (example, origin, visit, sample) of every row: which of a prompt's responses it is, wherever it stands."""
    found: list[tuple[str, int, int, int]] = []
    groups: dict[tuple[str, int], list[int]] = {}
    members: Counter[int] = Counter()
    facts = zip(experience.examples, experience.origin.tolist(), experience.group.tolist(), strict=True)
    for example, origin, group in facts:
        visits = groups.setdefault((example, origin), [])
        if group not in visits:
            visits.append(group)
        found.append((example, origin, visits.index(group), members[group]))
        members[group] += 1
    return found


def _step_ends(run: Run, experience: Experience) -> Tensor:
    """Return [N, T] bool, tokens whose text ends with one of ``rollout.delimiters``."""
    delimiters = tuple(run.config.rollout.delimiters)
    ids = experience.ids.unique().tolist()
    ends = [i for i in ids if run.policy.tokenizer.decode([i]).endswith(delimiters)]
    return torch.isin(experience.ids, torch.tensor(ends, dtype=experience.ids.dtype, device=experience.ids.device))


def _task_steps(run: Run, experience: Experience) -> Tensor:
    """Return [N, T] int64, the task's step that each token begins in."""
    steps = torch.zeros_like(experience.ids)
    decode = run.policy.tokenizer.decode
    for row, (ids, length) in enumerate(zip(experience.ids.tolist(), experience.lengths, strict=True)):
        starts = _starts(run.task, decode(ids[:length])) or [0]
        sizes = [len(decode([token])) for token in ids[:length]]
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if sizes else []
        steps[row, :length] = torch.from_numpy(np.searchsorted(starts, offsets, side="right") - 1).clamp(min=0)
    return steps


def _starts(task: Task, response: str) -> Sequence[int] | None:
    """Return the task's own steps; UserError where it raises or they are no steps."""
    where = f"step_starts of task {type(task).__name__} on the response {response[:40]!a}"
    try:
        starts = task.step_starts(response)
        fault = step_fault(starts, response)
    except (Exception, SystemExit) as error:  # somebody's task may raise anything
        raise UserError(
            f"{where} raises {type(error).__name__}: {' '.join(str(error).split())}; see evengrad check"
        ) from error
    if fault is not None:
        raise UserError(f"{where} returned {ascii(starts)[:60]}, expected {fault}; see evengrad check")
    return starts
