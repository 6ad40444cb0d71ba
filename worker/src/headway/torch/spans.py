"""Parameters whose gradients are averaged over the same ranks: summed here end to end, and averaged as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from headway.torch.ranks import local


@dataclass(frozen=True)
class Stretch:
    """Consecutive elements of this rank's piece of a parameter, and where their mean gradient lies."""

    parameter: nn.Parameter
    first: int
    last: int
    mean: slice


class Span:
    """`sums` is what this rank has accumulated. `mean` is, after `average`, the mean over `ranks` ranks: the same
    buffer or, with `shard`, this rank's slice, of which the last may run past the parameters."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], group: ProcessGroup | None, ranks: int, shard: bool, like: Tensor
    ) -> None:
        """`group` is None of one rank, or of the world; `like` has the buffers' type and device."""
        self.parameters, self._group, self._ranks, self.shard = list(parameters), group, ranks, shard
        self._rank = torch.distributed.get_rank(group) if ranks > 1 else 0
        self._sizes = [local(parameter).numel() for parameter in self.parameters]
        shares = ranks if shard else 1
        padded = -(-sum(self._sizes) // shares) * shares
        self.sums = like.new_zeros(padded)
        self.mean = like.new_zeros(padded // shares) if shard else self.sums

    def range(self) -> tuple[int, int]:
        """Which elements of the parameters laid end to end `mean` holds."""
        start = self._rank * self.mean.numel() if self.shard else 0
        return start, start + self.mean.numel()

    def stretches(self) -> Iterator[Stretch]:
        """What of each parameter `mean` holds, in order."""
        start, end = self.range()
        at = 0
        for parameter, size in zip(self.parameters, self._sizes, strict=True):
            low, high = max(at, start), min(at + size, end)
            if low < high:
                yield Stretch(parameter, low - at, high - at, slice(low - start, high - start))
            at += size

    def average(self, count: float) -> None:
        """Of so many gradients in all."""
        if self._ranks > 1 and self.sums.numel():
            if self.shard:
                torch.distributed.reduce_scatter_tensor(self.mean, self.sums, group=self._group)
            else:
                torch.distributed.all_reduce(self.sums, group=self._group)
        elif self.shard:
            self.mean.copy_(self.sums)
        self.mean /= count

    def gather(self, own: Tensor) -> Tensor:
        """Everybody's slices, of this rank's, which may lack what runs past the parameters."""
        if not self.shard or self._ranks == 1:
            return own
        padded = torch.cat([own, own.new_zeros(self.mean.numel() - len(own))])
        whole = own.new_empty(self.sums.numel())
        torch.distributed.all_gather_into_tensor(whole, padded, group=self._group)
        return whole


def views(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Slices of a flat buffer in the parameters' shapes."""
    sizes = [parameter.numel() for parameter in parameters]
    pieces = torch.split(flat[: sum(sizes)], sizes)
    return [piece.view(parameter.shape) for piece, parameter in zip(pieces, parameters, strict=True)]
