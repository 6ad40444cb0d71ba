"""Who the ranks are to each other under one layout: a mesh of pipeline stages, replicas, ranks that share sequences and
tensor-parallel shards, the last next to each other. Made and unmade as a whole, so that a running process can take
another layout."""

from __future__ import annotations

import datetime
import os

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from headway.message import Configuration, Layout

DIMENSIONS = ("pp", "dp", "cp", "tp")
DATA = "data"
"""The ranks that train the same parameters: dp × cp."""


class Gang:
    """One rank's place in the mesh. Alone there is no mesh and no group."""

    def __init__(self, layout: Layout, cp: int, ep: int, device: torch.device) -> None:
        self.layout, self.cp, self.device = layout, cp, device
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.mesh: DeviceMesh | None = None
        self._data: DeviceMesh | None = None
        self.ends: dist.ProcessGroup | None = None
        """The first and the last stage of this rank's pipeline, if this rank is one of them."""
        self.spread: dist.ProcessGroup | None = None
        """The ranks of a stage, next to each other, over which experts are spread."""
        self.same_experts: dist.ProcessGroup | None = None
        """Ranks with the same experts: dp × cp × tp / ep."""
        self.same_experts_and_samples: dist.ProcessGroup | None = None
        """Those of them that share sequences: cp × tp / ep, where that is more than one."""
        if self.size == 1:
            return
        self.mesh = init_device_mesh(device.type, (layout.pp, layout.dp, cp, layout.tp), mesh_dim_names=DIMENSIONS)
        if cp > 1:
            # This imports the compiler, as taking any part of a mesh does: nobody else shall wait for it.
            self._data = self.mesh["dp", "cp"]._flatten(DATA)
        if layout.pp > 1:
            self.ends = self._own(self.mesh.mesh.flatten(1)[[0, -1]].T)
        if ep > 1:
            spread = self.mesh.mesh.view(layout.pp, -1, ep)
            self.spread = self._own(spread.flatten(0, 1))
            self.same_experts = self._own(spread.transpose(1, 2).flatten(0, 1))
            shared = self.mesh.mesh.view(-1, max(1, cp * layout.tp // ep), ep)
            self.same_experts_and_samples = self._own(shared.transpose(1, 2).flatten(0, 1))

    @property
    def size(self) -> int:
        return self.layout.ranks() * self.cp

    def coordinate(self, dimension: str) -> int:
        return 0 if self.mesh is None else int(self.mesh.get_local_rank(dimension))

    def group(self, dimension: str) -> dist.ProcessGroup | None:
        if dimension == DATA:
            return self.group("dp") if self._data is None else self._data.get_group()
        return None if self.mesh is None else self.mesh.get_group(dimension)

    def part(self, dimension: str) -> DeviceMesh:
        """The one-dimensional mesh of this rank's peers."""
        assert self.mesh is not None, "a rank alone has no peers"
        if dimension == DATA:
            return self.part("dp") if self._data is None else self._data
        return self.mesh[dimension]

    def _own(self, rows: Tensor) -> dist.ProcessGroup | None:
        """The group of this rank's row; None of one rank, or where it is in none. Every rank takes part in making every
        group."""
        own = None
        for row in rows.tolist() if rows.shape[1] > 1 else []:
            group = dist.new_group(row)
            if isinstance(group, dist.ProcessGroup) and self.rank in row:
                own = group
        return own


class Gangs:
    """The layouts this process has been in. Their groups are kept: PyTorch's caches of tensor placements refer to them
    by name and take a mesh of the same ranks for the same mesh, so a group that is destroyed may still be called; and a
    layout that comes back needs no new ones."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._known: dict[tuple[Layout, int, int], Gang] = {}

    def of(self, configuration: Configuration) -> Gang:
        """Every rank of the world calls it with the same configuration."""
        degrees = configuration.layout, configuration.execution.cp, configuration.execution.ep
        if degrees not in self._known:
            self._known[degrees] = Gang(*degrees, self._device)
        return self._known[degrees]


def device_of(wanted: str, emulated: bool) -> torch.device:
    """An emulated device is a CPU slot even where GPUs exist."""
    if wanted == "cpu" or emulated or (wanted == "auto" and not torch.cuda.is_available()):
        torch.set_num_threads(1)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def control_group(device: torch.device) -> dist.ProcessGroup | None:
    """Over it travels what is not a tensor of the device; NCCL could not carry it. None for a rank alone."""
    if not dist.is_initialized():
        return None
    group = dist.new_group(backend="gloo") if device.type == "cuda" else dist.group.WORLD
    assert isinstance(group, dist.ProcessGroup), "this rank is in the world"
    return group


def join(device: torch.device, timeout_s: float = 120.0) -> None:
    """Meets the other ranks; alone there is nobody to meet."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return
    if os.environ.setdefault("MASTER_ADDR", "127.0.0.1") in ("127.0.0.1", "localhost"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        rank=int(os.environ.get("RANK", "0")),
        world_size=world,
        timeout=datetime.timedelta(seconds=timeout_s),
    )
