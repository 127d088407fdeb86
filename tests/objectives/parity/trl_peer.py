"""TRL's own loss and scoring methods, called on a stand-in for the trainer that holds the config's defaults.

They are private: only the pinned release is known to have them.
"""

# TRL exports lazily, which the type checker does not follow.
# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

import dataclasses
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer
from trl.rewards import get_soft_overlong_punishment

from tests.objectives.parity.cases import Result, Tokens

TRAINERS: dict[str, tuple[Any, Any]] = {
    "grpo": (GRPOTrainer, GRPOConfig),
    "gmpo": (GMPOTrainer, GMPOConfig),
    "rloo": (RLOOTrainer, RLOOConfig),
}
END = 7


def defaults(trainer: str = "grpo") -> dict[str, Any]:
    """Return the defaults of the trainer's config by name."""
    return {item.name: item.default for item in dataclasses.fields(TRAINERS[trainer][1])}


def loss(
    tokens: Tokens,
    trainer: str = "grpo",
    *,
    per_token: bool = False,
    accumulation: int = 1,
    num_items: int | None = None,
    **settings: Any,
) -> Result:
    """Return loss and gradient of one micro-batch.

    Args:
        tokens: the micro-batch.
        trainer: whose loss.
        per_token: give the advantages by token, as a subclass may, in place of one a response.
        accumulation: micro-batches an optimizer step; a step is a generation batch.
        num_items: tokens of the whole step; those of ``tokens`` if None.
        settings: of the trainer's config, over its defaults.
    """
    logprobs = tokens.logprobs.clone().requires_grad_()
    me = _stand_in(trainer, settings, accumulation)
    me._get_per_token_logps_and_entropies = lambda *_, **__: (logprobs, torch.zeros_like(logprobs), None)
    mask = tokens.mask.long()
    inputs = {
        "prompt_ids": mask[:, :1],
        "prompt_mask": mask[:, :1],
        "completion_ids": mask,
        "completion_mask": mask,
        "advantages": tokens.advantages if per_token else tokens.row_advantages,
        "old_per_token_logps": tokens.old_logprobs,
        "old_logps": (tokens.old_logprobs * mask).sum(1),
        "ref_per_token_logps": tokens.ref_logprobs,
        "num_items_in_batch": mask.sum() if num_items is None else torch.tensor(num_items),
    }
    value = TRAINERS[trainer][0]._compute_loss(me, None, inputs)
    (gradient,) = torch.autograd.grad(value, logprobs)
    return Result(value.detach(), gradient, me._metrics["train"].get("clip_ratio/region_mean", [None])[0])


def score(
    rewards: Tensor,
    group_size: int,
    trainer: str = "grpo",
    *,
    mask: Tensor | None = None,
    ended: Tensor | None = None,
    old_logprobs: Tensor | None = None,
    ref_logprobs: Tensor | None = None,
    **settings: Any,
) -> dict[str, Tensor]:
    """Return what the trainer makes of scored responses: "advantages" [N], "completion_mask" [N, T] and more.

    Args:
        rewards: [N], the responses to a prompt next to each other.
        group_size: responses a prompt.
        trainer: whose advantages.
        mask: [N, T] bool, sampled tokens; one token a row if None.
        ended: [N] bool, whether the response closed with its end token; all if None.
        old_logprobs: [N, T].
        ref_logprobs: [N, T], of RLOO's reward.
        settings: of the trainer's config, over its defaults.
    """
    mask = torch.ones(len(rewards), 1, dtype=torch.bool) if mask is None else mask
    ended = torch.ones(len(rewards), dtype=torch.bool) if ended is None else ended
    old_logprobs = torch.zeros(mask.shape, dtype=rewards.dtype) if old_logprobs is None else old_logprobs
    widths = (mask * torch.arange(1, mask.shape[1] + 1)).amax(1).tolist()
    ids = [[1] * (width - 1) + [END if end else 2] for width, end in zip(widths, ended.tolist(), strict=True)]
    tools = [row[:width] for row, width in zip(mask.long().tolist(), widths, strict=True)]
    texts = [""] * len(ids)
    me = _stand_in(trainer, settings, 1)
    me.num_generations = group_size
    me.ref_model = "reference"
    me._calculate_rewards = lambda *_, **__: rewards[:, None].clone()
    known = {"policy": old_logprobs, "reference": ref_logprobs}
    me._get_per_token_logps_and_entropies = lambda model, *_, **__: (
        known["reference" if model == "reference" else "policy"],
        None,
        None,
    )
    if trainer == "rloo":
        me._generate = lambda _: ([[1]] * len(ids), ids, texts)
    else:
        me._generate = lambda _: ([[1]] * len(ids), ids, tools, texts, None, {}, None, [[]] * len(ids))
    return TRAINERS[trainer][0]._generate_and_score_completions(me, [{"prompt": ""}] * len(ids))


def soft_overlong_punishment(lengths: list[int], limit: int, buffer: int) -> list[float]:
    """Return TRL's reward function of that name on responses of ``lengths`` tokens."""
    return get_soft_overlong_punishment(limit, buffer)([[1] * length for length in lengths])


def _stand_in(trainer: str, settings: dict[str, Any], accumulation: int) -> SimpleNamespace:
    known = defaults(trainer)
    if unknown := settings.keys() - known.keys():
        raise ValueError(f"{trainer} of TRL has no setting {', '.join(sorted(unknown))}")
    fixed = {"steps_per_generation": accumulation, "num_iterations": 2, "pad_to_multiple_of": None}
    args = {**known, **fixed, **settings}
    if args["epsilon_high"] is None:
        args["epsilon_high"] = args["epsilon"]
    accelerator = SimpleNamespace(
        num_processes=1,
        process_index=0,
        device=torch.device("cpu"),
        sync_gradients=True,
        reduce=lambda x, reduction: x,
        gather=lambda x: x,
    )
    trainer_state = {
        "args": SimpleNamespace(**args),
        "accelerator": accelerator,
        "model": SimpleNamespace(training=True, is_gradient_checkpointing=False),
        "epsilon_low": args["epsilon"],
        "current_gradient_accumulation_steps": accumulation,
        "get_gamma_weights": GRPOTrainer.get_gamma_weights,
        "get_off_policy_mask": GRPOTrainer.get_off_policy_mask,
        "aux_loss_enabled": False,
        "environment_factories": None,
        "environments": None,
        "tools": None,
        "eos_token_ids": [END],
        "reward_func_names": ["reward"],
        "reward_weights": torch.ones(1),
        "_tokenizer": SimpleNamespace(pad_token_id=0),
        "_entropy_bonus_enabled": False,
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "_logs": {"prompt": [], "completion": [], "advantages": [], "rewards": defaultdict(list)},
        "_pending_extra_logs": {},
        "_pending_metrics": {},
    }
    return SimpleNamespace(**args | trainer_state)
