"""The critic: a value model with its own optimizer; a copy of the policy's start with a scalar head."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from harness.engine.copies import copy_trained
from harness.engine.heads import wide
from harness.engine.packing import pack, packed_states
from harness.engine.policy import Policy
from harness.engine.sharding import gathered

__all__ = ["Critic"]


class Critic(nn.Module):
    """Predict the reward of a response from each of its prefixes.

    The body starts as the policy's and shares nothing with it afterwards that is trained: with LoRA it has adapters of
    its own on the policy's frozen weights. The head is trained in full and starts at 0, so the first values are 0 and
    the first advantages are plain rewards.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.body = copy_trained(policy.body)
        self.head = nn.Linear(policy.shape.hidden_size, 1, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def values(self, prompts: Sequence[Sequence[int]], ids: Tensor, mask: Tensor, *, bootstrap: bool) -> Tensor:
        """Return the value of the state before each response token and, if asked, of the state after the last one.

        Args:
            prompts: token ids of each row's prompt.
            ids: [B, T] int64 response tokens, contiguous from column 0.
            mask: [B, T] bool.
            bootstrap: add the state after the last token, in column n_i of a row with n_i tokens.

        Returns:
            [B, T] or, with ``bootstrap``, [B, T+1] float32 or wider; 0 where there is no such state.
        """
        states = mask
        if bootstrap:
            first = torch.ones_like(mask[:, :1])
            states = torch.cat([first, mask], 1)  # [B, T+1]: n_i + 1 states of a row with n_i tokens
        packed = pack(prompts, ids, mask, last=bootstrap)
        flat = gathered(self, lambda: self.head(wide(packed_states(self.body, packed))))[:, 0]
        return flat.new_zeros(states.shape).masked_scatter(states, flat)
