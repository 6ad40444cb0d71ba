"""AdamW over what this rank owns of a model: all of it, its slice of one flat buffer (a distributed optimizer), or the
shards FSDP2 gave it. Its states lie beside the parameters or in host memory. It calls PyTorch's fused kernel itself, as
the optimizers of torch.optim pull in torch.compile at first use, which costs seconds at every restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed
from torch import Tensor, nn

from headway.tiles import Tile, stretch, tile_of
from headway.torch import GradientAccumulator
from headway.torch.ranks import local
from headway.torch.spans import Span


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
    """Loshchilov and Hutter 2019, algorithm 2, in fp32. Matrices decay; norm gains do not.

    Offloaded, the states lie in host memory and the host makes the step (ZeRO-Offload, Ren et al. 2021): one parameter
    after the other it takes its values and gradient there, and brings the values back.
    """

    def __init__(
        self,
        named: dict[str, nn.Parameter],
        gradients: GradientAccumulator,
        flats: Sequence[Tensor] = (),
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        offload: bool = False,
    ) -> None:
        """`flats`: the buffers in which the parameters of the accumulator's spans lie end to end. Where it keeps but a
        slice of the gradient, the slices are gathered there after the update."""
        self.gradients, self._flats, self._offload = gradients, flats, offload
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
        self._device = owned[0].values.device if owned else torch.device("cpu")
        home = torch.device("cpu") if offload else self._device
        self._first = [torch.zeros_like(each.values, device=home) for each in owned]
        self._second = [torch.zeros_like(each.values, device=home) for each in owned]
        self._count = torch.zeros((), device=home)
        self.steps = 0

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """One update with the accumulator's mean gradient."""
        self.steps += 1
        self._count.fill_(self.steps)
        for weight_decay, chosen in self._decays:
            chosen = [i for i in chosen if self._parts[i].values.numel()]
            if self._offload:
                for i in chosen:
                    brought = self._parts[i].values.to("cpu", copy=True)
                    self._update([i], [brought], [self._parts[i].gradient().to("cpu")], learning_rate, weight_decay)
                    self._parts[i].values.copy_(brought)
            elif chosen:
                values = [self._parts[i].values for i in chosen]
                gradients = [self._parts[i].gradient() for i in chosen]
                self._update(chosen, values, gradients, learning_rate, weight_decay)
        self._gather()

    def second_by_span(self) -> Iterator[tuple[Span, Tensor]]:
        """The second moment of this rank's slice of each of the accumulator's spans, end to end."""
        seconds = iter(self._second)
        for span in self.gradients.spans:
            parts = [next(seconds).view(-1) for _ in span.stretches()]
            yield span, torch.cat(parts).to(self._device) if parts else torch.zeros(0, device=self._device)

    def second_of_shards(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Of this rank's shards of what FSDP2 shares out."""
        for parameter, second in zip(self._shards, self._second[len(self._second) - len(self._shards) :], strict=True):
            yield parameter, second.to(self._device)

    def tiles(self) -> list[Tile]:
        """Both moments, named after their parameter."""
        found: list[Tile] = []
        for each, first, second in zip(self._parts, self._first, self._second, strict=True):
            found += each.tiles(f"first.{each.whole.name}", first)
            found += each.tiles(f"second.{each.whole.name}", second)
        return found

    def _update(
        self,
        chosen: list[int],
        values: list[Tensor],
        gradients: list[Tensor],
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        """Of these parts, where their states lie."""
        torch._fused_adamw_(
            values,
            gradients,
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

    def _owned(self, names: dict[int, str]) -> Iterator[_Owned]:
        """What of each accumulated parameter lies in this rank's slice of the mean gradient."""
        for span in self.gradients.spans:
            for each in span.stretches():
                whole = tile_of(names[id(each.parameter)], each.parameter)
                values = whole.tensor.view(-1)[each.first : each.last]
                yield _Owned(whole, each.first, values, partial(_same, span.mean[each.mean]))

    def _gather(self) -> None:
        """Every replica gets the slices that the others updated."""
        for span, flat in zip(self.gradients.spans, self._flats, strict=False):
            start, end = span.range()
            if end - start < flat.numel():
                flat.copy_(span.gather(flat[start:end].clone()))


def _same(gradient: Tensor) -> Tensor:
    """A view of the accumulator's buffer, which stays where it is."""
    return gradient


def _sharded_gradient(parameter: nn.Parameter) -> Callable[[], Tensor]:
    def gradient() -> Tensor:
        assert parameter.grad is not None, "FSDP2 has reduced every gradient"
        return local(parameter.grad)

    return gradient
