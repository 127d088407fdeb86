"""What is added to a task's reward by the format and the length of a response: pure functions of what was judged.

    format:     + format_coef where the answer has the format asked for: accuracy and format rewards are added
                (DeepSeek-R1 2025, arXiv:2501.12948; there format_coef is 1)
    per_token:  - length_coef max(0, n - free_tokens)
    kimi:       + length_coef lambda for a right answer, length_coef min(0, lambda) for any other,
                lambda = 0.5 - (n - min n) / (max n - min n) over the response's group; 0 where all are equally long
                (Kimi k1.5 2025, arXiv:2501.12599, section 2.3.3)
    overlong:   - overlong_coef min(1, max(0, (n - (L - B)) / B)), B = overlong_buffer L; overlong_coef where the
                length limit L cut the response off (DAPO 2025, arXiv:2503.14476, eq. 13)

n is the length of the whole response, however many windows it grew in; a response that goes on in the next window gets
nothing yet. What could not be scored gets nothing, and its length does not count in its group. Replayed responses are a
group of their own. Coefficients are in units of the task's reward; DAPO's is from -1 to 1, so a coefficient of 1 weighs
twice as much on rewards from 0 to 1.
"""

import torch
from torch import Tensor

from harness.config.parts import ShapingConfig
from harness.engine.judging import Judged
from objectives import Finish

__all__ = ["added_reward", "group_length_reward", "overlong_punishment"]


def added_reward(config: ShapingConfig, judged: Judged, group: Tensor | None, max_response_tokens: int) -> Tensor:
    """Return what the parts of ``config`` add to each reward, [N] float64; 0 where the response is not known.

    Args:
        config: which parts; Bingo's reward is none of these.
        judged: the responses.
        group: [N] int64; may be None without the part "kimi", which compares within a group.
        max_response_tokens: the length limit L.
    """
    lengths = judged.lengths.double().to(judged.rewards.device)
    added = torch.zeros_like(lengths)
    if config.format_coef:
        added = added + config.format_coef * judged.formatted
    if config.length_penalty == "per_token":
        added = added - config.length_coef * (lengths - config.free_tokens).clamp(min=0)
    elif config.length_penalty == "kimi":
        assert group is not None
        known = judged.ended & ~judged.rewards.isnan()
        added = added + config.length_coef * group_length_reward(lengths, judged.correct == 1, group, known)
    if config.overlong_buffer:
        buffer = config.overlong_buffer * max_response_tokens
        cut = judged.finish == Finish.LENGTH
        added = added + config.overlong_coef * overlong_punishment(lengths, cut, max_response_tokens, buffer)
    return torch.where(judged.ended & ~judged.rewards.isnan(), added, 0.0)


def group_length_reward(lengths: Tensor, right: Tensor, group: Tensor, known: Tensor) -> Tensor:
    """Return Kimi k1.5's length reward [N] float64, in [-0.5, 0.5]; 0 where the known of a group are equally long.

    Args:
        lengths: [N] float64.
        right: [N] bool.
        group: [N] int64.
        known: [N] bool, responses that count; others get 0.
    """
    ends = [torch.zeros(int(group.max()) + 1 if len(group) else 0, dtype=lengths.dtype) for _ in range(2)]
    low, high = (
        end.scatter_reduce(0, group[known], lengths[known], how, include_self=False)[group]
        for end, how in zip(ends, ("amin", "amax"), strict=True)
    )
    spread = high - low
    share = 0.5 - (lengths - low) / torch.where(spread > 0, spread, 1.0)
    reward = torch.where(right, share, share.clamp(max=0))
    return torch.where(known & (spread > 0), reward, 0.0)


def overlong_punishment(lengths: Tensor, cut: Tensor, limit: int, buffer: float) -> Tensor:
    """Return DAPO's soft overlong punishment [N], from 0 at ``limit - buffer`` tokens to -1 at the limit.

    Args:
        lengths: [N] float64, tokens of the whole response.
        cut: [N] bool, responses that the limit cut off: -1.
        limit: tokens.
        buffer: tokens, above 0.
    """
    soft = -((lengths - (limit - buffer)) / buffer).clamp(0, 1)
    return torch.where(cut, -1.0, soft)
