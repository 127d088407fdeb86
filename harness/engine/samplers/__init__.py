"""What draws responses from a policy: the engine's own sampler, or vLLM."""

from harness.config.sampler import SamplerConfig
from harness.engine.samplers.base import NO_NOISE, Charge, Sampler, Samples
from harness.engine.samplers.native import NativeSampler
from harness.engine.samplers.shared import SharedSampler
from harness.engine.samplers.vllm import VllmSampler
from harness.engine.world import World

__all__ = ["NO_NOISE", "Charge", "NativeSampler", "Sampler", "Samples", "make_sampler"]


def make_sampler(config: SamplerConfig, world: World = World()) -> Sampler:  # noqa: B008 - frozen
    """Return the sampler that ``config`` names, shared by the processes of ``world``; vLLM starts when it draws."""
    sampler = NativeSampler() if config.name == "native" else VllmSampler(config)
    return sampler if world.size == 1 else SharedSampler(sampler, world)
