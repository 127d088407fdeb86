"""Parts of a run that any objective can use: prompts, replay, shaped rewards, correction. Imports no torch.

``used`` of a table names the settings that have an effect: the others are not in a cell's key.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["CorrectionConfig", "PromptsConfig", "ReplayConfig", "Section", "ShapingConfig"]


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


class PromptsConfig(Section):
    """Which prompts of the task a run trains on, and in what order; what is passed over costs nothing."""

    difficulties: list[str] = Field(
        default_factory=list, description="train on examples with these difficulty labels only; empty for all"
    )
    order: Literal["shuffled", "easy_to_hard"] = Field(
        "shuffled", description="all prompts from the start, or the easy ones first and more as the budget is spent"
    )
    difficulty_order: list[str] = Field(
        default_factory=list,
        description="labels from easy to hard; empty for the order of their names, numbers in them as numbers",
    )
    pacing: Literal["root", "linear"] = Field(
        "root", description="how the open share of the prompts grows with the budget (arXiv:1903.09848)"
    )
    start_share: float = Field(0.01, gt=0, le=1, description="open share of the prompts at the start (their c0)")
    open_at: float = Field(1.0, gt=0, le=1, description="share of the budget from which all prompts are open (their T)")
    min_pass_rate: float = Field(0.0, ge=0, le=1, description="a prompt whose last group was right less often waits")
    max_pass_rate: float = Field(1.0, ge=0, le=1, description="a prompt whose last group was right more often waits")
    revisit: int = Field(4, ge=1, description="times that such a prompt is passed over before it is sampled again")

    @model_validator(mode="after")
    def _ordered(self) -> "PromptsConfig":
        if self.min_pass_rate > self.max_pass_rate:
            raise ValueError(
                f"prompts.min_pass_rate = {self.min_pass_rate:g} is above prompts.max_pass_rate = "
                f"{self.max_pass_rate:g}: every prompt would wait"
            )
        return self

    @property
    def filters(self) -> bool:
        """Whether some pass rate makes a prompt wait."""
        return self.min_pass_rate > 0 or self.max_pass_rate < 1

    @property
    def reads_labels(self) -> bool:
        """Whether the difficulty labels of the task matter."""
        return bool(self.difficulties) or self.order == "easy_to_hard"

    def used(self) -> dict[str, Any]:
        """Return the settings that have an effect; nothing by default."""
        names = ["difficulties"] if self.difficulties else []
        if self.order == "easy_to_hard":
            names += ["order", "difficulty_order", "pacing", "start_share", "open_at"]
        if self.filters:
            names += ["min_pass_rate", "max_pass_rate", "revisit"]
        return {name: getattr(self, name) for name in names}


class ShapingConfig(Section):
    """What a task's reward is turned into before the objective sees it: Bingo's in its place, and what is added.

    Bingo's defaults are those of its released script. Every other part is off by default and may join any other, but
    Bingo's, which is a length reward itself, no second one.
    """

    name: Literal["none", "bingo"] = Field("none", description="none, or Bingo's length reward (arXiv:2506.08125)")
    right_coef: float = Field(5.0, ge=0, description="bonus of a short right answer (lambda_c)")
    wrong_coef: float = Field(2.0, ge=0, description="for insignificant tokens of a wrong answer (lambda_wn)")
    significant_coef: float = Field(5.0, ge=0, description="for significant tokens of a wrong answer (lambda_we)")
    threshold: float = Field(0.5, ge=0, le=1, description="normalised surprisal from which a token is significant")
    slope_start: int = Field(50, ge=1, description="rollouts before the weight of significant tokens follows the score")
    slope_rollouts: int = Field(10, ge=2, description="rollouts that the slope of the score is taken over")
    slope_threshold: float = Field(2.5, ge=0, description="in units of the first slope: above it the score climbs")
    format_coef: float = Field(
        0.0, ge=0, description="added to a response in the format asked for (DeepSeek-R1, arXiv:2501.12948, adds 1)"
    )
    length_penalty: Literal["none", "per_token", "kimi"] = Field(
        "none", description="of tokens beyond free_tokens, or by the lengths of the group (Kimi k1.5, arXiv:2501.12599)"
    )
    length_coef: float = Field(
        0.0, ge=0, description="per_token: reward units a token; kimi: factor of a reward in [-0.5, 0.5]"
    )
    free_tokens: int = Field(0, ge=0, description="tokens of a response that per_token does not count")
    overlong_buffer: float = Field(
        0.0, ge=0, le=1, description="share of the length limit over which a punishment grows (DAPO, arXiv:2503.14476)"
    )
    overlong_coef: float = Field(1.0, gt=0, description="that punishment at the limit, reward units (DAPO: 1)")
    overlong_filter: bool = Field(False, description="leave responses that the length limit cut off out of the loss")

    @model_validator(mode="after")
    def _consistent(self) -> "ShapingConfig":
        if self.length_penalty != "none" and not self.length_coef:
            raise ValueError(
                f"shaping.length_penalty = {self.length_penalty!r} changes nothing with shaping.length_coef = 0: "
                "give its coefficient, such as " + ("0.01" if self.length_penalty == "per_token" else "0.5")
            )
        if self.name == "bingo" and (self.length_penalty != "none" or self.overlong_buffer):
            part = "length_penalty" if self.length_penalty != "none" else "overlong_buffer"
            raise ValueError(f"shaping.name = 'bingo' is a length reward already: leave shaping.{part} out")
        return self

    @property
    def changes_rewards(self) -> bool:
        """Whether a response can have another reward than the task's."""
        return bool(self.name != "none" or self.format_coef or self.length_penalty != "none" or self.overlong_buffer)

    @property
    def active(self) -> bool:
        """Whether the objective can see other rewards than the task's, or fewer."""
        return self.changes_rewards or self.overlong_filter

    def used(self) -> dict[str, Any]:
        """Return the settings that have an effect, the name always."""
        bingo = "right_coef wrong_coef significant_coef threshold slope_start slope_rollouts slope_threshold"
        names = ["name", *(bingo.split() if self.name == "bingo" else ())]
        if self.format_coef:
            names.append("format_coef")
        if self.length_penalty != "none":
            names += ["length_penalty", "length_coef"]
        if self.length_penalty == "per_token":
            names.append("free_tokens")
        if self.overlong_buffer:
            names += ["overlong_buffer", "overlong_coef"]
        if self.overlong_filter:
            names.append("overlong_filter")
        return {name: getattr(self, name) for name in names}


class CorrectionConfig(Section):
    """Behaviour correction: weigh the policy loss by pi_old / mu, the trainer's over the sampler's probabilities.

    With ``rollout.lag`` and the proximal anchor staleness is in it.
    """

    level: Literal["none", "token", "sequence"] = Field("none", description="ratio of each token, or of the response")
    mode: Literal["truncate", "mask"] = Field("truncate", description="bound the ratio, or drop what lies outside")
    low: float = Field(0.0, ge=0, description="lower bound of the ratio")
    high: float = Field(2.0, gt=0, description="upper bound of the ratio; 2 is that of truncated importance sampling")

    @model_validator(mode="after")
    def _ordered(self) -> "CorrectionConfig":
        if self.low > self.high:
            raise ValueError(f"correction.low = {self.low:g} is above correction.high = {self.high:g}")
        return self
