"""What a sweep is made of: arms x axes x seeds over a common base, cells left out, and how arms are tuned. No torch."""

import math
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from harness.config.executor import ExecutorConfig
from harness.config.parts import Section

__all__ = ["Arm", "Range", "SweepConfig", "TuningConfig"]

Scalar = str | int | float | bool


class Range(Section):
    """Where a setting is searched: an interval, or a list of values."""

    low: float | None = None
    high: float | None = None
    scale: Literal["log", "linear"] = Field("log", description="in which trials lie evenly")
    integer: bool = Field(False, description="rounded to whole numbers")
    values: list[Scalar] | None = Field(None, min_length=2, description="in place of an interval; each equally likely")
    also: list[str] = Field(default_factory=list, description="settings that take the same value, e.g. the other clip")

    @model_validator(mode="after")
    def _one_of_both(self) -> "Range":
        if self.values is not None:
            if self.low is not None or self.high is not None:
                raise ValueError("a search takes values, or low and high")
            return self
        if self.low is None or self.high is None:
            raise ValueError("a search needs low and high, or values, e.g. { low = 1e-5, high = 1e-3 }")
        if not self.low < self.high:
            raise ValueError(f"low = {self.low:g} is not below high = {self.high:g}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f'low = {self.low:g} has no logarithm: take scale = "linear", or a low above 0')
        if self.integer and math.floor(self.high) < math.ceil(self.low):
            raise ValueError(f"no whole number lies between low = {self.low:g} and high = {self.high:g}")
        return self


class Arm(BaseModel):
    """One column of a comparison: a name and the settings that make it, as tables or dotted keys of a run."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: str = Field(min_length=1)
    axes: dict[str, list[Any]] = Field(default_factory=dict, description="axes of this arm alone, beside the sweep's")
    space: dict[str, Range] = Field(default_factory=dict, description="what is searched for this arm alone")

    @property
    def overrides(self) -> dict[str, Any]:
        """All keys but these."""
        return dict(self.model_extra or {})


class TuningConfig(Section):
    """How arms are tuned before the sweep: as many trials for each, selection on validation, on seeds of their own.

    Trials lie in the shared space and the arm's own by quasi-random numbers (Sobol); the arm's settings as they stand
    are one more trial. A trial that fails has the worst score.
    """

    trials: int = Field(8, ge=1, description="an arm and study, beside the arm's settings as they stand")
    studies: int = Field(1, ge=1, description="independent draws of trials; seeds take their optima in turn")
    seeds: list[int] = Field(min_length=1, description="of the trials; none of the sweep's own")
    per: list[str] = Field(default_factory=list, description="axes whose values are tuned apart")
    space: dict[str, Range] = Field(default_factory=dict, description="dotted key of a run -> where it is searched")
    base: dict[str, Any] = Field(default_factory=dict, description="settings of the trials, e.g. a smaller budget")


class SweepConfig(Section):
    """A grid of runs: arms x axes x seeds over a common base."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="name of the study")
    description: str = ""
    baseline: str | None = Field(None, description="arm that differences are taken to; the first one if not given")
    seeds: list[int] = Field(min_length=1, description="paired: every arm runs with each of them")
    workers: int = Field(2, ge=1, description="cells at a time, a process each")
    executor: ExecutorConfig = ExecutorConfig()  # pyright: ignore[reportCallIssue]
    base: dict[str, Any] = Field(default_factory=dict, description="a run's tables, common to all cells")
    arms: list[Arm] = Field(min_length=1)
    axes: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="dotted key of a run -> its values; or another name -> tables of settings that change together",
    )
    conditions: list[str] = Field(
        default_factory=list,
        description="axes whose values are told apart like tasks: arms are compared within each, not across them",
    )
    exclude: list[dict[str, Any]] = Field(
        default_factory=list,
        description="cells to leave out: each table names an arm, a seed or settings, with a value or a list of values",
    )
    tuning: TuningConfig | None = None

    @field_validator("exclude")
    @classmethod
    def _not_all(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if {} in value:
            raise ValueError("an empty table leaves out every cell")
        return value

    @model_validator(mode="after")
    def _seeds_apart(self) -> "SweepConfig":
        if self.tuning is None:
            spaces = [arm.name for arm in self.arms if arm.space]
            if spaces:
                raise ValueError(f"arm {spaces[0]!r} has a search space and the sweep no [tuning]: add its seeds")
            return self
        both = sorted({*self.seeds} & {*self.tuning.seeds})
        if both:
            raise ValueError(f"tuning.seeds and seeds share {_listed(both)}: settings are chosen on seeds of their own")
        bare = [arm.name for arm in self.arms if not (arm.space or self.tuning.space)]
        if bare:
            raise ValueError(f"nothing is searched for arm {bare[0]!r}: give tuning.space or the arm's space")
        return self


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
