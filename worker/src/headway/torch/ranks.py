"""Which ranks of the world hold the same piece of a gradient, so that its square is counted once.

A rank owns 1/copies of the square of every piece it holds. Summed over the world that gives each element of the model
once, whatever the layout: shards are disjoint, copies share. Nothing here communicates.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor


class UnknownLayout(Exception):
    """The groups given do not explain how the world is divided, so that no square could be trusted."""


@dataclass(frozen=True)
class Ranks:
    """The groups this rank belongs to. What is None has one rank; with all three None, all ranks are data-parallel."""

    data: ProcessGroup | None = None
    """Ranks that train the same parameters on other samples, or on other parts of the same: dp × cp, also where FSDP or
    ZeRO shards over them."""
    tensor: ProcessGroup | None = None
    """Ranks that compute the same samples together on the same layers: tp."""
    pipeline: ProcessGroup | None = None
    """Ranks with other layers for the same samples: pp."""
    context: ProcessGroup | None = None
    """Those of `data` that share every sequence: cp. Each rank's loss is the mean over its own tokens, equally many."""

    experts: ProcessGroup | None = None
    """Those of `data` and `tensor` that hold the same experts, where whole ones are spread over ranks: dp × cp × tp /
    ep."""
    expert_context: ProcessGroup | None = None
    """Those of `experts` that share every sequence: cp × tp / ep, if that is more than one."""

    @staticmethod
    def of(mesh: DeviceMesh) -> Ranks:
        """By the usual names of a mesh's dimensions: dp, or dp_replicate and dp_shard; cp; tp; pp."""
        names = mesh.mesh_dim_names or ()
        unknown = set(names) - {"dp", "dp_replicate", "dp_shard", "cp", "tp", "pp"}
        if unknown:
            raise UnknownLayout(f"mesh dimensions {sorted(unknown)} have no known meaning; give Ranks the groups")

        def group(*wanted: str) -> ProcessGroup | None:
            present = tuple(name for name in wanted if name in names)
            if not present:
                return None
            part = mesh[present]
            return part.get_group() if len(present) == 1 else part._flatten().get_group()

        return Ranks(group("dp", "dp_replicate", "dp_shard", "cp"), group("tp"), group("pp"), group("cp"))

    def check(self) -> None:
        """Every rank of the world must be accounted for."""
        if not torch.distributed.is_initialized():
            return
        if not _ranks(self.context) <= self.data_ranks():
            raise UnknownLayout("ranks that share sequences are not all among those that train the same")
        stage = len(self.data_ranks()) * _size(self.tensor)
        if stage % self.expert_holders or not _ranks(self.expert_context) <= _ranks(self.experts):
            raise UnknownLayout(f"ranks that hold the same experts are no part of the {stage} of a stage")
        known = stage * _size(self.pipeline)
        world = torch.distributed.get_world_size()
        if known != world:
            raise UnknownLayout(f"data x tensor x pipeline are {known} ranks, but the world has {world}")

    @property
    def replicas(self) -> int:
        """How many groups of ranks see samples of their own."""
        return len(self.data_ranks()) // self.contexts

    @property
    def replica(self) -> int:
        """Which of them this rank is one of, in the order of ranks. Raises UnknownLayout where ranks that share
        sequences do not stand together, so that there is no such order."""
        shared = sorted(_ranks(self.context))
        number, over = divmod(sorted(self.data_ranks()).index(shared[0]), self.contexts)
        if over or sorted(self.data_ranks())[number * self.contexts :][: self.contexts] != shared:
            raise UnknownLayout(f"ranks {shared} share sequences, but others of their replicas stand between them")
        return number

    @property
    def stages(self) -> int:
        """Ranks with other layers for the same samples."""
        return _size(self.pipeline)

    @property
    def contexts(self) -> int:
        """Ranks that share every sequence."""
        return _size(self.context)

    @property
    def expert_contexts(self) -> int:
        """Ranks with the same experts that share every sequence."""
        return _size(self.expert_context)

    @property
    def expert_holders(self) -> int:
        """Ranks with the same experts."""
        return _size(self.experts)

    @property
    def loss_copies(self) -> int:
        """On how many ranks of one replica the same loss is known: all that compute the last layers together."""
        return _size(self.tensor)

    def copies_in_replica(self, tensor: Tensor) -> int:
        """On how many ranks of one data-parallel replica, of those with the same tokens, this piece of a micro-batch's
        gradient lies."""
        placed = as_dtensor(tensor)
        if placed is None:
            return 1 if is_shard(tensor) else _size(self.tensor)
        if len(self.data_ranks() & _mesh_ranks(placed.device_mesh)) > 1:
            raise UnknownLayout(
                f"a parameter placed as {placed.placements} on {placed.device_mesh} spans data-parallel ranks without "
                "fully_shard: its micro-batches' gradients cannot be told apart, or `data` names the wrong group"
            )
        return self._copies(placed)

    def copies_in_world(self, tensor: Tensor) -> int:
        """The same for a piece of the mean gradient, which data-parallel ranks share too unless they shard it."""
        placed = as_dtensor(tensor)
        if placed is None:
            return self.copies_in_replica(tensor) * len(self.data_ranks())
        data = self.data_ranks()
        return self._copies(placed) * (len(data) // len(data & _mesh_ranks(placed.device_mesh)))

    def copied_over_data(self, tensor: Tensor) -> bool:
        """Whether each data-parallel rank holds it whole."""
        placed = as_dtensor(tensor)
        return placed is None or len(self.data_ranks() & _mesh_ranks(placed.device_mesh)) <= 1

    def copied_over_tensor(self, tensor: Tensor) -> bool:
        """Whether it counts as copied over the tensor-parallel ranks because nothing says otherwise."""
        placed = as_dtensor(tensor)
        if placed is None:
            return not is_shard(tensor)
        return len(_ranks(self.tensor) & _mesh_ranks(placed.device_mesh)) <= 1

    def _copies(self, placed: DTensor) -> int:
        mesh = placed.device_mesh
        within = math.prod(mesh.size(i) for i, placement in enumerate(placed.placements) if placement.is_replicate())
        tensor = _ranks(self.tensor)
        return within * (len(tensor) // len(tensor & _mesh_ranks(mesh)))

    def data_ranks(self) -> frozenset[int]:
        """Ranks that train the same parameters."""
        if self.data is None and self.tensor is None and self.pipeline is None and torch.distributed.is_initialized():
            return frozenset(range(torch.distributed.get_world_size()))
        return _ranks(self.data)


def as_dtensor(tensor: Tensor) -> DTensor | None:
    """The tensor as the DTensor it is, if it is one. Only who imported DTensor can have made one, so this need not."""
    module: Any = sys.modules.get("torch.distributed.tensor")
    return tensor if module is not None and isinstance(tensor, module.DTensor) else None


def is_shard(tensor: Tensor) -> bool:
    """Whether a plain parameter is marked, as Megatron does, to be this rank's shard under tensor parallelism."""
    return bool(getattr(tensor, "tensor_model_parallel", False))


def local(tensor: Tensor) -> Tensor:
    """This rank's piece."""
    placed = as_dtensor(tensor)
    return tensor if placed is None else placed.to_local()


def placed_like(gradient: Tensor, parameter: Tensor) -> Tensor:
    """The gradient as the parameter lies. Autograd may deliver it otherwise, say whole for a sharded embedding, or as
    parts of a sum for the gain of a norm under sequence parallelism; such squares would be wrong."""
    gradient_placed, parameter_placed = as_dtensor(gradient), as_dtensor(parameter)
    if gradient_placed is None or parameter_placed is None:
        return gradient
    if gradient_placed.placements == parameter_placed.placements:
        return gradient
    return gradient_placed.redistribute(placements=parameter_placed.placements)


def unique(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """In order, each once, those that are trained: a tied weight is one parameter."""
    return list({id(each): each for each in parameters if each.requires_grad}.values())


def named(parts: Iterable[nn.Parameter | nn.Module]) -> dict[str, nn.Parameter]:
    """In order, each once, whether trained or not, by a name to say in errors."""
    found: dict[int, tuple[str, nn.Parameter]] = {}
    several = len(parts := list(parts)) > 1
    for number, part in enumerate(parts):
        if isinstance(part, nn.Module):
            for name, parameter in part.named_parameters():
                found.setdefault(id(parameter), (f"{number}.{name}" if several else name, parameter))
        else:
            found.setdefault(id(part), (f"parameter {number}", part))
    return dict(found.values())


def _size(group: ProcessGroup | None) -> int:
    return 1 if group is None else torch.distributed.get_world_size(group)


def _ranks(group: ProcessGroup | None) -> frozenset[int]:
    if group is None:
        return _alone_ranks()
    return frozenset(torch.distributed.get_process_group_ranks(group))


def _alone_ranks() -> frozenset[int]:
    return frozenset([torch.distributed.get_rank() if torch.distributed.is_initialized() else 0])


def _mesh_ranks(mesh: DeviceMesh) -> frozenset[int]:
    return frozenset(mesh.mesh.flatten().tolist()) | _alone_ranks()
