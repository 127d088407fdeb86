"""From a configuration to the policy that it names."""

import torch

from harness.config.errors import UserError
from harness.config.policies import PolicyConfig
from harness.engine.embedded import PRESETS, start_file
from harness.engine.policy import Policy, build_preset, load_weights
from harness.engine.pretrained import load_pretrained

__all__ = ["load_policy"]


def load_policy(config: PolicyConfig, task: str, device: str = "cpu") -> Policy:
    """Return the policy that ``config`` names, in evaluation mode.

    An embedded preset is loaded with ``config.weights`` or the warm start for ``task``; anything else is a folder, a
    GGUF file or a hub name.

    Raises:
        UserError: no such warm start or model, its files cannot be read, or there is no such device.
    """
    place = _device(device)
    if config.name in PRESETS:
        if config.chat:
            raise UserError(f"policy {config.name!r} is an embedded preset and knows no chat: set policy.chat = false")
        policy = build_preset(config.name, seed=0)
        load_weights(policy, start_file(config, task))
        policy.model.to(getattr(torch, config.dtype))
    elif config.weights:
        raise UserError(
            f"weights = {config.weights!r} go into an embedded preset ({', '.join(PRESETS)}), not into {config.name!r}"
        )
    else:
        policy = load_pretrained(config, [*PRESETS])
    policy.model.to(place)
    return policy


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        cause = str(error).strip().splitlines()[0]
        raise UserError(f"engine.device = {name!r} cannot be used here ({cause}); use 'cpu'") from None
    return device
