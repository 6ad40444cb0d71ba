"""AdamW on flat buffers: a few vector operations a step instead of several per parameter, and no import of
torch.compile, which the optimizers of torch.optim pull in at first use and which costs seconds at every restart."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.torch import GradientAccumulator, views


class FlatAdamW:
    """Owns the parameters of an accumulator: their data become views of one flat buffer."""

    def __init__(
        self,
        names: list[str],
        gradients: GradientAccumulator,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
    ) -> None:
        parameters = gradients.parameters
        self._names = names
        self._gradients = gradients
        self._betas, self._eps = betas, eps
        with torch.no_grad():
            self._flat = torch.cat([parameter.flatten() for parameter in parameters])
            for parameter, view in zip(parameters, views(self._flat, parameters), strict=True):
                parameter.data = view
        # Matrices decay; norm gains do not.
        decay = [torch.full((p.numel(),), weight_decay if p.dim() > 1 else 0.0) for p in parameters]
        self._decay = torch.cat(decay).to(self._flat.device)
        self._first = torch.zeros_like(self._flat)
        self._second = torch.zeros_like(self._flat)
        self._steps = 0

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Loshchilov and Hutter 2019, algorithm 2, with the accumulator's mean gradient."""
        gradient = self._gradients.mean
        beta1, beta2 = self._betas
        self._steps += 1
        self._first.lerp_(gradient, 1.0 - beta1)
        self._second.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        denominator = (self._second / (1.0 - beta2**self._steps)).sqrt_().add_(self._eps)
        self._flat.addcmul_(self._flat, self._decay, value=-learning_rate)
        self._flat.addcdiv_(self._first, denominator, value=-learning_rate / (1.0 - beta1**self._steps))

    def state(self) -> dict[str, object]:
        """By parameter name, so that it outlives this layout of the buffers."""
        return {"steps": self._steps, "first": self._by_name(self._first), "second": self._by_name(self._second)}

    @torch.no_grad()
    def load(self, state: dict[str, object]) -> None:
        self._steps = int(state["steps"])  # type: ignore[call-overload]
        for flat, key in ((self._first, "first"), (self._second, "second")):
            saved = state[key]
            for name, view in self._by_name(flat).items():
                view.copy_(saved[name])  # type: ignore[index]

    def _by_name(self, flat: Tensor) -> dict[str, Tensor]:
        return dict(zip(self._names, views(flat, self._gradients.parameters), strict=True))
