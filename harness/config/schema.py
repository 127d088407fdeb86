"""What a run and a sweep are made of: pydantic models, every field with its unit. Imports no torch.

A hand-written file is TOML, a resolved one JSON. Unknown keys are refused. Settings of an objective, a trust region
or a task stand beside its name and are checked by the class itself when it is built.
"""

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from harness.config.engine import EngineConfig
from harness.config.executor import ExecutorConfig
from harness.config.parts import CorrectionConfig, PromptsConfig, ReplayConfig, Section, ShapingConfig
from harness.config.policies import PolicyConfig, TeacherConfig
from harness.config.sampler import SamplerConfig

__all__ = ["AXES", "LEAST_TEMPERATURE", "Arm", "Axis", "Plugin", "RunConfig", "SweepConfig"]

Axis = Literal["flops", "tokens", "updates", "seconds"]
AXES: tuple[Axis, ...] = ("flops", "tokens", "updates", "seconds")
LEAST_TEMPERATURE = 0.001
"""Logits divided by much less overflow; 0 is greedy where greedy is meant."""


class Plugin(BaseModel):
    """A plug-in by name, ``path/to/file.py:ClassName`` or entry point; every other key is a setting of its own."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: str = Field(min_length=1)

    @model_validator(mode="after")
    def _finite_settings(self) -> "Plugin":
        for key, value in self.settings.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{key} = {value} should be a finite number")
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """All keys but the name."""
        return dict(self.model_extra or {})


class RolloutConfig(Section):
    """How responses are sampled."""

    num_prompts: int = Field(16, ge=1, description="prompts an iteration (P)")
    group_size: int = Field(8, ge=1, description="responses a prompt (G)")
    max_response_tokens: int = Field(52, ge=1, description="length limit, end token included")
    window_tokens: int = Field(
        0, ge=0, description="tokens a response grows in one iteration, the rest in the next ones; 0 for no window"
    )
    temperature: float = Field(
        1.0, ge=LEAST_TEMPERATURE, description="divides the logits, when sampling and in every log-probability"
    )
    lag: int = Field(
        0, ge=0, description="iterations between the weights that sample a rollout and those that begin to train on it"
    )
    anchor: Literal["behaviour", "proximal"] = Field(
        "behaviour",
        description="pi_old of a rollout that lags: the policy that sampled it, or the one its updates begin with; the "
        "same without a lag",
    )
    max_resamples: int = Field(
        0, ge=0, description="extra rounds to replace groups that the objective rejects; most objectives reject none"
    )
    max_infra_frac: float = Field(
        0.1,
        ge=0,
        le=1,
        description="share of a rollout's responses that may fail to be scored before the run stops; not in the cell's "
        "key: a run that it does not stop has the same bytes",
    )
    delimiters: list[str] = Field(
        default_factory=lambda: ["\n", ";"],
        min_length=1,
        description="a token whose text ends with one of these ends a step of a response, for segment rules",
    )

    @property
    def old_at_sampling(self) -> bool:
        """Whether pi_old of a rollout is that of some iterations before its updates."""
        return self.lag > 0 and self.anchor == "behaviour"

    @model_validator(mode="after")
    def _whole_windows(self) -> "RolloutConfig":
        if self.window_tokens and self.max_response_tokens % self.window_tokens:
            raise ValueError(
                f"rollout.window_tokens = {self.window_tokens} does not divide rollout.max_response_tokens = "
                f"{self.max_response_tokens}"
            )
        return self

    @field_validator("delimiters")
    @classmethod
    def _not_empty(cls, value: list[str]) -> list[str]:
        if "" in value:
            raise ValueError('an empty delimiter ends every token: give texts such as "\\n"')
        return value


class UpdateConfig(Section):
    """How a rollout is turned into optimizer steps (Adam)."""

    minibatches: int = Field(4, ge=1, description="optimizer steps an epoch; each gets whole groups")
    epochs: int = Field(1, ge=1, description="passes over a rollout")
    learning_rate: float = Field(1e-4, gt=0, description="after warm-up")
    warmup_updates: int = Field(8, ge=0, description="updates over which the learning rate rises linearly from 0")
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    adam_beta2: float = Field(0.99, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0, description="decoupled, times the learning rate")
    max_grad_norm: float = Field(1.0, gt=0, description="the gradient's norm is clipped to this")


class CriticConfig(Section):
    """The value model of objectives that ask for one: the policy's start with a value head, and its own optimizer."""

    learning_rate: float = Field(1e-3, gt=0)
    max_grad_norm: float = Field(1.0, gt=0)
    warmup_updates: int = Field(0, ge=0)


class BudgetConfig(Section):
    """What a run may spend, on one axis."""

    axis: Axis = Field("flops", description="useful FLOPs, generated tokens, optimizer steps or wall-clock seconds")
    amount: float = Field(gt=0, allow_inf_nan=False, description="in units of the axis; evaluation is not in it")


class EvalConfig(Section):
    """Evaluation at fixed points of the budget axis; in the ledger, not in the budget."""

    points: int = Field(4, ge=1, description="equal parts of the budget; evaluated at 0, 1/points, ... 1")
    num_prompts: int = Field(256, ge=1, description="validation prompts at each point, the same for every cell")
    test_prompts: int = Field(512, ge=1, description="test prompts, at the start and for the final state")
    samples: int = Field(1, ge=1, description="responses a prompt")
    pass_k: list[int] = Field(
        default_factory=lambda: [1],
        min_length=1,
        description="k of pass@k and, above 1, of maj@k; none above samples. pass@1 is always there",
    )
    temperature: float = Field(1.0, ge=0, description="0 takes the most probable token")
    batch_rows: int = Field(256, ge=1, description="responses sampled at a time")

    @field_validator("temperature")
    @classmethod
    def _greedy_or_warm(cls, value: float) -> float:
        if 0 < value < LEAST_TEMPERATURE:
            raise ValueError(f"eval.temperature = {value} is neither 0 nor at least {LEAST_TEMPERATURE}")
        return value

    @model_validator(mode="after")
    def _enough_samples(self) -> "EvalConfig":
        if min(self.pass_k) < 1:
            raise ValueError(f"eval.pass_k = {self.pass_k} holds {min(self.pass_k)}: k is at least 1")
        if max(self.pass_k) > self.samples:
            raise ValueError(
                f"eval.pass_k = {self.pass_k} asks for pass@{max(self.pass_k)} of eval.samples = {self.samples} "
                f"response(s) a prompt: set eval.samples to {max(self.pass_k)} or more, or leave that k out"
            )
        return self


class RunConfig(Section):
    """One run: a pure function of this."""

    policy: PolicyConfig = PolicyConfig()  # pyright: ignore[reportCallIssue]
    teacher: TeacherConfig = TeacherConfig()  # pyright: ignore[reportCallIssue]
    task: Plugin = Plugin(name="arithmetic")
    objective: Plugin = Plugin(name="grpo")
    trust_region: Plugin = Plugin(name="none")
    prompts: PromptsConfig = PromptsConfig()  # pyright: ignore[reportCallIssue]
    rollout: RolloutConfig = RolloutConfig()  # pyright: ignore[reportCallIssue]
    sampler: SamplerConfig = SamplerConfig()  # pyright: ignore[reportCallIssue]
    update: UpdateConfig = UpdateConfig()  # pyright: ignore[reportCallIssue]
    critic: CriticConfig = CriticConfig()  # pyright: ignore[reportCallIssue]
    correction: CorrectionConfig = CorrectionConfig()  # pyright: ignore[reportCallIssue]
    replay: ReplayConfig = ReplayConfig()  # pyright: ignore[reportCallIssue]
    shaping: ShapingConfig = ShapingConfig()  # pyright: ignore[reportCallIssue]
    budget: BudgetConfig
    eval: EvalConfig = EvalConfig()  # pyright: ignore[reportCallIssue]
    engine: EngineConfig = EngineConfig()  # pyright: ignore[reportCallIssue]
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _processes_with_equal_work(self) -> "RunConfig":
        prompts = self.rollout.num_prompts // self.update.minibatches
        if prompts % self.engine.processes:
            raise ValueError(
                f"engine.processes = {self.engine.processes} does not divide the {prompts} prompts of a minibatch "
                "(rollout.num_prompts / update.minibatches): change one of them"
            )
        if self.engine.processes > 1 and self.budget.axis == "seconds":
            raise ValueError(
                "budget.axis = 'seconds' is for one process: the clocks of several would part them; use another axis, "
                "or engine.processes = 1"
            )
        return self

    @model_validator(mode="after")
    def _minibatches_of_whole_groups(self) -> "RunConfig":
        if self.rollout.num_prompts % self.update.minibatches:
            raise ValueError(
                f"update.minibatches = {self.update.minibatches} does not divide rollout.num_prompts = "
                f"{self.rollout.num_prompts}: a minibatch is made of whole groups"
            )
        return self


class Arm(BaseModel):
    """One column of a comparison: a name and the settings that make it, as tables or dotted keys of a run."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: str = Field(min_length=1)

    @property
    def overrides(self) -> dict[str, Any]:
        """All keys but the name."""
        return dict(self.model_extra or {})


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
    axes: dict[str, list[Any]] = Field(default_factory=dict, description="dotted key of a run -> its values")
