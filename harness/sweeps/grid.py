"""Expand a sweep into its cells: arms x axes x seeds. Pure: reads no file, starts nothing."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from harness.config.errors import UserError
from harness.config.loading import apply_overrides, resolve_run
from harness.config.paths import file_and_class
from harness.config.schema import RunConfig
from harness.config.sweep import SweepConfig
from harness.sweeps.axes import check_sweep, combinations, excluded, refuse_idle_exclusions, settings_of, value_label
from harness.sweeps.files import dump_json, sha256_hex

__all__ = ["Cell", "dump_config", "expand", "key_of", "schedule"]

_KEY_LENGTH = 16


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
        arm: label of the arm, with the values of the axes that are neither conditions nor of the task or policy.
        base_arm: name of the arm in the sweep.
        task: label of the task, with the condition behind it.
        policy: label of the policy.
        axes: setting -> value of this cell.
        config: the resolved run.
        identity: everything the cell is a pure function of.
        key: names the cell's folder; a hash of the identity.
        facts: what tables say of the plug-ins: "objective", "region", "delta", "delta_unit".
        condition: values of the axes that the sweep names as conditions, as "epochs=4"; "" without any.
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
    condition: str = ""

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
    tuned: Callable[[str, Mapping[str, Any], int], Mapping[str, Any]] | None = None,
) -> list[Cell]:
    """Return the cells of a sweep in the order of its tables: arms, then axes, then seeds.

    Args:
        sweep: the sweep; an arm's settings win over its base, axes win over both.
        identify: gives what a run is a pure function of.
        check: builds the run's plug-ins, raises UserError if it cannot, and says what tables show of them.
        tuned: gives the settings that tuning found for (arm, axes, seed); they win over all others.

    Raises:
        UserError: an axis is no setting, a run is not valid, an exclusion says nothing, or two cells are the same run.
    """
    check_sweep(sweep)
    cells: list[Cell] = []
    idle = set(range(len(sweep.exclude)))
    for arm in sweep.arms:
        for axes in combinations(sweep, arm):
            shown = {key: value for key, value in axes.items() if key.split(".")[0] not in ("task", "policy")}
            apart = {key: shown.pop(key) for key in sweep.conditions}
            arm_label = " ".join([arm.name, *_describe_axes(shown, axes)])
            condition = " ".join(_describe_axes(apart, axes))
            tables = reduce(apply_overrides, [sweep.base, arm.overrides, *settings_of(axes)])
            facts: Mapping[str, Any] | None = None
            for seed in sweep.seeds:
                source = f"{sweep.name}, arm {arm_label}"
                config = resolve_run({**tables, "seed": seed}, source)
                left_out = excluded(sweep, arm.name, axes, config)
                idle -= set(left_out)
                if left_out:
                    continue
                found = tuned(arm.name, axes, seed) if tuned else {}
                if found:
                    config = resolve_run({**apply_overrides(tables, found), "seed": seed}, source)
                facts = _check(check, config, arm_label) if facts is None or found else facts
                identity = identify(config)
                task = " ".join([_task_label(config, axes, sweep), *([condition] if condition else [])])
                labels = (arm_label, arm.name, task, _policy_label(config, axes))
                cells.append(Cell(*labels, axes, config, identity, _key(identity, arm_label), facts, condition))
    refuse_idle_exclusions(sweep, idle)
    _refuse_duplicates(cells)
    return cells


def schedule(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells in the order to run them: the first seed of every arm, then the second, ..."""
    position: dict[int, int] = {}
    listed = list(cells)
    for cell in listed:
        position.setdefault(cell.seed, len(position))
    return sorted(listed, key=lambda cell: position[cell.seed])


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


def _describe_axes(axes: Mapping[str, Any], beside: Iterable[str]) -> list[str]:
    """Return "learning_rate=0.0001" for every axis; the full key where that is unclear.

    Args:
        axes: axis -> value.
        beside: axes whose names these are to be told from.
    """
    last = [key.split(".")[-1] for key in {*axes, *beside}]
    names = {key: key.split(".")[-1] if last.count(key.split(".")[-1]) == 1 else key for key in axes}
    return [f"{names[key]}={value_label(key, value) or _show(value)}" for key, value in axes.items()]


def _task_label(config: RunConfig, axes: Mapping[str, Any], sweep: SweepConfig) -> str:
    """Return the task's name, with its settings where axes give one name several."""
    table = axes.get("task")
    named_alike = [v for v in sweep.axes.get("task", []) if table is not None and v.get("name") == table.get("name")]
    name = _show(table) if len(named_alike) > 1 else _short(config.task.name)
    below = {key: value for key, value in axes.items() if key.startswith("task.") and key != "task.name"}
    return " ".join([name, *_describe_axes(below, axes)])


def _policy_label(config: RunConfig, axes: Mapping[str, Any]) -> str:
    """Return the policy's name and start, with its other settings where axes give it several."""
    policy = config.policy
    start = Path(policy.weights).stem if policy.weights else policy.warm_start or ""
    named = {f"policy.{name}" for name in ("name", "weights", "warm_start")}
    below = {key: value for key, value in axes.items() if key.startswith("policy.") and key not in named}
    return " ".join([_short(policy.name) + (f"/{start}" if start else ""), *_describe_axes(below, axes)])


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
