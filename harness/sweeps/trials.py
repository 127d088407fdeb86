"""The trials of a tuned sweep, which are a sweep themselves: each arm as it stands, and points of its search space."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.config.errors import UserError
from harness.config.loading import apply_overrides, is_setting
from harness.config.sweep import Arm, SweepConfig, TuningConfig
from harness.sweeps.axes import settings_of
from harness.sweeps.flat import flat
from harness.sweeps.search import points

__all__ = ["DECLARED", "Trial", "trial_sweep", "trials_of", "tuning_of"]

DECLARED = 0
"""Number of the trial that is an arm's settings as they stand."""


def tuning_of(sweep: SweepConfig) -> TuningConfig:
    """Return the sweep's tuning, which it has to have."""
    if sweep.tuning is None:
        raise UserError(f"{sweep.name} has no [tuning]")
    return sweep.tuning


@dataclass(frozen=True)
class Trial:
    """Settings to be tried for an arm.

    Attributes:
        arm: its name in the sweep.
        study: from 0.
        number: from 1; ``DECLARED`` is the arm as it stands, which all studies share.
        settings: dotted key -> value, over the arm's own.
    """

    arm: str
    study: int
    number: int
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name of the trial's arm in the sweep of the trials."""
        return f"{self.arm} as declared" if self.number == DECLARED else f"{self.arm} trial {self.study}.{self.number}"


def trials_of(sweep: SweepConfig) -> list[Trial]:
    """Return all trials of a sweep, those of an arm together.

    Raises:
        UserError: a searched setting is an axis too, or is searched both for all arms and for one.
    """
    tuning = tuning_of(sweep)
    trials: list[Trial] = []
    for arm in sweep.arms:
        _check_space(sweep, tuning, arm)
        trials.append(Trial(arm.name, 0, DECLARED, {}))
        for study in range(tuning.studies):
            shared = points(tuning.space, tuning.trials, "shared", study)
            own = points(arm.space, tuning.trials, arm.name, study)
            trials += [
                Trial(arm.name, study, n, {**s, **o}) for n, (s, o) in enumerate(zip(shared, own, strict=True), 1)
            ]
    return trials


def trial_sweep(sweep: SweepConfig) -> SweepConfig:
    """Return the sweep of all trials."""
    tuning, arms = tuning_of(sweep), {arm.name: arm for arm in sweep.arms}
    return SweepConfig.model_validate(
        {
            "name": f"{sweep.name}-tuning",
            "description": f"trials for {sweep.name}",
            "seeds": tuning.seeds,
            "workers": sweep.workers,
            "executor": sweep.executor,
            "base": apply_overrides(sweep.base, tuning.base),
            "axes": sweep.axes,
            "conditions": sweep.conditions,
            "exclude": _of_trials(sweep),
            "arms": [
                {**arms[trial.arm].overrides, **trial.settings, "name": trial.name, "axes": arms[trial.arm].axes}
                for trial in trials_of(sweep)
            ],
        }
    )


def _check_space(sweep: SweepConfig, tuning: TuningConfig, arm: Arm) -> None:
    searched = [key for space in (tuning.space, arm.space) for name in space for key in (name, *space[name].also)]
    twice = [key for place, key in enumerate(searched) if key in searched[:place]]
    if twice:
        raise UserError(
            f"{sweep.name}: {twice[0]!r} is searched twice for {arm.name!r} (spaces of the arm and of tuning): keep one"
        )
    axes = {**sweep.axes, **arm.axes}
    made = [table for axis, values in axes.items() for value in values for table in settings_of({axis: value})]
    varied = {key for table in made for key, _ in flat(table)}
    for key in searched:
        if not is_setting(key):
            raise UserError(
                f"{sweep.name}: {key!r} is searched and no setting: give a dotted key, e.g. update.learning_rate"
            )
        if key in varied:
            raise UserError(f"{sweep.name}: {key!r} is searched and an axis: keep one of them")
    unknown = [key for key in tuning.per if key not in axes and key not in _all_axes(sweep)]
    if unknown:
        raise UserError(
            f"{sweep.name}: tuning.per names {unknown[0]!r}, which is no axis ({', '.join(_all_axes(sweep))})"
        )


def _all_axes(sweep: SweepConfig) -> list[str]:
    return sorted({*sweep.axes, *(key for arm in sweep.arms for key in arm.axes)})


def _of_trials(sweep: SweepConfig) -> list[dict[str, Any]]:
    """Return what is left out of the trials: what is left out of the sweep whatever the seed."""
    names: dict[str, list[str]] = {}
    for trial in trials_of(sweep):
        names.setdefault(trial.arm, []).append(trial.name)
    found: list[dict[str, Any]] = []
    for table in sweep.exclude:
        if "seed" not in table:
            arms = table.get("arm", [])
            arms = [arms] if isinstance(arms, str) else arms
            mapped = {"arm": [name for arm in arms for name in names.get(arm, [])]} if "arm" in table else {}
            found.append({**table, **mapped})
    return found
