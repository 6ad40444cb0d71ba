"""Gradient accumulation for plain PyTorch data parallelism that measures the noise scale on the way.

Every micro-batch's gradient is squared before it joins the sum, and the sum is all-reduced in one flat buffer; so a
step over dp replicas with M micro-batches each yields K = dp·M small batches whatever the split, and the same sample in
every layout with the same micro-batch. It replaces DistributedDataParallel, whose reducer hides the micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor

from headway.noise import NoiseSample


@dataclass(frozen=True)
class Reduced:
    """What one optimizer step's gradients came to, the same on all ranks. The mean gradient is in `p.grad`."""

    loss: float
    # Squared norm of the mean gradient.
    gradient_sqr: float
    # None where there was only one small batch.
    noise: NoiseSample | None
    # The sums over ranks of the extra values given to `reduce`.
    extra: list[float]


class GradientAccumulator:
    """Owns the gradients of `parameters`: after construction `p.grad` is a view of one flat buffer.

    Per micro-batch: backward of the mean loss (not divided by the accumulation), then `end_micro_batch`. Per step:
    `reduce`, then clipping and the optimizer, then `clear`. Never call `zero_grad(set_to_none=True)`.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        sizes = [parameter.numel() for parameter in self.parameters]
        device = self.parameters[0].device
        self._micro = torch.zeros(sum(sizes), device=device)
        self.mean = torch.zeros_like(self._micro)
        self._micro_views = views(self._micro, self.parameters)
        self._mean_views = views(self.mean, self.parameters)
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)
        self._count = 0
        self.clear()

    def end_micro_batch(self, loss: Tensor) -> None:
        """Squares the micro-batch's gradient and adds it to the step's sum."""
        self._sums[0] += torch.linalg.vector_norm(self._micro, dtype=torch.float64) ** 2
        self._sums[1] += loss.detach()
        self.mean += self._micro
        self._micro.zero_()
        self._count += 1

    def reduce(
        self, micro_batch: int, extra: Sequence[float] = (), group: torch.distributed.ProcessGroup | None = None
    ) -> Reduced:
        """Averages over micro-batches and replicas and measures the noise, before any clipping.

        `extra` rides along in the one small all-reduce; all ranks must give equally many.
        """
        replicas = 1
        packed = torch.cat([self._sums, torch.tensor(list(extra), dtype=torch.float64).to(self._sums.device)])
        if torch.distributed.is_initialized():
            replicas = torch.distributed.get_world_size(group)
            torch.distributed.all_reduce(packed, group=group)
            torch.distributed.all_reduce(self.mean, group=group)
        count = replicas * self._count
        self.mean /= count
        big = torch.linalg.vector_norm(self.mean, dtype=torch.float64) ** 2
        small_sum, loss_sum, *extra_sums, big_sqr = torch.cat([packed, big.view(1)]).tolist()
        sample = None
        if count > 1:
            sample = NoiseSample(small_sum / count, big_sqr, float(micro_batch), float(micro_batch * count))
        for parameter, view in zip(self.parameters, self._mean_views, strict=True):
            parameter.grad = view
        return Reduced(loss_sum / count, big_sqr, sample, extra_sums)

    def clip(self, reduced: Reduced, max_norm: float) -> None:
        """Scales the mean gradient down to `max_norm`, after it has been measured."""
        norm = reduced.gradient_sqr**0.5
        if norm > max_norm:
            self.mean *= max_norm / norm

    def clear(self) -> None:
        """Ready for the next step's first micro-batch."""
        self.mean.zero_()
        self._sums.zero_()
        self._count = 0
        for parameter, view in zip(self.parameters, self._micro_views, strict=True):
            parameter.grad = view


def views(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Slices of a flat buffer in the parameters' shapes."""
    pieces = torch.split(flat, [parameter.numel() for parameter in parameters])
    return [piece.view(parameter.shape) for piece, parameter in zip(pieces, parameters, strict=True)]
