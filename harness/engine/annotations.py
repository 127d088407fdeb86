"""What an objective may ask of a rollout besides its numbers: keyed uniforms, ends of steps, the task's steps."""

import numpy as np
import torch
from torch import Tensor

from harness.engine.rollout import Experience
from harness.engine.run import Run
from harness.engine.streams import key

__all__ = ["annotations", "keyed_uniforms"]


def annotations(run: Run, experience: Experience) -> dict[str, Tensor]:
    """Return the fields of ``Rollout`` by that name, those that the run's objective or region asks for."""
    found: dict[str, Tensor] = {}
    if "uniforms" in run.requires:
        found["uniforms"] = keyed_uniforms(run, "objective", run.iteration, experience.mask)
    if "step_ends" in run.requires:
        found["step_ends"] = _step_ends(run, experience)
    if "task_steps" in run.requires:
        found["task_steps"] = _task_steps(run, experience)
    return found


def keyed_uniforms(run: Run, stream: str, step: int, mask: Tensor) -> Tensor:
    """Return uniforms in [0, 1) of the shape of ``mask`` [N, T]; a token's own does not depend on the padded width."""
    rows, width = mask.shape
    bits = np.random.Philox(key=key(run.config.seed, stream, step))
    drawn = np.random.Generator(bits).random((width, rows))  # by columns: more of them change no number
    return torch.from_numpy(drawn.T.copy()).float().to(mask.device)


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
        starts = run.task.step_starts(decode(ids[:length])) or [0]
        offsets = [len(decode(ids[:t])) for t in range(length)]
        steps[row, :length] = torch.from_numpy(np.searchsorted(starts, offsets, side="right") - 1).clamp(min=0)
    return steps
