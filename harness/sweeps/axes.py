"""The axes of a sweep: which combinations of their values an arm has, what each sets, and which cells are left out."""

import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

from harness.config.errors import UserError
from harness.config.inheritance import PLUGINS
from harness.config.loading import is_setting
from harness.config.schema import Plugin, RunConfig
from harness.config.sweep import Arm, SweepConfig
from harness.sweeps.flat import flat

__all__ = [
    "check_sweep",
    "combinations",
    "excluded",
    "refuse_idle_exclusions",
    "setting",
    "settings_of",
    "value_label",
]

_TABLES = (*PLUGINS, "policy")
_LABEL = "label"
"""Of a coupled axis' value: what tables call it."""


def combinations(sweep: SweepConfig, arm: Arm) -> Iterator[dict[str, Any]]:
    """Yield {axis: value} for every combination that an arm has: the sweep's axes, then the arm's own."""
    axes = {**sweep.axes, **arm.axes}
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def settings_of(axes: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the settings that the values of axes make, in the order in which they are laid over a run."""
    return [
        {key: item for key, item in value.items() if key != _LABEL} if is_coupled(key) else {key: value}
        for key, value in axes.items()
    ]


def value_label(key: str, value: Any) -> str:
    """Return what tables call the value of a coupled axis, "" for the value of any other axis."""
    if not is_coupled(key):
        return ""
    return value.get(_LABEL) or ",".join(f"{name.split('.')[-1]}={json.dumps(item)}" for name, item in flat(value))


def is_coupled(key: str) -> bool:
    """Whether an axis is a name for settings that change together."""
    return key not in _TABLES and not is_setting(key)


def check_sweep(sweep: SweepConfig) -> None:
    """Refuse names and seeds that are there twice, a baseline that is no arm, and axes that are none.

    Raises:
        UserError: what is wrong, in one line.
    """
    names = [arm.name for arm in sweep.arms]
    for what, values in (("arm", names), ("seed", sweep.seeds)):
        repeated = next((v for i, v in enumerate(values) if v in values[:i]), None)
        if repeated is not None:
            raise UserError(f"{sweep.name}: {what} {repeated!r} is there twice")
    if sweep.baseline is not None and sweep.baseline not in names:
        raise UserError(f"{sweep.name}: baseline {sweep.baseline!r} is no arm (arms: {', '.join(names)})")
    for arm in sweep.arms:
        if "seed" in arm.overrides:
            raise UserError(f"{sweep.name}: arm {arm.name!r} sets seed; every arm runs with all of seeds")
        for key, values in arm.axes.items():
            if key in sweep.axes:
                raise UserError(f"{sweep.name}: axis {key!r} is the sweep's and of arm {arm.name!r}: keep one of them")
            _check_axis(sweep, key, values)
    if "seed" in sweep.base:
        raise UserError(f"{sweep.name}: base.seed is set; list the seeds in seeds")
    for key, values in sweep.axes.items():
        _check_axis(sweep, key, values)
    for key in sweep.conditions:
        if key not in sweep.axes or key.split(".")[0] in ("task", "policy"):
            known = [axis for axis in sweep.axes if axis.split(".")[0] not in ("task", "policy")]
            raise UserError(
                f"{sweep.name}: conditions name {key!r}; they take axes of the sweep beside task and policy, which are "
                f"told apart without it ({', '.join(known) or 'it has none'})"
            )


def _check_axis(sweep: SweepConfig, key: str, values: Sequence[Any]) -> None:
    if key == "seed":
        raise UserError(f"{sweep.name}: axes.seed: list the seeds in seeds")
    if not values:
        raise UserError(f"{sweep.name}: axis {key!r} has no values")
    if is_coupled(key):
        _check_coupled(sweep, key, values)
    if any(value in values[:i] for i, value in enumerate(values)):
        raise UserError(f"{sweep.name}: axis {key!r} has a value twice: {list(values)}")
    if key in _TABLES and not all(isinstance(value, dict) for value in values):
        raise UserError(f"{sweep.name}: axis {key!r} takes tables, for instance [{{ name = {_example(values)} }}]")


def _check_coupled(sweep: SweepConfig, key: str, values: Sequence[Any]) -> None:
    """Refuse an axis that is no setting, unless its values are tables of settings and its name is like no setting's."""
    known = sorted(_setting_keys(RunConfig))
    near = get_close_matches(key, known, n=3)
    tables = all(isinstance(value, dict) and set(value) - {_LABEL} for value in values)
    if near or not tables or "." in key:
        near = near or [k for k in known if k.split(".")[-1] == key.split(".")[-1]]
        near = near or [k for k in known if get_close_matches(key, [k.split(".")[-1]])]
        hint = f"; did you mean {' or '.join(near)}?" if near else f" (settings: {', '.join(known)})"
        raise UserError(
            f"{sweep.name}: axis {key!r} is no setting{hint}; an axis with another name takes tables of settings that "
            "change together"
        )
    for value in values:
        if not isinstance(value.get(_LABEL, ""), str):
            raise UserError(f"{sweep.name}: axis {key!r}: {_LABEL} = {value[_LABEL]!r} should be text")


def _example(values: Sequence[Any]) -> str:
    return json.dumps(next((v for v in values if isinstance(v, str)), "..."))


def _setting_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the dotted keys of all settings; a plug-in and its name are both there."""
    keys: list[str] = []
    for name, item in model.model_fields.items():
        kind = item.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys += [f"{prefix}{name}"] if kind is Plugin else []
            keys += _setting_keys(kind, f"{prefix}{name}.")
        else:
            keys.append(f"{prefix}{name}")
    return keys


def excluded(sweep: SweepConfig, arm: str, axes: Mapping[str, Any], config: RunConfig) -> list[int]:
    """Return the numbers of the tables of ``exclude`` that leave a cell out; none keeps it."""
    plain = config.model_dump(mode="json")
    return [
        number
        for number, table in enumerate(sweep.exclude)
        if all(_matches(key, wanted, arm, axes, plain) for key, wanted in flat(table))
    ]


def refuse_idle_exclusions(sweep: SweepConfig, idle: Collection[int]) -> None:
    """Refuse tables of ``exclude``, by their numbers, that leave nothing out: something else was meant.

    Raises:
        UserError: there is one.
    """
    if idle:
        raise UserError(
            f"{sweep.name}: exclude holds {json.dumps(sweep.exclude[min(idle)])}, which no cell matches: it names arm, "
            "seed, task, policy, an axis or a setting, each with a value or a list of values"
        )


def _matches(key: str, wanted: Any, arm: str, axes: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    found: Any
    if key == "arm":
        found = arm
    elif key in axes and is_coupled(key):
        found = value_label(key, axes[key])
    else:
        found = setting(config, f"{key}.name" if key in _TABLES else key)
    return found in wanted if isinstance(wanted, list) else found == wanted


def setting(tables: Mapping[str, Any], key: str) -> Any:
    """Return the value at a dotted key, None where there is none."""
    value: Any = tables
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
