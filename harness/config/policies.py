"""The tables of a run that name models."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from harness.config.parts import Section

__all__ = ["ALL_LINEAR", "LoraConfig", "PolicyConfig", "TeacherConfig"]

ALL_LINEAR = "all-linear"
"""As a target: every linear layer but the head."""


class LoraConfig(Section):
    """LoRA (arXiv:2106.09685) through peft: W + (alpha / rank) B A with W frozen; no dropout, or ratios would not be 1.

    Targets and alpha are those of "LoRA Without Regret" (Schulman and Thinking Machines, 2025), which also finds the
    best learning rate to be about ten times that of training all weights; peft's own alpha is 8.
    """

    rank: int = Field(0, ge=0, description="of the adapters; 0 for none: all weights are trained")
    alpha: int = Field(32, gt=0, description="the adapters' product is scaled by alpha / rank")
    targets: list[str] = Field(
        default_factory=lambda: [ALL_LINEAR],
        min_length=1,
        description='linear layers with an adapter, such as "q_proj", or "all-linear" for all but the head',
    )

    @field_validator("targets", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("targets")
    @classmethod
    def _in_one_order(cls, value: list[str]) -> list[str]:
        return [ALL_LINEAR] if ALL_LINEAR in value else sorted(set(value))


class PolicyConfig(Section):
    """The model to train."""

    name: str = Field(
        "tiny", min_length=1, description="embedded preset, or a directory, GGUF file or hub name of a causal LM"
    )
    warm_start: int = Field(0, ge=0, description="which warm start of an embedded preset: they differ by seed")
    weights: str = Field(
        "",
        description="a safetensors file to start an embedded preset from, such as a run's weights.safetensors; a path "
        "that begins with ./ or ../ is seen from the folder of the configuration file",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="of the weights in every pass; log-probabilities and the head are float32 with either, and the "
        "optimizer keeps float32 copies of bfloat16 weights",
    )
    lora: LoraConfig = LoraConfig()  # pyright: ignore[reportCallIssue]
    chat: bool = Field(False, description="a prompt is a user's message in the pretrained model's chat template")
    system: str = Field("", description="the chat's system message; empty for the template's own, if it has one")

    @model_validator(mode="after")
    def _system_of_a_chat(self) -> "PolicyConfig":
        if self.system and not self.chat:
            raise ValueError("a system message is part of a chat: set chat = true as well")
        return self


class TeacherConfig(PolicyConfig):
    """A frozen policy that objectives may learn from; it reads the student's tokens, so it shares its tokenizer."""

    name: str = Field("", description="as policy.name; empty for no teacher")

    @model_validator(mode="after")
    def _named(self) -> "TeacherConfig":
        if self.weights and not self.name:
            raise ValueError("teacher.weights is given without teacher.name: name the preset that they go into")
        if self.chat:
            raise ValueError("teacher.chat has no use: a teacher reads the prompts as the policy's tokens")
        if self.lora.rank:
            raise ValueError("teacher.lora has no use: a teacher is never trained")
        return self
