"""AdamW over what this rank owns of a model: all of it, its slice of one flat buffer (a distributed optimizer), or the
shards FSDP2 gave it. It calls PyTorch's fused kernel itself, as the optimizers of torch.optim pull in torch.compile at
first use, which costs seconds at every restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed
from torch import Tensor, nn

from headway.tiles import Tile, stretch, tile_of
from headway.torch import GradientAccumulator
from headway.torch.ranks import local


@dataclass
class _Owned:
    """Consecutive elements of this rank's piece of a parameter, which this rank updates."""

    whole: Tile
    first: int
    values: Tensor
    gradient: Callable[[], Tensor]

    def tiles(self, name: str, values: Tensor) -> Iterator[Tile]:
        """`values`, of these elements, as rectangles of a global tensor of that name."""
        place = Tile(name, self.whole.shape, self.whole.offset, self.whole.tensor)
        yield from stretch(place, self.first, self.first + values.numel(), values.view(-1))


class AdamW:
    """Loshchilov and Hutter 2019, algorithm 2, in fp32. Matrices decay; norm gains do not."""

    def __init__(
        self,
        named: dict[str, nn.Parameter],
        gradients: GradientAccumulator,
        flat: Tensor | None = None,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
    ) -> None:
        """`flat`: the buffer in which the accumulator's parameters lie end to end; without one, each is updated by
        itself. Where the accumulator keeps but a slice of the gradient, the slices are gathered after the update."""
        self.gradients, self._flat = gradients, flat
        self._betas, self._eps = betas, eps
        names = {id(parameter): name for name, parameter in named.items()}
        in_flat = {id(parameter) for parameter in gradients.parameters}
        owned = list(self._owned(names))
        self._shards = [parameter for parameter in named.values() if id(parameter) not in in_flat]
        for parameter in self._shards:
            whole = tile_of(names[id(parameter)], parameter)
            owned.append(_Owned(whole, 0, whole.tensor, _sharded_gradient(parameter)))
        matrices = [i for i, each in enumerate(owned) if len(each.whole.shape) > 1]
        gains = [i for i, each in enumerate(owned) if len(each.whole.shape) == 1]
        self._decays = ((weight_decay, matrices), (0.0, gains))
        self._parts = owned
        self._first = [torch.zeros_like(each.values) for each in owned]
        self._second = [torch.zeros_like(each.values) for each in owned]
        device = owned[0].values.device if owned else torch.device("cpu")
        self._count = torch.zeros((), device=device)
        self.steps = 0

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """One update with the accumulator's mean gradient."""
        self.steps += 1
        self._count.fill_(self.steps)
        for weight_decay, chosen in self._decays:
            chosen = [i for i in chosen if self._parts[i].values.numel()]
            if chosen:
                torch._fused_adamw_(
                    [self._parts[i].values for i in chosen],
                    [self._parts[i].gradient() for i in chosen],
                    [self._first[i] for i in chosen],
                    [self._second[i] for i in chosen],
                    [],
                    [self._count] * len(chosen),
                    lr=learning_rate,
                    beta1=self._betas[0],
                    beta2=self._betas[1],
                    weight_decay=weight_decay,
                    eps=self._eps,
                    amsgrad=False,
                    maximize=False,
                )
        self._gather()

    def second_in_flat(self) -> Tensor:
        """The second moment of this rank's slice of the accumulator's parameters, end to end."""
        parts = [each.view(-1) for each in self._second[: len(self._second) - len(self._shards)]]
        return torch.cat(parts) if parts else torch.zeros(0, device=self._count.device)

    def second_of_shards(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Of this rank's shards of what FSDP2 shares out."""
        return zip(self._shards, self._second[len(self._second) - len(self._shards) :], strict=True)

    def tiles(self) -> list[Tile]:
        """Both moments, named after their parameter."""
        found: list[Tile] = []
        for each, first, second in zip(self._parts, self._first, self._second, strict=True):
            found += each.tiles(f"first.{each.whole.name}", first)
            found += each.tiles(f"second.{each.whole.name}", second)
        return found

    def _owned(self, names: dict[int, str]) -> Iterator[_Owned]:
        """What of each accumulated parameter lies in this rank's slice of the mean gradient."""
        start, end = self.gradients.shard_range()
        at = 0
        for parameter in self.gradients.parameters:
            size = local(parameter).numel()
            low, high = max(at, start), min(at + size, end)
            if low < high:
                whole = tile_of(names[id(parameter)], parameter)
                values = whole.tensor.view(-1)[low - at : high - at]
                gradient = self.gradients.mean[low - start : high - start]
                yield _Owned(whole, low - at, values, partial(_same, gradient))
            at += size

    def _gather(self) -> None:
        """Every replica gets the slices that the others updated."""
        start, end = self.gradients.shard_range()
        if self._flat is not None and end - start < self._flat.numel():
            group = self.gradients.ranks.data
            torch.distributed.all_gather_into_tensor(self._flat, self._flat[start:end].clone(), group=group)


def _same(gradient: Tensor) -> Tensor:
    """A view of the accumulator's buffer, which stays where it is."""
    return gradient


def _sharded_gradient(parameter: nn.Parameter) -> Callable[[], Tensor]:
    def gradient() -> Tensor:
        assert parameter.grad is not None, "FSDP2 has reduced every gradient"
        return local(parameter.grad)

    return gradient
