"""Parts of a run that any objective can use: replay, shaped rewards, behaviour correction. Imports no torch."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["CorrectionConfig", "ReplayConfig", "Section", "ShapingConfig"]


class Section(BaseModel):
    """A table of a configuration: unknown keys are errors, values are not coerced from strings."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ReplayConfig(Section):
    """Replay of earlier responses to a rollout's prompts; RePO (arXiv:2506.09340) is made of this and GRPO."""

    strategy: Literal["none", "all", "random_k", "highest_k", "recent_k", "max_variance_k"] = Field(
        "none", description="which of a prompt's remembered responses join its rollout"
    )
    num_replays: int = Field(8, ge=1, description="responses a prompt at most (k); strategy all replays all")
    min_cache: int = Field(16, ge=1, description="remembered responses from which a prompt is replayed")
    max_cache: int = Field(16, ge=1, description="responses remembered a prompt, first in first out")

    @model_validator(mode="after")
    def _reachable(self) -> "ReplayConfig":
        if self.min_cache > self.max_cache:
            raise ValueError(
                f"replay.min_cache = {self.min_cache} is above replay.max_cache = {self.max_cache}: nothing would ever "
                "be replayed"
            )
        return self


class ShapingConfig(Section):
    """What a task's reward is turned into before the objective sees it. Defaults: Bingo's released script."""

    name: Literal["none", "bingo"] = Field("none", description="none, or Bingo's length reward (arXiv:2506.08125)")
    right_coef: float = Field(5.0, ge=0, description="bonus of a short right answer (lambda_c)")
    wrong_coef: float = Field(2.0, ge=0, description="for insignificant tokens of a wrong answer (lambda_wn)")
    significant_coef: float = Field(5.0, ge=0, description="for significant tokens of a wrong answer (lambda_we)")
    threshold: float = Field(0.5, ge=0, le=1, description="normalised surprisal from which a token is significant")
    slope_start: int = Field(50, ge=1, description="rollouts before the weight of significant tokens follows the score")
    slope_rollouts: int = Field(10, ge=2, description="rollouts that the slope of the score is taken over")
    slope_threshold: float = Field(2.5, ge=0, description="in units of the first slope: above it the score climbs")


class CorrectionConfig(Section):
    """Behaviour correction: weigh the policy loss by pi_old / mu, the trainer's over the sampler's probabilities."""

    level: Literal["none", "token", "sequence"] = Field("none", description="ratio of each token, or of the response")
    mode: Literal["truncate", "mask"] = Field("truncate", description="bound the ratio, or drop what lies outside")
    low: float = Field(0.0, ge=0, description="lower bound of the ratio")
    high: float = Field(2.0, gt=0, description="upper bound of the ratio; 2 is that of truncated importance sampling")

    @model_validator(mode="after")
    def _ordered(self) -> "CorrectionConfig":
        if self.low > self.high:
            raise ValueError(f"correction.low = {self.low:g} is above correction.high = {self.high:g}")
        return self
