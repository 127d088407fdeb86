"""The plug-ins of a run, checked against each other and against what the engine provides."""

from harness import plugins
from harness.compatibility import check_run
from harness.config.errors import UserError
from harness.config.schema import RunConfig
from objectives import Objective
from objectives.trust_region import TrustRegion
from tasks.base import Task

__all__ = ["build_plugins"]

_PROVIDED = frozenset(
    {
        "correct",
        "entropy",
        "exact_kl_new_old",
        "exact_kl_new_ref",
        "exact_kl_old",
        "exact_kl_ref",
        "greedy_rewards",
        "old_entropy",
        "old_values",
        "projection_gap",
        "prompt",
        "ref_logprobs",
        "returns",
        "rollout_logprobs",
        "step_ends",
        "step_logprobs",
        "step_uniforms",
        "task_steps",
        "teacher_logprobs",
        "uniforms",
        "window_mask",
        "values",
    }
)


def build_plugins(config: RunConfig) -> tuple[Task, Objective, TrustRegion]:
    """Return task, objective and trust region, checked against the schedule and each other.

    Raises:
        UserError: unknown plug-in or setting, or a combination that cannot mean what it says.
    """
    check_run(config)
    task = plugins.task(config.task)
    objective = plugins.objective(config.objective)
    region = plugins.trust_region(config.trust_region)
    unmet = (objective.requires | region.requires) - _PROVIDED
    if unmet:
        raise UserError(
            f"{config.objective.name!r} with {config.trust_region.name!r} needs {', '.join(sorted(unmet))}, which this "
            f"engine does not provide (it provides {', '.join(sorted(_PROVIDED))})"
        )
    if "task_steps" in objective.requires and type(task).step_starts is Task.step_starts:
        raise UserError(
            f"{config.objective.name!r} reads the steps of a response; task {config.task.name!r} names none"
        )
    return task, objective, region
