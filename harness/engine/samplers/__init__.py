"""What draws responses from a policy: the engine's own sampler, or vLLM."""

from harness.config.sampler import SamplerConfig
from harness.engine.samplers.base import NO_NOISE, Charge, Sampler, Samples
from harness.engine.samplers.native import NativeSampler
from harness.engine.samplers.vllm import VllmSampler

__all__ = ["NO_NOISE", "Charge", "NativeSampler", "Sampler", "Samples", "make_sampler"]


def make_sampler(config: SamplerConfig) -> Sampler:
    """Return the sampler that ``config`` names; vLLM starts with its first responses."""
    return NativeSampler() if config.name == "native" else VllmSampler(config)
