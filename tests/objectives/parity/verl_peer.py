"""verl's own losses, advantages and aggregation; functions of public modules, but of the pinned release."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_rejection_mask
from verl.workers.config import ActorConfig, PolicyLossConfig

from tests.objectives.parity.cases import Result, Tokens

NO_DUAL_CLIP = 1e9


def config(loss_settings: dict[str, Any] | None = None, **settings: Any) -> ActorConfig:
    """Return the actor's config with its defaults, but for ``settings`` and those of its policy loss."""
    policy_loss = PolicyLossConfig(**loss_settings or {})
    return ActorConfig(
        strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=1, policy_loss=policy_loss, **settings
    )


def policy_loss(
    name: str,
    tokens: Tokens,
    aggregation: str,
    *,
    batch: dict[str, Any] | None = None,
    loss_settings: dict[str, Any] | None = None,
    **settings: Any,
) -> Result:
    """Return loss and gradient of one micro-batch.

    Args:
        name: of the registered policy loss.
        tokens: the micro-batch.
        aggregation: ``loss_agg_mode``.
        batch: what the trainer tells the loss of the whole step: batch_num_tokens, global_batch_size ...
        loss_settings: of ``PolicyLossConfig``, over its defaults.
        settings: of ``ActorConfig``, over its defaults.
    """
    logprobs = tokens.logprobs.clone().requires_grad_()
    actor = config(loss_settings, **settings, global_batch_info=batch or {})
    function: Any = core_algos.get_policy_loss_fn(name)
    value, metrics = function(
        old_log_prob=tokens.old_logprobs,
        log_prob=logprobs,
        advantages=tokens.advantages,
        response_mask=tokens.mask.long(),
        loss_agg_mode=aggregation,
        config=actor,
    )
    (gradient,) = torch.autograd.grad(value, logprobs)
    return Result(value.detach(), gradient, metrics.get("actor/pg_clipfrac"))


def aggregate(losses: Tensor, mask: Tensor, mode: str, **batch: Any) -> Tensor:
    """Return ``agg_loss``."""
    return core_algos.agg_loss(losses, mask.long(), mode, **batch)


def advantages(
    name: str, rewards: Tensor, mask: Tensor, group: Tensor | None = None, *, gamma: float = 1.0, **settings: Any
) -> tuple[Tensor, Tensor]:
    """Return advantages and returns [N, T] of the registered estimator.

    Args:
        name: of the estimator.
        rewards: [N], put at each row's last token; or [N, T].
        mask: [N, T] bool.
        group: [N] int64.
        gamma: discount.
        settings: arguments of this estimator alone.
    """
    if rewards.ndim == 1:
        columns = torch.arange(1, mask.shape[1] + 1)
        last = columns == (mask * columns).amax(1, keepdim=True)
        rewards = torch.where(last, rewards[:, None], 0.0)
    if group is not None:
        settings["index"] = np.array(group.tolist(), dtype=object)
    if name == "gae":
        settings["gamma"] = gamma
    else:
        settings["config"] = AlgoConfig(gamma=gamma)
    estimator = core_algos.get_adv_estimator_fn(name)
    return estimator(token_level_rewards=rewards, response_mask=mask.long(), **settings)


def kl_rewards(rewards: Tensor, old_logprobs: Tensor, ref_logprobs: Tensor, coef: float) -> Tensor:
    """Return rewards [N, T] less ``coef`` times the k1 estimate of each token."""
    return core_algos.compute_rewards(rewards, old_logprobs, ref_logprobs, coef)


def value_loss(values: Tensor, returns: Tensor, old_values: Tensor, mask: Tensor, clip: float) -> Result:
    """Return the critic's loss, mean over tokens, and its gradient to ``values``."""
    leaf = values.clone().requires_grad_()
    loss, _ = core_algos.compute_value_loss(leaf, returns, old_values, mask.long(), clip)
    (gradient,) = torch.autograd.grad(loss, leaf)
    return Result(loss.detach(), gradient)


def kl_penalty(logprobs: Tensor, ref_logprobs: Tensor, kind: str) -> Tensor:
    """Return the estimate of each token, carrying gradients."""
    return core_algos.kl_penalty(logprobs, ref_logprobs, kind)  # pyright: ignore[reportArgumentType]


def rejection_mask(tokens: Tokens, option: str, threshold: float) -> Tensor:
    """Return [N, T] bool: the tokens that ``rollout_rs`` keeps, pi_old in the place of the rollout's policy."""
    log_ratio = tokens.logprobs - tokens.old_logprobs
    kept, _ = compute_rollout_rejection_mask(log_ratio, tokens.mask.long(), option, str(threshold))
    return kept.bool()
