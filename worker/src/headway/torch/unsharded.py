"""The micro-batch gradients that FSDP2 hides: it reduces them before anybody sees `p.grad`.

Its parameters exist twice: sharded, for the optimizer, and gathered, in forward and backward, as parameters of the same
modules. The gathered ones live as long as the model and take hooks like any leaf, so a micro-batch's whole local
gradient passes here just before it is accumulated, reduced or not.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headway.torch.ranks import UnknownLayout, as_dtensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def is_fully_sharded(module: nn.Module) -> bool:
    """Whether `fully_shard` was applied to the module itself. Only who imported it can have done so."""
    package: Any = sys.modules.get("torch.distributed.fsdp")
    return package is not None and isinstance(module, package.FSDPModule)


def sharded_parameters(modules: Iterable[nn.Module]) -> set[int]:
    """The ids of the parameters that FSDP2 reduces by itself, in the state the optimizer knows."""
    groups = (each for module in modules for each in module.modules() if is_fully_sharded(each))
    return {id(parameter) for group in groups for parameter in _own_parameters(group)}


def watch(
    modules: Iterable[nn.Module], attach: Callable[[nn.Parameter, nn.Parameter], RemovableHandle]
) -> list[RemovableHandle]:
    """Calls `attach` with each gathered parameter at its first forward, and with the sharded one that the optimizer
    knows it by; returns the hooks, which grow meanwhile."""
    handles: list[RemovableHandle] = []
    attached: set[int] = set()
    sharded: dict[int, list[nn.Parameter]] = {}

    def gathered(group: nn.Module, _: object) -> None:
        for parameter, shard in zip(_own_parameters(group), sharded[id(group)], strict=True):
            if parameter.requires_grad and id(parameter) not in attached:
                attached.add(id(parameter))
                handles.append(attach(parameter, shard))

    for module in modules:
        for each in module.modules():
            if is_fully_sharded(each):
                sharded[id(each)] = list(_own_parameters(each))
                # Registered after FSDP2's own, which gathers.
                handles.append(each.register_forward_pre_hook(gathered))
    return handles


def _own_parameters(group: nn.Module) -> Iterator[torch.nn.Parameter]:
    """Those that are gathered with this module and not with one below."""
    yield from group.parameters(recurse=False)
    for child in group.children():
        if not is_fully_sharded(child):
            yield from _own_parameters(child)


@dataclass(frozen=True)
class Rows:
    """How FSDP2 shares a parameter out: each rank of a group holds as many of its first dimension's rows, the last ones
    fewer or none."""

    group: ProcessGroup
    rows: int
    """Of all of them together: of this rank's share under tensor parallelism."""

    @staticmethod
    def of(parameter: nn.Parameter, data: frozenset[int]) -> Rows:
        """`data`: the ranks that train the same parameters on other samples."""
        placed = as_dtensor(parameter)
        assert placed is not None, "FSDP2's parameters are DTensors"
        mesh = placed.device_mesh
        groups = [mesh.get_group(dimension) for dimension in range(mesh.ndim)]
        # Also those that tensor parallelism has cut before.
        cuts = [getattr(placement, "dim", None) for placement in placed.placements]
        ours = [i for i, group in enumerate(groups) if data >= set(torch.distributed.get_process_group_ranks(group))]
        shared = [i for i in ours if cuts[i] is not None]
        if len(shared) != 1 or cuts[shared[0]] != 0:
            raise UnknownLayout(f"a parameter placed as {placed.placements} is not shared out by rows")
        others = math.prod(mesh.size(i) for i, cut in enumerate(cuts) if cut == 0 and i not in ours)
        return Rows(groups[shared[0]], placed.shape[0] // others)

    def gather(self, own: Tensor) -> Tensor:
        """Everybody's rows, of this rank's."""
        size = torch.distributed.get_world_size(self.group)
        padded = own.new_zeros(self._each(), *own.shape[1:])
        padded[: len(own)] = own
        whole = own.new_empty(size * len(padded), *own.shape[1:])
        torch.distributed.all_gather_into_tensor(whole, padded, group=self.group)
        return whole[: self.rows]

    def own(self, whole: Tensor) -> Tensor:
        """This rank's rows, of everybody's."""
        first = torch.distributed.get_rank(self.group) * self._each()
        return whole[first : first + self._each()]

    def _each(self) -> int:
        return -(-self.rows // torch.distributed.get_world_size(self.group))
