"""Adam with linear warm-up and a clipped gradient; a non-finite gradient never reaches the weights."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from harness.engine.sharding import alike, whole

__all__ = ["NonFinite", "Optimizer"]


class NonFinite(ArithmeticError):  # noqa: N818 - reads as a cause
    """A loss or gradient that is NaN or infinite; raised before the step, with its cause."""


class Optimizer:
    """AdamW on the parameters of one model.

    Warm-up matters more than its length: a fresh Adam turns the noise of the first, rarely informative groups into
    steps of full size. Parameters in half precision have float32 copies here, which are what is stepped, recorded and
    restored: most steps are smaller than half precision can tell.
    """

    def __init__(
        self,
        model: nn.Module,
        what: str,
        *,
        learning_rate: float,
        warmup_updates: int,
        max_grad_norm: float,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self._named = [(name, _stepped(p)) for name, p in trained]
        self._halves = [(p, copy) for (_, p), (_, copy) in zip(trained, self._named, strict=True) if p is not copy]
        self._adam = torch.optim.AdamW(
            [p for _, p in self._named], lr=learning_rate, betas=betas, weight_decay=weight_decay, fused=True
        )
        self.what = what
        self._learning_rate = learning_rate
        self._warmup_updates = warmup_updates
        self._max_grad_norm = max_grad_norm
        self.steps = 0
        self.moment_steps = 0

    def zero_grad(self) -> None:
        """Forget the gradient."""
        self._adam.zero_grad(set_to_none=True)
        for half, _ in self._halves:
            half.grad = None

    def clip(self) -> float:
        """Clip the gradient and return the norm it had.

        Raises:
            NonFinite: the norm is NaN or infinite.
        """
        for half, copy in self._halves:
            copy.grad, half.grad = None if half.grad is None else half.grad.float(), None
        norm = float(whole(nn.utils.clip_grad_norm_([p for _, p in self._named], self._max_grad_norm)))
        if not torch.isfinite(torch.tensor(norm)):
            raise NonFinite(f"gradient norm of the {self.what} is {norm} at its update {self.steps + 1}")
        return norm

    def step(self) -> None:
        """Take a step along the gradient as it stands."""
        warm = min(1.0, (self.steps + 1) / self._warmup_updates) if self._warmup_updates else 1.0
        for group in self._adam.param_groups:
            group["lr"] = self._learning_rate * warm
        self._adam.step()
        self.steps += 1
        self.moment_steps += 1
        self.sync()

    @torch.no_grad()
    def sync(self) -> None:
        """Bring the model to the values of ``tensors`` after they have been changed in place."""
        for half, copy in self._halves:
            half.copy_(copy)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the names and values of parameters and moments, sharded as they are; after changes, call ``sync``."""
        for name, parameter in self._named:
            yield f"weights.{name}", parameter.detach()
            state = self._adam.state.get(parameter, {})
            for moment in ("exp_avg", "exp_avg_sq"):
                if moment in state:
                    yield f"{moment}.{name}", state[moment]

    def restore(self, tensors: Mapping[str, Tensor], steps: int, moment_steps: int) -> None:
        """Go on from ``tensors``, whole or sharded as they are here, after ``steps`` updates.

        ``moment_steps`` of them are in the moments.
        """
        self.steps, self.moment_steps = steps, moment_steps
        with torch.no_grad():
            for name, parameter in self._named:
                parameter.copy_(alike(tensors[f"weights.{name}"], parameter))
                if moment_steps == 0:
                    self._adam.state.pop(parameter, None)
                else:
                    zeros = torch.zeros_like(parameter)
                    self._adam.state[parameter] = {
                        "step": torch.tensor(float(moment_steps), device=parameter.device),
                        "exp_avg": alike(tensors.get(f"exp_avg.{name}", zeros), parameter).clone(),
                        "exp_avg_sq": alike(tensors.get(f"exp_avg_sq.{name}", zeros), parameter).clone(),
                    }
        self.sync()

    def snapshot(self) -> list[Tensor]:
        """Return a copy of the parameters."""
        return [parameter.detach().clone() for _, parameter in self._named]

    @torch.no_grad()
    def put_back(self, snapshot: list[Tensor]) -> None:
        """Undo the last step: set the parameters to ``snapshot``; the moments stay and are of no further use."""
        self.steps -= 1
        for (_, parameter), value in zip(self._named, snapshot, strict=True):
            parameter.copy_(value)
        self.sync()


def _stepped(parameter: nn.Parameter) -> Tensor:
    """Return what is stepped in place of a parameter: itself, or a float32 copy of half precision."""
    if parameter.dtype in (torch.float32, torch.float64):
        return parameter
    return parameter.detach().float().requires_grad_()
