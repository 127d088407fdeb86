"""Expand a sweep into its cells: arms x axes x seeds. Pure: reads no file, starts nothing."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from harness.config.errors import UserError
from harness.config.loading import apply_overrides, is_setting, resolve_run
from harness.config.paths import file_and_class
from harness.config.schema import Plugin, RunConfig, SweepConfig
from harness.sweeps.files import dump_json, sha256_hex

__all__ = ["Cell", "dump_config", "expand", "key_of", "schedule"]

PLUGINS = ("task", "objective", "trust_region")
_TABLES = (*PLUGINS, "policy")
_KEY_LENGTH = 16


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
        arm: label of the arm, with the values of the axes that are neither of the task nor of the policy.
        base_arm: name of the arm in the sweep.
        task: label of the task.
        policy: label of the policy.
        axes: setting -> value of this cell.
        config: the resolved run.
        identity: everything the cell is a pure function of.
        key: names the cell's folder; a hash of the identity.
        facts: what tables say of the plug-ins: "objective", "region", "delta", "delta_unit".
    """

    arm: str
    base_arm: str
    task: str
    policy: str
    axes: Mapping[str, Any]
    config: RunConfig
    identity: Mapping[str, Any]
    key: str
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def seed(self) -> int:
        """The seed; cells of other arms with the same one are its pairs."""
        return self.config.seed

    @property
    def label(self) -> str:
        """One line for a reader."""
        return f"{self.arm} on {self.task}, {self.policy}, seed {self.seed}"


def dump_config(config: RunConfig) -> dict[str, Any]:
    """Return the run as plain JSON values."""
    return config.model_dump(mode="json")


def key_of(identity: Mapping[str, Any]) -> str:
    """Return the first 16 hexadecimal digits of the identity's hash."""
    return sha256_hex(dump_json(identity).encode())[:_KEY_LENGTH]


def expand(
    sweep: SweepConfig,
    identify: Callable[[RunConfig], Mapping[str, Any]] = dump_config,
    check: Callable[[RunConfig], Mapping[str, Any]] = lambda _: {},
) -> list[Cell]:
    """Return the cells of a sweep in the order of its tables: arms, then axes, then seeds.

    Args:
        sweep: the sweep; an arm's settings win over its base, axes win over both.
        identify: gives what a run is a pure function of.
        check: builds the run's plug-ins, raises UserError if it cannot, and says what tables show of them.

    Raises:
        UserError: an axis is no setting, a run is not valid, or two cells are the same run.
    """
    _check_sweep(sweep)
    cells: list[Cell] = []
    for arm in sweep.arms:
        for values in itertools.product(*sweep.axes.values()):
            axes = dict(zip(sweep.axes, values, strict=True))
            arm_label = " ".join([arm.name, *_describe_axes(axes, sweep, skip=("task", "policy"))])
            tables = apply_overrides(apply_overrides(sweep.base, arm.overrides), axes)
            facts: Mapping[str, Any] | None = None
            for seed in sweep.seeds:
                config = resolve_run({**tables, "seed": seed}, f"{sweep.name}, arm {arm_label}")
                facts = _check(check, config, arm_label) if facts is None else facts
                identity = identify(config)
                labels = (arm_label, arm.name, _task_label(config, axes, sweep), _policy_label(config, axes, sweep))
                cells.append(Cell(*labels, axes, config, identity, _key(identity, arm_label), facts))
    _refuse_duplicates(cells)
    return cells


def schedule(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells in the order to run them: the first seed of every arm, then the second, ..."""
    position: dict[int, int] = {}
    listed = list(cells)
    for cell in listed:
        position.setdefault(cell.seed, len(position))
    return sorted(listed, key=lambda cell: position[cell.seed])


def _check_sweep(sweep: SweepConfig) -> None:
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
    if "seed" in sweep.base:
        raise UserError(f"{sweep.name}: base.seed is set; list the seeds in seeds")
    for key, values in sweep.axes.items():
        _check_axis(sweep, key, values)


def _check_axis(sweep: SweepConfig, key: str, values: list[Any]) -> None:
    if key == "seed":
        raise UserError(f"{sweep.name}: axes.seed: list the seeds in seeds")
    if key not in _TABLES and not is_setting(key):
        known = sorted(_setting_keys(RunConfig))
        near = get_close_matches(key, known, n=3) or [k for k in known if k.split(".")[-1] == key.split(".")[-1]]
        near = near or [k for k in known if get_close_matches(key, [k.split(".")[-1]])]
        hint = f"; did you mean {' or '.join(near)}?" if near else f" (settings: {', '.join(known)})"
        raise UserError(f"{sweep.name}: axis {key!r} is no setting{hint}")
    if not values:
        raise UserError(f"{sweep.name}: axis {key!r} has no values")
    if any(value in values[:i] for i, value in enumerate(values)):
        raise UserError(f"{sweep.name}: axis {key!r} has a value twice: {values}")
    if key in _TABLES and not all(isinstance(value, dict) for value in values):
        raise UserError(f"{sweep.name}: axis {key!r} takes tables, for instance [{{ name = {_example(values)} }}]")


def _example(values: list[Any]) -> str:
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


def _check(check: Callable[[RunConfig], Mapping[str, Any]], config: RunConfig, label: str) -> Mapping[str, Any]:
    try:
        return check(config)
    except UserError as error:
        raise UserError(f"arm {label}: {error}") from error


def _key(identity: Mapping[str, Any], label: str) -> str:
    try:
        return key_of(identity)
    except ValueError as error:
        raise UserError(f"arm {label}: a setting is not a plain finite value ({error})") from error


def _show(value: Any) -> str:
    if isinstance(value, dict):
        settings = [f"{key}={_show(item)}" for key, item in value.items() if key != "name"]
        name = _short(str(value.get("name", "")))
        return name + (f"({', '.join(settings)})" if settings else "")
    return _short(value) if isinstance(value, str) else json.dumps(value)


def _short(name: str) -> str:
    """Leave the folders out of a plug-in's or a policy's name."""
    place = file_and_class(name)
    if place:
        return place[1]
    return Path(name).name if Path(name).is_absolute() else name


def _describe_axes(axes: Mapping[str, Any], sweep: SweepConfig, skip: tuple[str, ...] = ()) -> list[str]:
    """Return "learning_rate=0.0001" for every axis that is not below ``skip``; the full key where that is unclear."""
    last = [key.split(".")[-1] for key in sweep.axes]
    return [
        f"{key.split('.')[-1] if last.count(key.split('.')[-1]) == 1 else key}={_show(value)}"
        for key, value in axes.items()
        if key.split(".")[0] not in skip
    ]


def _task_label(config: RunConfig, axes: Mapping[str, Any], sweep: SweepConfig) -> str:
    """Return the task's name, with its settings where axes give one name several."""
    table = axes.get("task")
    named_alike = [v for v in sweep.axes.get("task", []) if table is not None and v.get("name") == table.get("name")]
    name = _show(table) if len(named_alike) > 1 else _short(config.task.name)
    below = {key: value for key, value in axes.items() if key.startswith("task.") and key != "task.name"}
    return " ".join([name, *_describe_axes(below, sweep)])


def _policy_label(config: RunConfig, axes: Mapping[str, Any], sweep: SweepConfig) -> str:
    """Return the policy's name and start, with its other settings where axes give it several."""
    policy = config.policy
    start = Path(policy.weights).stem if policy.weights else policy.warm_start or ""
    named = {f"policy.{name}" for name in ("name", "weights", "warm_start")}
    below = {key: value for key, value in axes.items() if key.startswith("policy.") and key not in named}
    return " ".join([_short(policy.name) + (f"/{start}" if start else ""), *_describe_axes(below, sweep)])


def _refuse_duplicates(cells: list[Cell]) -> None:
    by_key: dict[str, Cell] = {}
    by_row: dict[tuple[str, str, str, int], Cell] = {}
    for cell in cells:
        twin = by_key.setdefault(cell.key, cell)
        if twin is not cell:
            raise UserError(f"two cells are the same run: {twin.label}; and {cell.label}")
        row = (cell.arm, cell.task, cell.policy, cell.seed)
        if by_row.setdefault(row, cell) is not cell:
            raise UserError(f"two cells would have one row in every table: {cell.label}; name their settings apart")
