"""Whether ranks that are said to hold copies do. A layout that nobody declared, say tensor parallelism of plain
tensors, shows nowhere else: shards would be taken for copies and other layers for replicas, and every square would be
wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed
from torch import Tensor, nn

from headway.torch.ranks import Ranks, local

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Measured steps from one look to the next.
SELDOM = 64
# Elements of a tensor that are looked at, and by how much of their norm copies may differ: processors round otherwise.
SAMPLED = 1024
TOLERATED = 1e-3

Gradient = Callable[[nn.Parameter], Tensor | None]


@dataclass(frozen=True)
class Amiss:
    """What does not agree, in words; empty where nothing is amiss."""

    parameters: str = ""
    gradients: str = ""


class Agreement:
    """Compares a projection of up to 1,024 elements of each parameter, and of its mean gradient, over the replicas, and
    of what counts as copied also over the tensor-parallel ranks. At the first measured step and each 64th after it."""

    def __init__(self, named: Mapping[str, nn.Parameter], ranks: Ranks, device: torch.device) -> None:
        self._device = device
        data = ranks.data
        if data is None and len(ranks.data_ranks()) > 1:
            data = torch.distributed.group.WORLD
        self._groups: list[tuple[ProcessGroup, dict[str, nn.Parameter]]] = []
        for group, wanted in ((data, ranks.copied_over_data), (ranks.tensor, ranks.copied_over_tensor)):
            if group is not None and torch.distributed.get_world_size(group) > 1:
                self._groups.append((group, {name: each for name, each in named.items() if wanted(each)}))
        self._countdown = 0
        self._amiss = Amiss()

    def look(self, gradient: Gradient) -> Amiss:
        """What this rank found when it last looked. On all ranks at each measured step, once the mean gradients are
        there; `gradient` gives None for those that are not to be compared."""
        if self._countdown > 0:
            self._countdown -= 1
        else:
            found = [self._compare(*each, gradient) for each in self._groups]
            self._amiss = next((each for each in found if each != Amiss()), Amiss())
            # Also where something is amiss: ranks of other groups have found nothing, and all must look together.
            self._countdown = SELDOM - 1
        return self._amiss

    def _compare(self, group: ProcessGroup, named: dict[str, nn.Parameter], gradient: Gradient) -> Amiss:
        count = torch.tensor([len(named), sum(local(each).numel() for each in named.values())], device=self._device)
        most = torch.cat([count, -count]).double()
        torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX, group)
        if not torch.equal(most[:2], -most[2:]):
            return Amiss(parameters="ranks that are said to hold the same parameters hold other ones")
        parameters = self._first_apart(group, named, [each.detach() for each in named.values()])
        gradients = self._first_apart(group, named, [gradient(each) for each in named.values()])
        said = "ranks that are said to hold copies of {} hold each another {}"
        return Amiss(
            parameters and said.format(parameters, "one"),
            gradients and said.format(gradients, "mean gradient of it"),
        )

    def _first_apart(self, group: ProcessGroup, names: Iterable[str], tensors: Sequence[Tensor | None]) -> str:
        """The name of the first tensor that is not the same on all ranks of the group."""
        if not tensors:
            return ""
        nothing = torch.zeros(2, dtype=torch.float64, device=self._device)
        seen = torch.stack([nothing if each is None else _projected(local(each)) for each in tensors])
        extremes = torch.cat([seen, -seen[:, :1]], dim=1)
        torch.distributed.all_reduce(extremes, torch.distributed.ReduceOp.MAX, group)
        largest, norm, smallest = extremes.unbind(1)
        apart = (largest + smallest > TOLERATED * norm).tolist()
        return next((name for name, differs in zip(names, apart, strict=True) if differs), "")


def _projected(values: Tensor) -> Tensor:
    """Onto one fixed direction, of some elements evenly spread, and their norm. What is not finite counts as nothing:
    it is found elsewhere."""
    flat = values.reshape(-1)
    some = flat[:: max(1, flat.numel() // SAMPLED)][:SAMPLED].double().nan_to_num(0.0, 0.0, 0.0)
    direction = torch.arange(1, some.numel() + 1, dtype=torch.float64, device=some.device).square().sin()
    return torch.stack([some @ direction, some.norm()])
