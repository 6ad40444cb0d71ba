"""Moves training state between the layouts of one process group in memory: every rank stages what it held, and fetches
what it now needs from whoever has it. COPUS (Sakip et al. 2026) does the same through CPU memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from headway.tiles import Extent, Tile, overlap, within


@dataclass(frozen=True)
class _Place:
    """Where a tile of some rank lies, without its values."""

    name: str
    offset: Extent
    size: Extent

    @staticmethod
    def of(tile: Tile) -> _Place:
        return _Place(tile.name, tile.offset, tuple(tile.tensor.shape))


@dataclass(frozen=True)
class _Transfer:
    """A region that one rank has and another (or the same) needs, in coordinates of the whole tensor."""

    source: int
    target: int
    held: _Place
    needed: _Place
    region: tuple[slice, ...]

    def size(self) -> int:
        size = 1
        for each in self.region:
            size *= each.stop - each.start
        return size


def exchange(held: list[Tile], wanted: list[Tile], group: dist.ProcessGroup | None) -> None:
    """Fills `wanted` from what all ranks hold; `held` lies in CPU memory. Every rank of the group calls it.

    Raises ValueError, on every rank, where some element is held by nobody.
    """
    rank = 0 if group is None else dist.get_rank(group)
    ours = {_Place.of(tile): tile for tile in held if tile.tensor.numel()}
    needed = {_Place.of(tile): tile for tile in wanted if tile.tensor.numel()}
    everywhere = _gathered((list(ours), list(needed)), group)
    # Every rank works out all transfers in the same order, so nobody has to ask for any.
    transfers = list(_transfers(everywhere))
    outgoing: list[list[Tensor]] = [[] for _ in everywhere]
    incoming: list[list[_Transfer]] = [[] for _ in everywhere]
    for each in transfers:
        if each.source == rank:
            outgoing[each.target].append(within(ours[each.held], each.region).reshape(-1))
        if each.target == rank:
            incoming[each.source].append(each)
    sent = torch.cat([piece for pieces in outgoing for piece in pieces] or [torch.empty(0)])
    sizes = [sum(each.size() for each in pieces) for pieces in incoming]
    received = sent
    if group is not None:
        received = torch.empty(sum(sizes))
        dist.all_to_all_single(received, sent, sizes, [sum(p.numel() for p in pieces) for pieces in outgoing], group)
    arrived = [each for pieces in incoming for each in pieces]
    for each, values in zip(arrived, torch.split(received, [each.size() for each in arrived]), strict=True):
        target = within(needed[each.needed], each.region)
        target.copy_(values.view(target.shape))


def _transfers(everywhere: list[tuple[list[_Place], list[_Place]]]) -> Iterator[_Transfer]:
    """From the rank itself where it can, else from one of the owners in turn."""
    owners: dict[str, dict[_Place, list[int]]] = {}
    for owner, (places, _) in enumerate(everywhere):
        for place in places:
            owners.setdefault(place.name, {}).setdefault(place, []).append(owner)
    for target, (_, needs) in enumerate(everywhere):
        for needed in needs:
            missing = 1
            for size in needed.size:
                missing *= size
            for held, ranks in owners.get(needed.name, {}).items():
                region = overlap(held.offset, held.size, needed.offset, needed.size)
                if region is not None:
                    source = target if target in ranks else ranks[target % len(ranks)]
                    transfer = _Transfer(source, target, held, needed, region)
                    missing -= transfer.size()
                    yield transfer
            if missing:
                raise ValueError(f"{missing} elements of {needed.name} at {needed.offset} are held by no rank")


def _gathered(
    mine: tuple[list[_Place], list[_Place]], group: dist.ProcessGroup | None
) -> list[tuple[list[_Place], list[_Place]]]:
    if group is None:
        return [mine]
    gathered = [mine] * dist.get_world_size(group)
    dist.all_gather_object(gathered, mine, group=group)
    return gathered
